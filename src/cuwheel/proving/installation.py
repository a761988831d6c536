"""A wheel in one fresh environment: installed, compared with what `check` says, and put to its checks."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import CuwheelError, UnreadableError
from cuwheel.machine import named, probe
from cuwheel.machine.fleet import Machine, Refinement
from cuwheel.proving import checks as choice
from cuwheel.proving import contradictions, fresh_environment, libraries
from cuwheel.proving.outcomes import Check, Installation, Result
from cuwheel.proving.runner import checks as runner
from cuwheel.proving.runner import gpus, launch, processes
from cuwheel.support import codec, log, masking, scratch
from cuwheel.tracing import preload_library
from cuwheel.verdicts import matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.network.venvs import Python
    from cuwheel.proving.fresh_environment import Made
    from cuwheel.proving.trial import Trial
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.verdict import Verdict

_OUTPUT_LINES = 20
_PREFIX = "cuwheel-verify-"


def attempt(trial: Trial, python: Python) -> Installation:
    """Always ends with a value, whatever the wheel does; what it leaves behind is removed unless `keep` is set."""
    keep = trial.request.keep
    with _folder(keep=keep) as folder:
        found = _attempt(trial, python, folder)
    return replace(found, folder=str(folder / "env") if keep else "")


@contextlib.contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """What a run that was killed left is cleared away first: its folders, and its processes by their mark."""
    with contextlib.ExitStack() as stack:
        try:
            beside = Path(tempfile.gettempdir())
            made = stack.enter_context(scratch.folder(beside, _PREFIX, processes.end_marked, keep=keep))
        except OSError as error:
            raise UnreadableError.from_os(error, hint="choose where the environments are made with TMPDIR") from error
        yield made


def _attempt(trial: Trial, python: Python, folder: Path) -> Installation:
    began = time.monotonic()
    try:
        made = fresh_environment.make(folder / "env", python, trial, processes.marked(os.environ, folder.name))
    except CuwheelError as error:
        return Installation(
            python=python.version,
            outcome="failed",
            problem=_shortened(masking.known(error.message, os.environ)),
            seconds=round(time.monotonic() - began, 3),
            requirements=trial.listed,
        )
    installed = round(time.monotonic() - began, 3)
    tried = _try(trial, made, folder)
    return replace(
        tried,
        python=python.version,
        seconds=installed,
        requirements=trial.listed,
        packages=fresh_environment.packages(made),
    )


def _try(trial: Trial, made: Made, folder: Path) -> Installation:
    survey, request = trial.survey, trial.request
    profile = probe.probe(made.folder)
    machines = named.machines_here(profile, Refinement(torch_cuda=request.cuda, jax_cuda=request.cuda))
    driver = profile.driver.version is not None
    stubbed = trial.stub and not driver
    environ = fresh_environment.variables(
        made,
        processes.marked(os.environ, folder.name),
        folder,
        stub_folder=fresh_environment.put_stub(made, folder / "stub") if stubbed else None,
        passed=request.pass_env,
    )
    cut = not request.network and launch.can_cut()
    there = gpus.seen(str(made.interpreter), environ, cut=cut)
    verdicts = matrix.judge_all(survey, machines)
    foreseen = contradictions.foreseen(survey, machines[0])
    checks, skipped = _with_libraries(trial, machines[0])
    raw = _run(checks, made, _Place(environ=environ, folder=folder, gpus=there, cut=cut, tracer=_tracer(there)))
    loader = [each for each in raw if each.name == libraries.NAME]
    seen = [each for result in loader for each in libraries.loaded(result)]
    needed = libraries.needed_on_windows(survey)
    scene = libraries.Scene(foreseen=foreseen, driver=driver or stubbed, gpu=bool(there), needed=needed)
    results = [_with_origins(each, made, scene) for each in raw]
    return Installation(
        python="",
        outcome="passed",
        stub=stubbed,
        network="cut" if cut else "open",
        gpus=there,
        checks=(*results, *skipped),
        verdicts=verdicts,
        contradictions=(
            *contradictions.of_gpu(verdicts, checks, results),
            *contradictions.of_imports(verdicts, results),
            *contradictions.of_libraries(foreseen, seen),
        ),
        findings=(
            *fresh_environment.conflicts(made, environ),
            *_foreseen_failures(verdicts, machines),
            *fresh_environment.shared_files(made, survey.distribution.name if survey.distribution else ""),
            *(finding for result in loader for finding in libraries.findings(result, scene)),
        ),
    )


def _with_origins(result: Result, made: Made, scene: libraries.Scene) -> Result:
    if result.name == libraries.NAME:
        return libraries.judged(result, scene)
    # A module of Python's own, or one that something else put before it, may have the same name.
    imported = result.file if result.origin == "wheel" and result.outcome == "passed" else ""
    if imported and not Path(imported).resolve().is_relative_to(made.folder.resolve()):
        return replace(result, outcome="failed", problem=f"the imported module is not from the wheel: {imported}")
    return result if scene.driver else libraries.without_driver(result, wants_nvcuda=scene.wants_nvcuda)


def _with_libraries(trial: Trial, machine: Machine) -> tuple[tuple[Check, ...], tuple[Result, ...]]:
    """The check of the libraries after the imports, or a result that says why there is no check."""
    imports = [each.text for each in trial.checks if each.kind == "import"]
    timeout = trial.request.timeout or choice.TIMEOUT_S
    own, why = libraries.check_for(trial.survey, machine, imports, timeout=timeout, memory=choice.MEMORY)
    place = len([each for each in trial.checks if each.origin == "wheel"])
    every = (*trial.checks[:place], *([own] if own else []), *trial.checks[place:])
    left_out = Result(name=libraries.NAME, kind="python", origin="wheel", outcome="skipped", problem=why)
    if trial.request.checks:
        return choice.chosen(every, trial.request.checks), ()
    return every, (left_out,) if why else ()


class _Place(Struct, frozen=True, kw_only=True):
    """Where and how checks run."""

    environ: Mapping[str, str]
    folder: Path
    gpus: Sequence[str]
    cut: bool
    tracer: str | None = None


def _tracer(there: Sequence[str]) -> str | None:
    """Where there is a GPU, what sees the code that is loaded on it. Checks go on without it where it cannot be had."""
    if not there:
        return None
    try:
        return str(preload_library.path(os.environ))
    except CuwheelError as error:
        log.debug("not traced: %s", error.message)
        return None


def _run(checks: Sequence[Check], made: Made, place: _Place) -> list[Result]:
    results = []
    with log.progress("checking", len(checks)) as progress:
        for number, check in enumerate(checks):
            progress.show(check.name)
            result = runner.run(
                check.as_dict(),
                str(made.interpreter),
                place.environ,
                place.folder / f"run-{number}",
                capabilities=place.gpus,
                cut=place.cut,
                hide=lambda text: masking.known(text, os.environ),
                tracer=place.tracer,
            )
            results.append(as_result(result, check))
            progress.advance(1)
    return results


def as_result(answer: Mapping[str, object], check: Check) -> Result:
    """What the runner says, as a value."""
    return codec.convert({**answer, "origin": check.origin}, Result)


def _foreseen_failures(verdicts: Sequence[Verdict], machines: Sequence[Machine]) -> list[Finding]:
    """Without a GPU a verdict is about nothing that could happen here, but for a library that a variable asks for."""
    found = []
    for verdict, machine in zip(verdicts, machines, strict=True):
        for finding in verdict.findings:
            asked = machine.capability or (machine.loads and finding.rule == "no-library-to-load")
            if finding.severity == "error" and asked:
                found.append(finding)
    return list(dict.fromkeys(found))


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= _OUTPUT_LINES else [lines[0], "…", *lines[-_OUTPUT_LINES:]])
