"""The rules of `check` over everything that is installed: what `doctor` says of an environment's CUDA packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.compat import matrix
from cuwheel.finding import SEVERITIES
from cuwheel.units import first_few, some
from cuwheel.wheel import workload_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.finding import Finding
    from cuwheel.inspection.libraries import Survey
    from cuwheel.machine.fleet import Machine

_FEW = 4
# What `doctor` says of the machine itself already, once and not for each package.
_SAID_BY_MACHINE_RULES = {
    "driver-below-cuda-floor": "driver-too-old",
    "no-library-to-load": "bitsandbytes-library-missing",
}
_NOTHING_NEW = frozenset({"no-device-code", "gpu-not-known", workload_mark.RULE})  # the mark is told once for all


def examine(surveys: Sequence[Survey], machines: Sequence[Machine], known: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors and warnings, each once, naming the packages it was found in; none that `said` holds already."""
    return merged([judged(survey, machines) for survey in surveys], known)


def judged(survey: Survey, machines: Sequence[Machine]) -> tuple[str, tuple[Finding, ...]]:
    """One distribution: what it is called, and what the rules find in it."""
    name = f"{survey.distribution.name} {survey.distribution.version}" if survey.distribution else survey.target
    verdicts = matrix.judge_all(survey, machines)
    return name, tuple(finding for verdict in verdicts for finding in verdict.findings)


def merged(found: Iterable[tuple[str, Sequence[Finding]]], known: Iterable[Finding]) -> tuple[Finding, ...]:
    already = {finding.rule for finding in known}
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for name, findings in found:
        for finding in findings:
            if not _is_old(finding, already):
                alike.setdefault((finding.rule, finding.message), []).append((name, finding))
    once = [_merged(each) for each in alike.values()]
    return tuple(sorted(once, key=lambda finding: SEVERITIES.index(finding.severity)))


def matters(finding: Finding) -> bool:
    return finding.severity != "note" and finding.rule not in _NOTHING_NEW


def _is_old(finding: Finding, already: set[str]) -> bool:
    return not matters(finding) or _SAID_BY_MACHINE_RULES.get(finding.rule) in already


def _merged(found: Sequence[tuple[str, Finding]]) -> Finding:
    names = list(dict.fromkeys(name for name, _ in found))
    first = min((finding for _, finding in found), key=lambda each: SEVERITIES.index(each.severity))
    evidence = list(dict.fromkeys(item for _, finding in found for item in finding.evidence))
    return replace(
        first,
        message=f"{some(names, _FEW)}: {first.message}",
        evidence=first_few(evidence, _FEW),
    )
