"""Where what `check` foresees of this machine and what happened there differ: one is wrong, and it is said first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.proving import foresight
from cuwheel.support.finding import Finding
from cuwheel.toolchains.stub import SONAME
from cuwheel.verdicts import check_rules
from cuwheel.verdicts.check_rules.case import Case
from cuwheel.verdicts.library_sources import resolve_needed, surroundings
from cuwheel.verdicts.loading import loading
from cuwheel.verdicts.predict import Prediction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import Survey
    from cuwheel.machine.fleet import Machine
    from cuwheel.proving.libraries import Loaded
    from cuwheel.proving.outcomes import Check, Result
    from cuwheel.support.finding import Severity
    from cuwheel.verdicts.verdict import Verdict

RULE = "prediction-contradicted"
_FIX = "please report it with this output: one of the two is wrong"
# What the loader says of things that the rules of `check` are about.
_LOADER = re.compile(
    r"([\w.+-]+\.so[\w.]*): cannot open shared object file|version `(G\w+_[\d.]+)' not found", re.ASCII
)
_RUNS = ("native", "compatible", "jit")


def foreseen(survey: Survey, machine: Machine) -> dict[str, tuple[Finding, ...]]:
    """Why each library would not load here, by its path; nothing for one that would."""
    load = loading(survey, machine)
    nothing = Prediction(outcome="unknown", basis="nothing")
    around = surroundings(survey, machine, follows=load.follows)
    found = {}
    for library in survey.libraries:
        needed = resolve_needed(library, around)
        case = Case(library=library, machine=machine, prediction=nothing, needed=needed)
        found[library.path] = tuple(each for each in check_rules.examine_host(case) if each.severity == "error")
    return found


def of_libraries(foreseen: dict[str, tuple[Finding, ...]], loaded: Sequence[Loaded]) -> Iterator[Finding]:
    """Foreseen to fail, and loaded."""
    for each in loaded:
        if each.problem == "" and foreseen.get(each.path):
            yield _finding(
                f"{each.path} was predicted not to load here, but it loads",
                [why.message for why in foreseen[each.path]],
                "warning",  # better than predicted, so not an error of the wheel
            )


def of_imports(verdicts: Sequence[Verdict], results: Sequence[Result]) -> Iterator[Finding]:
    """An import that fails for want of a library, which nothing foresaw."""
    message = "\n".join(
        [
            *(text for each in verdicts for text in each.conditions),
            *(text for each in verdicts for finding in each.findings for text in (finding.message, *finding.evidence)),
        ]
    )
    for result in results:
        if result.kind == "import" and result.outcome == "failed" and (match := _LOADER.search(result.problem)):
            name = match[1] or match[2]
            if name not in message and name != SONAME:
                yield _finding(
                    f"{result.name} fails because {name} is missing, which was not predicted", [result.problem]
                )


def of_gpu(verdicts: Sequence[Verdict], checks: Sequence[Check], results: Sequence[Result]) -> Iterator[Finding]:
    """What ran on a GPU, or failed there, against the verdict."""
    needing = {check.name for check in checks if check.gpu}
    tried = [each for each in results if each.name in needing and each.outcome != "skipped"]
    for verdict in verdicts:
        fails = verdict.outcome == "fails" and verdict.predicted_error
        if fails and (passed := [each.name for each in tried if each.outcome == "passed"]):
            error = verdict.predicted_error
            yield _finding(
                f"error {error.code if error else ''} was predicted on {verdict.machine}, but checks passed there",
                passed,
            )
        if verdict.outcome in _RUNS:
            failed = [each for each in tried if not each.good and _about_code(each.output)]
            if failed:
                yield _finding(
                    f"it was predicted to run on {verdict.machine} ({verdict.outcome}), but has no code for it",
                    [f"{each.name}: {each.problem}" for each in failed],
                )


def _about_code(output: str) -> bool:
    return any(text in output for texts in foresight.SIGNS.values() for text in texts)


def _finding(message: str, evidence: Sequence[str], severity: Severity = "error") -> Finding:
    return Finding(rule=RULE, severity=severity, message=message, evidence=tuple(evidence[:5]), fix=_FIX)
