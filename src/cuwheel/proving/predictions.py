"""What `check` foresees of machines, seen or not yet seen, and where what happened there differs from it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import finding
from cuwheel.verdicts import check_rules, driver_steps
from cuwheel.verdicts.check_rules.case import LibraryCase
from cuwheel.verdicts.judge import Judge
from cuwheel.verdicts.library_sources import resolve_needed, surroundings
from cuwheel.verdicts.loading import loading, profile_of
from cuwheel_core.facts import cuda_libraries, gpus, toolkits
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support.finding import Finding, Severity, examine
from cuwheel_core.verdicts import choice
from cuwheel_core.verdicts.choice import CudaError
from cuwheel_core.verdicts.predict import GOOD, Outcome, Prediction

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.proving.libraries import LoadAttempt
    from cuwheel.proving.outcomes import Check, Result
    from cuwheel.verdicts.verdict import Verdict


# What will become of a wheel on machines that nobody has seen yet: every capability, every driver.
#
# Decided where the wheel is packed, so that a machine which has nothing but Python can compare.

# The errors that are about device code, as the runtime, the driver and their texts name them.
SIGNS: dict[int, tuple[str, ...]] = {
    choice.NO_KERNEL_IMAGE.code: (
        choice.NO_KERNEL_IMAGE.name,
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available",
    ),
    choice.UNSUPPORTED_PTX.code: (
        choice.UNSUPPORTED_PTX.name,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the provided PTX was compiled with an unsupported toolchain",
    ),
    choice.JIT_DISABLED.code: (
        choice.JIT_DISABLED.name,
        "CUDA_ERROR_JIT_COMPILATION_DISABLED",
        "PTX JIT compilation was disabled",
    ),
    choice.INVALID_SOURCE.code: (
        choice.INVALID_SOURCE.name,
        "CUDA_ERROR_INVALID_SOURCE",
        "device kernel image is invalid",
    ),
    choice.SYMBOL_NOT_FOUND.code: (choice.SYMBOL_NOT_FOUND.name, "named symbol not found"),
    choice.INSUFFICIENT_DRIVER.code: (
        choice.INSUFFICIENT_DRIVER.name,
        "CUDA driver version is insufficient for CUDA runtime version",
    ),
}
_OLDEST = "0"


class Step(Struct, frozen=True, kw_only=True):
    """What holds from the driver of this CUDA on, until the next step."""

    driver: str
    outcome: Outcome
    error: CudaError | None
    conditions: tuple[str, ...]


class Row(Struct, frozen=True, kw_only=True):
    """`group`: which libraries of the package are loaded, where a framework's CUDA decides that."""

    capability: str
    group: int | None
    steps: tuple[Step, ...]


class PredictedRows(Struct, frozen=True, kw_only=True):
    """`follows`: the framework that decides which libraries are loaded, and `groups` how: its CUDA → a group.

    `override`: the variable that decides in its place. `newer_gpus`: rows for a capability above all known.
    """

    rows: tuple[Row, ...]
    newer_gpus: tuple[Row, ...]
    follows: str | None
    override: str | None
    groups: dict[str, int]


def predict_everywhere(found: Survey) -> PredictedRows:
    """Needs the containers of the libraries."""
    known, profile = gpus.current_capabilities(), profile_of(found)
    follows, groups, cudas = _groups(found)
    beyond = Capability(known[-1].major + 1, 0)
    subjects = tuple(_subjects(found, cudas, follows))
    return PredictedRows(
        rows=tuple(row for each in known for row in _rows(subjects, each, follows)),
        newer_gpus=tuple(_rows(subjects, beyond, follows)),
        follows=follows,
        override=profile.override if profile and follows else None,
        groups=groups,
    )


def _groups(found: Survey) -> tuple[str | None, dict[str, int], list[str]]:
    """The framework, its CUDA versions by what they make the package load, and one version of each group."""
    profile = profile_of(found)
    if profile is None or profile.follows not in ("torch", "jax"):
        return None, {}, []
    loaded: dict[tuple[str, ...], int] = {}
    groups: dict[str, int] = {}
    cudas: list[str] = []
    # Packages of jax say a major alone.
    versions = [str(row.major) if profile.follows == "jax" else row.version for row in toolkits.all_toolkits()]
    for cuda in dict.fromkeys(versions):
        load = loading(found, _with(Machine(name="", capability=None), profile.follows, cuda))
        key = (*load.always, load.missing and "none")
        if key not in loaded:
            loaded[key] = len(loaded)
            cudas.append(cuda)
        groups[cuda] = loaded[key]
    return profile.follows, groups, cudas


def _with(machine: Machine, follows: str | None, cuda: str | None) -> Machine:
    if follows == "torch":
        return replace(machine, torch_cuda=cuda)
    return replace(machine, jax_cuda=cuda) if follows == "jax" else machine


def _subjects(found: Survey, cudas: Sequence[str], follows: str | None) -> Iterator[tuple[str | None, Judge]]:
    """Yields, by the framework's CUDA, what it makes the package load: once for all capabilities and drivers."""
    if not cudas:
        yield None, Judge(found)
    for cuda in cudas:
        machine = _with(Machine(name="", capability=None), follows, cuda)
        yield cuda, Judge(_loaded(found, machine))


def _rows(subjects: Sequence[tuple[str | None, Judge]], capability: Capability, follows: str | None) -> Iterator[Row]:
    machine = Machine(name=str(capability), capability=capability, gpu_seen=True)  # by the driver there
    for group, (cuda, subject) in enumerate(subjects):
        steps = tuple(_steps(subject, _with(machine, follows, cuda)))
        yield Row(capability=str(capability), group=group if cuda else None, steps=steps)


def _loaded(found: Survey, machine: Machine) -> Survey:
    """Without the libraries that are for other versions of CUDA: judging them takes most of the time."""
    kept = set(loading(found, machine).always)
    return replace(found, libraries=tuple(each for each in found.libraries if each.path in kept)) if kept else found


def _steps(subject: Judge, machine: Machine) -> Iterator[Step]:
    """Steps from the oldest driver on, each where something changes."""
    every = [_OLDEST, *(row.version for row in toolkits.all_releases())]
    found = driver_steps.by_halves(functools.cache(lambda driver: _judged(subject, machine, driver)), every)
    last: Step | None = None
    for driver in (each for each in every if each in found):
        if found[driver] != last:
            last = found[driver]
            yield replace(last, driver=driver)


def _judged(subject: Judge, machine: Machine, driver: str) -> Step:
    """A verdict without the driver, so that those that say the same are equal."""
    verdict = subject.on(replace(machine, driver_cuda=driver))
    return Step(
        driver="",
        outcome=verdict.outcome,
        error=verdict.predicted_error,
        conditions=verdict.conditions,
    )


# Where what `check` foresees of this machine and what happened there differ: one is wrong, and it is said first.

RULE = "prediction-contradicted"
# What the loader says of things that the rules of `check` are about.
_LOADER = re.compile(
    r"([\w.+-]+\.so[\w.]*): cannot open shared object file|version `(G\w+_[\d.]+)' not found", re.ASCII
)


def host_problems(survey: Survey, machine: Machine) -> dict[str, tuple[Finding, ...]]:
    """Why each library would not load here, by its path; nothing for one that would."""
    load = loading(survey, machine)
    nothing = Prediction(outcome="unknown", basis="nothing")
    around = surroundings(survey, machine, follows=load.follows)
    found = {}
    for library in survey.libraries:
        needed = resolve_needed(library, around)
        case = LibraryCase(library=library, machine=machine, prediction=nothing, needed=needed)
        found[library.path] = tuple(each for each in examine(check_rules.HOST_RULES, case) if each.severity == "error")
    return found


def contradicted_libraries(
    foreseen: dict[str, tuple[Finding, ...]], loaded: Sequence[LoadAttempt]
) -> Iterator[Finding]:
    """Foreseen to fail, and loaded."""
    for each in loaded:
        if each.problem == "" and foreseen.get(each.path):
            yield _contradiction(
                f"{each.path} was predicted not to load here, but it loads",
                [why.message for why in foreseen[each.path]],
                "warning",  # better than predicted, so not an error of the wheel
            )


def contradicted_imports(verdicts: Sequence[Verdict], results: Sequence[Result]) -> Iterator[Finding]:
    """An import that fails for want of a library, which nothing foresaw."""
    message = "\n".join(
        [
            *(name for each in verdicts for told in each.requires for name in (told.text, *told.parts.names)),
            *(text for each in verdicts for finding in each.findings for text in (finding.message, *finding.evidence)),
        ]
    )
    for result in results:
        if result.kind == "import" and result.outcome == "failed" and (match := _LOADER.search(result.problem)):
            name = match[1] or match[2]
            if name not in message and name != cuda_libraries.DRIVER_LIBRARY:
                yield _contradiction(
                    f"{result.name} fails because {name} is missing, which was not predicted", [result.problem]
                )


def contradicted_on_gpu(
    verdicts: Sequence[Verdict], checks: Sequence[Check], results: Sequence[Result]
) -> Iterator[Finding]:
    """What ran on a GPU, or failed there, against the verdict."""
    needing = {check.name for check in checks if check.gpu}
    tried = [each for each in results if each.name in needing and each.outcome != "skipped"]
    for verdict in verdicts:
        fails = verdict.outcome == "fails" and verdict.predicted_error
        if fails and (passed := [each.name for each in tried if each.outcome == "passed"]):
            error = verdict.predicted_error
            yield _contradiction(
                f"error {error.code if error else ''} was predicted on {verdict.machine}, but checks passed there",
                passed,
            )
        if verdict.outcome in GOOD:
            failed = [each for each in tried if not each.good and _about_code(each.output)]
            if failed:
                yield _contradiction(
                    f"it was predicted to run on {verdict.machine} ({verdict.outcome}), but has no code for it",
                    [f"{each.name}: {each.problem}" for each in failed],
                )


def _about_code(output: str) -> bool:
    return any(text in output for texts in SIGNS.values() for text in texts)


def _contradiction(message: str, evidence: Sequence[str], severity: Severity = "error") -> Finding:
    return finding(RULE, message, evidence=tuple(evidence[:5]), severity=severity)
