"""NVIDIA's packages as requirements of a wheel: of the CUDA that it was linked with, and of no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.changes.repair import paths
from cuwheel.facts import versions
from cuwheel.support.finding import Finding
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.changes.repair.contents import Binary, Contents
    from cuwheel.changes.repair.decision import Fact, Wish
    from cuwheel.changes.repair.sorting import Sorted
    from cuwheel.facts.packages import Library


def of(found: Contents, sorted_: Sorted, wish: Wish) -> tuple[tuple[str, ...], list[Finding]]:
    """Of a wheel and what is grafted into it, where that was asked for."""
    if not wish.requires:
        return (), []
    asking = (*found.binaries, *sorted_.grafted.values())
    return wanted(asking, sorted_.facts, wish, found.distribution.requires)


def wanted(
    binaries: Iterable[Binary], facts: Iterable[Fact], wish: Wish, required: Sequence[str]
) -> tuple[tuple[str, ...], list[Finding]]:
    """The lines to add, and what stands against them. `required`: what the wheel requires already."""
    kept = {each.soname: each for each in facts if each.fate == "kept-out" and not each.indirect}
    lines: set[str] = set()
    majors: set[int] = set()
    findings: list[Finding] = []
    unclear: list[str] = []
    wished = wish.cuda_major
    for binary in binaries:
        major = paths.cuda_major(binary, wished)
        compiled_with = max(
            (each for each in binary.toolkits if versions.major(each) == major), key=versions.key, default=wish.cuda
        )
        for fact in (kept[each] for each in binary.needed if each in kept):
            row = paths.known(fact.soname)
            if row is None or row.from_driver:
                continue
            if major is None:
                unclear.append(fact.soname)
            elif wished in (None, major):
                majors.add(major)
                if major in row.majors:
                    lines.add(requirement(row, major, _linked_with(row, major, compiled_with, fact)))
    if len(majors) > 1 or unclear:
        findings.append(_ambiguous(majors, unclear))
    # What only an extra brings does not count: nobody need ask for it.
    always = [each for each in required if "extra" not in each.partition(";")[2]]
    have = {normalised(match[0]) for each in always if (match := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", each))}
    return tuple(each for each in sorted(lines) if normalised(re.split(r"[<>=!~]", each)[0]) not in have), findings


def _linked_with(library: Library, major: int, compiled_with: str | None, found: Fact) -> str | None:
    """The release of the package that the wheel was made with, as far as its own facts tell.

    `compiled_with`: the release of CUDA. A library that was found here tells the number that this release gave it where
    it lies with the same release; any other is this machine's, and says nothing of the wheel.
    """
    if compiled_with is None or versions.major(compiled_with) != major:
        return None
    release = versions.minor(compiled_with)
    package = library.package_for(major)
    if package and package.numbered_as_cuda:
        return release
    return found.version if found.toolkit == release else None


def requirement(library: Library, major: int, linked_with: str | None) -> str:
    """From the minor version that was linked with to the end of its major: so long NVIDIA keeps its ABI.

    Within a major only releases that have the library; its folder may be another, which the search path allows for.
    """
    package = library.package_for(major)
    assert package is not None  # noqa: S101 - of the library's own majors
    rows = [each for each in library.packages if each.name == package.name and each.measured_release]
    if not rows:
        return package.name
    bounds = [each.bounds(library.pattern) for each in rows]
    newest = max(versions.major(each.measured_release or "") for each in rows)
    since = [lower for lower, _ in bounds]
    below = [upper for _, upper in bounds]
    first = None if None in since else min(filter(None, since), key=versions.key)
    last = None if None in below else max(filter(None, below), key=versions.key)
    same = linked_with and versions.major(linked_with) == newest
    fits = same and not (last and versions.at_least(linked_with or "", last))
    lower = versions.minor(linked_with) if linked_with and fits else first or str(newest)
    return f"{package.name}>={lower},<{last or newest + 1}"


def _ambiguous(majors: set[int], unclear: Sequence[str]) -> Finding:
    if unclear:
        return Finding(
            rule="cuda-unclear",
            severity="error",
            message="it is not known which CUDA its libraries are for, so neither are the packages to require",
            evidence=tuple(dict.fromkeys(unclear)),
            fix="give it: --cuda 13",
        )
    names = " and ".join(str(each) for each in sorted(majors))
    return Finding(
        rule="several-cudas",
        severity="error",
        message=f"the wheel has libraries for CUDA {names}; requiring the packages of each would install them all",
        fix="choose one with --cuda, or leave --requires out and name the packages in extras",
    )
