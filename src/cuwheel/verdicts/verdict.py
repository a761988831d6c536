"""The answer of `cuwheel check`, its verdicts on targets and machines, how they add up, and merged findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few, file_name
from cuwheel.verdicts.choice import CudaError
from cuwheel.verdicts.predict import GOOD, Containers, Outcome, Taken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from cuwheel.device_code.libraries import PythonLoad, Survey
    from cuwheel.verdicts.loading import Loading


# The best first. `unknown` is better than `fails` only where nothing is known to fail.
ORDER: tuple[Outcome, ...] = ("native", "compatible", "jit", "partial", "unknown", "fails")


class LibraryVerdict(Struct, frozen=True, kw_only=True):
    """`loaded`: null where it depends on what is not known. `optional`: the rest works without it. `main`: it is what
    the package is for.

    `rests_on`: the entries that the driver takes.
    """

    path: str
    outcome: Outcome
    containers: Containers
    predicted_error: CudaError | None
    loaded: bool | None
    optional: bool
    main: bool
    rests_on: tuple[Taken, ...]
    conditions: tuple[str, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """`machine` is its name. `conditions`: what was not known and must hold.

    `main`: what the libraries come to that the package is for. `summary`: of `partial`, what works and what does not.
    """

    target: str
    machine: str
    outcome: Outcome
    main: Outcome = "unknown"
    summary: str = ""
    predicted_error: CudaError | None
    conditions: tuple[str, ...]
    libraries: tuple[LibraryVerdict, ...]
    findings: tuple[Finding, ...]

    @property
    def has_no_code(self) -> bool:
        return any(each.rule == "no-device-code" for each in self.findings)


class Target(Struct, frozen=True, kw_only=True):
    """`target` is what was asked for, `name` what it says it is, `archs` what its device code is for.

    `findings`: about the file itself, on any machine: larger than it may be, for other architectures than it should.
    """

    target: str
    name: str
    size: int = 0
    archs: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def targets_of(surveys: Sequence[Survey], findings: Sequence[tuple[Finding, ...]] = ()) -> tuple[Target, ...]:
    """Each by what it says it is; where several say the same, with the platform. `findings`: about each of them."""
    names = [_name(each) for each in surveys]
    return tuple(
        Target(
            target=each.target,
            name=f"{name} {_platform(each)}" if names.count(name) > 1 else name,
            size=each.size,
            archs=tuple(sorted({row.arch for library in each.libraries for row in library.device_code})),
            findings=own,
        )
        for each, name, own in zip(surveys, names, findings or [()] * len(names), strict=True)
    )


def _name(survey: Survey) -> str:
    distribution = survey.distribution
    return f"{distribution.name} {distribution.version}" if distribution else file_name(survey.target)


def _platform(survey: Survey) -> str:
    distribution = survey.distribution
    return distribution.tags[0].rpartition("-")[2] if distribution and distribution.tags else survey.target


class Check(Struct, frozen=True, kw_only=True):
    """A verdict for every target on every machine, target by target."""

    schema: Literal["cuwheel.check/1"] = "cuwheel.check/1"
    targets: tuple[Target, ...]
    machines: tuple[Machine, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def succeeded(self) -> bool:
        """False where anything fails anywhere, or a file is not what it should be."""
        wrong = any(each.severity == "error" for target in self.targets for each in target.findings)
        return not wrong and all(verdict.outcome != "fails" for verdict in self.verdicts)

    @property
    def exit_status(self) -> int | None:
        """One of its own where nothing fails and something is not known; without CUDA code there is nothing to know."""
        undecided = any(each.outcome == "unknown" and not each.has_no_code for each in self.verdicts)
        return EXIT_UNKNOWN if self.succeeded and undecided else None


def combined_outcome(libraries: Iterable[LibraryVerdict]) -> Outcome:
    """All of them must serve; one that is opened only when asked for, or only linked, leaves the rest working.

    How those run that the rest works without does not matter beside the others.
    """
    found = list(libraries)
    deciding = [each for each in found if not each.optional]
    outcome = worst_outcome(each.outcome for each in deciding) if deciding else "native"
    if outcome in ("fails", "unknown"):
        return outcome
    if any(each.optional and each.outcome not in GOOD for each in found):
        return "partial"
    counted = deciding or [each for each in found if each.main] or found
    return worst_outcome(each.outcome for each in counted)


def main_outcome(libraries: Iterable[LibraryVerdict]) -> Outcome:
    """What the package is for: where nobody said which libraries that are, all of them."""
    found = list(libraries)
    return worst_outcome(each.outcome for each in [each for each in found if each.main] or found)


def worst_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """`unknown` where there is nothing to go by."""
    return max(outcomes, key=ORDER.index, default="unknown")


def best_outcome(outcomes: Iterable[Outcome]) -> Outcome:
    """Of several that it could be. Where one is not known and the others fail, nobody knows that it fails."""
    return min(outcomes, key=ORDER.index, default="unknown")


def first_error(libraries: Iterable[LibraryVerdict]) -> CudaError | None:
    """The first error that the program meets: of a library that it cannot do without, if there is one."""
    failed = [each for each in libraries if each.outcome in ("fails", "partial") and each.predicted_error]
    failed.sort(key=lambda each: (each.optional, each.outcome != "fails"))
    return failed[0].predicted_error if failed else None


# Findings of single libraries, merged for their package: each once, with the libraries it applies to.

FindingKey: TypeAlias = tuple[str, str, str, str]
_NAMED = 3
_SUBJECT = "it "  # how rules speak of the library


def finding_of_library(finding: Finding, path: str, load: Loading, *, optional: bool) -> Finding:
    """Its evidence names the library. Of one that the rest works without an error is a warning, and why that is so."""
    severity = "warning" if optional and finding.severity == "error" else finding.severity
    evidence = tuple(f"{path}: {each}" for each in finding.evidence) or (path,)
    if severity != finding.severity and (reason := load.reasons.get(path)):
        evidence = (*evidence, f"{path}: {reason}")
    return replace(finding, severity=severity, evidence=evidence)


def partial_summary(
    libraries: Sequence[LibraryVerdict], load: Loading, loads: Sequence[PythonLoad], meant: Mapping[str, str]
) -> str:
    """Of a package that runs in part, in its own terms: what does not work, and whether that is what it is for.

    `meant`: what runs, by path, of libraries that were made to run in part.
    """
    of_main = [each for each in libraries if each.main] or list(libraries)
    failing = [each for each in of_main if each.outcome not in (*GOOD, "partial")]
    in_part = [each for each in of_main if each.outcome == "partial"]
    by = {each.path: each.file for each in loads}

    def parts(found: Iterable[LibraryVerdict]) -> list[str]:
        """Libraries by name, those of one part of the package together."""
        named: dict[str, list[str]] = {}
        for each in found:
            why = load.does.get(each.path) or (f"loaded by {by[each.path]}" if each.path in by else "")
            named.setdefault(why or each.path, []).append(file_name(each.path))
        paths = {each.path for each in libraries}
        return [" and ".join(names) + (f" ({why})" if why not in paths else "") for why, names in named.items()]

    others = parts(each for each in libraries if each not in of_main and each.outcome not in GOOD)
    optional = "an optional part does not" if len(others) == 1 else f"{len(others)} optional parts do not"
    also = f"; {optional}: {a_few(others, _NAMED)}" if others else ""
    lacking = f"{a_few(parts(in_part), _NAMED)} have no code for this GPU"
    if failing:
        number, verb = ("an optional part", "does") if len(others) == 1 else (f"{len(others)} optional parts", "do")
        also = f"; so {verb} {number}: {a_few(others, _NAMED)}" if others else ""
        some = f"; some kernels of {lacking}" if in_part else ""
        return f"starts, but its main part fails: {a_few(parts(failing), _NAMED)}{also}{some}"
    if in_part and all(each.path in meant for each in in_part):
        return "; ".join(dict.fromkeys(meant[each.path] for each in in_part)) + also
    if in_part:
        return f"runs, but not all of its kernels: some of {lacking}{also}"
    return f"runs{also}"


def finding_key(finding: Finding) -> FindingKey:
    """What several libraries have in common is reported once."""
    return finding.rule, finding.severity, finding.message, finding.fix


def merge_findings(found: Mapping[str, Finding], everything: Collection[str]) -> Finding:
    """Of findings that are alike, by path, one with the evidence of all.

    Where it is not true of `everything`, the libraries of the package that hold code, it says of which.
    """
    evidence = tuple(dict.fromkeys(item for each in found.values() for item in each.evidence))
    first = next(iter(found.values()))
    concerned = [path for path in found if path in everything]
    if concerned and len(concerned) < len(everything):
        return replace(first, message=_name_libraries(first.message, concerned, everything), evidence=evidence)
    return replace(first, evidence=evidence)


def _name_libraries(message: str, paths: Collection[str], everything: Collection[str]) -> str:
    shared = Counter(file_name(each) for each in everything)
    names = [each if shared[file_name(each)] > 1 else file_name(each) for each in paths]
    listed = a_few(names, _NAMED)
    if not message.startswith(_SUBJECT):
        return f"{listed}: {message}"
    return f"{'each of ' if len(names) > 1 else ''}{listed} {message.removeprefix(_SUBJECT)}"
