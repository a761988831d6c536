"""RPATH: where the loader looks for what a library of the wheel needs, relative to where that library is installed."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from cuwheel.changes.repair.decision import SearchPath
from cuwheel.facts import packages
from cuwheel.wheel.file import installed_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cuwheel.changes.repair.contents import Binary
    from cuwheel.facts.packages import Library

_ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?=/|$)")


def known(soname: str) -> Library | None:
    """The row of one of NVIDIA's libraries; None for others, and for one that is newer than the table."""
    return packages.known_library(soname)


def cuda_major(binary: Binary, wished: int | None) -> int | None:
    """Of the CUDA that a library was linked with: what only one fits, its runtime, then what was asked for."""
    rows = [row for row in map(known, binary.needed) if row and not row.from_driver]
    shared = set.intersection(*(set(row.majors) for row in rows)) if rows else set()
    if len(shared) == 1:
        return shared.pop()
    return binary.cuda or (wished if wished in shared or not shared else None)


def folders_for(soname: str, major: int | None) -> tuple[str, ...]:
    """Below site-packages, where the packages of a CUDA put a library; those of every CUDA where it is not known."""
    row = known(soname)
    if row is None:
        return ()
    fitting = [each.folder for each in row.packages if each.folder and major in (None, each.cuda)]
    return tuple(dict.fromkeys(fitting or [each.folder for each in row.packages if each.folder]))


def of(
    binary: Binary, inside: Mapping[str, Sequence[str]], kept_out: Callable[[str], bool], wished: int | None = None
) -> SearchPath | None:
    """The path of one library of the wheel; None where nobody knows where it will be installed.

    `inside`: soname → the paths in the wheel that have it. `kept_out`: whether a library comes from elsewhere.
    """
    place = installed_path(binary.path)
    if place is None:
        return None
    here = posixpath.dirname(place)
    major = cuda_major(binary, wished)
    kept = [each for each in binary.search_path if _ORIGIN.match(each)]
    reached = {_reached(each, here) for each in kept}
    wanted = [*_to_inside(binary, here, inside, reached), *_to_cuda(binary, kept_out, major)]
    added = [relative(each, here) for each in dict.fromkeys(wanted) if each not in reached]
    return SearchPath(path=binary.path, before=binary.search_path, after=(*kept, *added), cuda=major)


def relative(folder: str, here: str) -> str:
    """`$ORIGIN/../nvidia/cublas/lib` for nvidia/cublas/lib as seen from a package's folder."""
    path = posixpath.relpath(folder or ".", here or ".")
    return "$ORIGIN" if path == "." else f"$ORIGIN/{path}"


def _reached(entry: str, here: str) -> str:
    """The folder below site-packages that an entry leads to; `.` is that folder itself."""
    path = posixpath.normpath(_ORIGIN.sub(lambda _: here or ".", entry, count=1))
    return "" if path == "." else path


def leads(binary: Binary, path: str) -> bool:
    """Whether the library's search path leads to a file of the wheel."""
    place, target = installed_path(binary.path), installed_path(path)
    if place is None or target is None:
        return False
    here = posixpath.dirname(place)
    entries = {_reached(each, here) for each in binary.search_path if _ORIGIN.match(each)}
    return posixpath.dirname(target) in entries


def _to_inside(binary: Binary, here: str, inside: Mapping[str, Sequence[str]], reached: Iterable[str]) -> Iterator[str]:
    there = set(reached)
    for soname in binary.needed:
        if packages.from_system(soname):  # the system's comes first; who wants another leads to it himself
            continue
        places = [place for path in inside.get(soname, ()) if (place := installed_path(path))]
        folders = [posixpath.dirname(each) for each in places]
        if not folders or there & set(folders):
            continue
        # Of several of one name, that of the same folder, else the nearest; packages keep one for each CUDA apart.
        yield min(folders, key=lambda each: (_distance(each, here), each))


def _distance(folder: str, here: str) -> int:
    return len(posixpath.relpath(folder or ".", here or ".").split("/")) if folder != here else 0


def _to_cuda(binary: Binary, kept_out: Callable[[str], bool], major: int | None) -> Iterator[str]:
    for soname in binary.needed:
        if kept_out(soname):
            yield from folders_for(soname, major)


def inside_of(binaries: Iterable[Binary]) -> dict[str, list[str]]:
    """Soname, and file name, → the paths in the wheel that have it."""
    found: dict[str, list[str]] = {}
    for each in binaries:
        for name in each.names:
            found.setdefault(name, []).append(each.path)
    return found
