"""Findings of single libraries, merged for their package: each once, with the libraries it applies to."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from cuwheel.support.units import file_name, some
from cuwheel.verdicts.verdict import GOOD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cuwheel.device_code.libraries import PythonLoad
    from cuwheel.support.finding import Finding
    from cuwheel.verdicts.loading import Loading
    from cuwheel.verdicts.verdict import LibraryVerdict

Key: TypeAlias = tuple[str, str, str, str]
_NAMED = 3
_SUBJECT = "it "  # how rules speak of the library


def of_library(finding: Finding, path: str, load: Loading, *, optional: bool) -> Finding:
    """Its evidence names the library. Of one that the rest works without an error is a warning, and why that is so."""
    severity = "warning" if optional and finding.severity == "error" else finding.severity
    evidence = tuple(f"{path}: {each}" for each in finding.evidence) or (path,)
    if severity != finding.severity and (reason := load.reasons.get(path)):
        evidence = (*evidence, f"{path}: {reason}")
    return replace(finding, severity=severity, evidence=evidence)


def in_part(libraries: Sequence[LibraryVerdict], load: Loading, loads: Sequence[PythonLoad]) -> str:
    """Of a package that runs in part, in its own terms: what does not work, and whether that is what it is for."""
    of_main = [each for each in libraries if each.main] or list(libraries)
    main = [each for each in of_main if each.outcome not in GOOD]
    others = [each for each in libraries if each not in of_main and each.outcome not in GOOD]
    by = {each.path: each.file for each in loads}

    def words(found: Sequence[LibraryVerdict]) -> str:
        told = (load.does.get(each.path) or (f"loaded by {by[each.path]}" if each.path in by else "") for each in found)
        names = (file_name(each.path) for each in found)
        return some([f"{name} ({why})" if why else name for name, why in zip(names, told, strict=True)], _NAMED)

    optional = "an optional part does not" if len(others) == 1 else f"{len(others)} optional parts do not"
    also = f"; {optional}: {words(others)}" if others else ""
    if failing := [each for each in main if each.outcome != "partial"]:
        return f"starts, but its main part fails: {words(failing)}{also}"
    if main:
        return f"runs, but not all of its kernels: some of {words(main)} have no code for this GPU{also}"
    return f"runs{also}"


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
