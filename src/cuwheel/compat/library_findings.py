"""Findings of single libraries, merged for their package: each once, with the libraries it applies to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from cuwheel.units import file_name, some

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cuwheel.compat.loading import Loading
    from cuwheel.finding import Finding

Key: TypeAlias = tuple[str, str, str, str]
_NAMED = 3
_SUBJECT = "it "  # how rules speak of the library


def of_library(finding: Finding, path: str, load: Loading) -> Finding:
    """Its evidence names the library. Of one that the rest works without an error is a warning, and why that is so."""
    severity = "warning" if path in load.optional and finding.severity == "error" else finding.severity
    evidence = tuple(f"{path}: {each}" for each in finding.evidence) or (path,)
    if severity != finding.severity and (reason := load.reasons.get(path)):
        evidence = (*evidence, f"{path}: {reason}")
    return replace(finding, severity=severity, evidence=evidence)


def alike(finding: Finding) -> Key:
    """What several libraries have in common is reported once."""
    return finding.rule, finding.severity, finding.message, finding.fix


def of_libraries(found: Mapping[str, Finding], everything: Collection[str]) -> Finding:
    """Of findings that are alike, by path, one with the evidence of all.

    Where it is not true of `everything`, the libraries of the package that hold code, it says of which.
    """
    evidence = tuple(dict.fromkeys(item for each in found.values() for item in each.evidence))
    first = next(iter(found.values()))
    concerned = [path for path in found if path in everything]
    if concerned and len(concerned) < len(everything):
        return replace(first, message=_of_some(first.message, concerned, everything), evidence=evidence)
    return replace(first, evidence=evidence)


def _of_some(message: str, paths: Collection[str], everything: Collection[str]) -> str:
    shared = Counter(file_name(each) for each in everything)
    names = [each if shared[file_name(each)] > 1 else file_name(each) for each in paths]
    listed = some(names, _NAMED)
    if not message.startswith(_SUBJECT):
        return f"{listed}: {message}"
    return f"{'each of ' if len(names) > 1 else ''}{listed} {message.removeprefix(_SUBJECT)}"
