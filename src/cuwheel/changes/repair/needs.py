"""What the libraries of a wheel need: what becomes of each, the path that leads to it, the package that brings it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.repair import policies
from cuwheel.changes.repair.answer import Fact, SearchPath
from cuwheel.changes.repair.contents import Binary, Contents, Folder, Found, Searcher
from cuwheel.changes.repair.policies import Policy
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.facts import packages
from cuwheel.support.finding import finding
from cuwheel.wheel.file import installed_path
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel_core.facts.cuda_libraries import Library
    from cuwheel_core.support.finding import Finding

_LIBPYTHON = re.compile(r"libpython\d+\.\d+m?\.so(?:\.\d)*")
_ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?=/|$)")


class Sorted(Struct, frozen=True, kw_only=True):
    """`grafted`: soname → the file that is copied into the wheel."""

    facts: tuple[Fact, ...]
    grafted: Mapping[str, Binary]


class _Walk(Struct, kw_only=True):
    contents: Contents
    request: RepairRequest
    searcher: Searcher
    policy: Policy
    inside: Mapping[str, Sequence[str]]
    facts: dict[str, Fact] = field(default_factory=dict)
    grafted: dict[str, Binary] = field(default_factory=dict)


class _Asker(Struct, frozen=True, kw_only=True):
    """Who needs something: a library in the wheel, or one that was found (`outside`), perhaps NVIDIA's own."""

    binary: Binary
    name: str
    outside: bool = False
    indirect: bool = False


def sort_needs(contents: Contents, request: RepairRequest, searcher: Searcher, policy: Policy) -> Sorted:
    """Everything that is needed under a policy, by those in the wheel, those grafted, and NVIDIA's that were found."""
    inside = inside_of(contents.binaries)
    walk = _Walk(contents=contents, request=request, searcher=searcher, policy=policy, inside=inside)
    waiting = [_Asker(binary=each, name=each.path) for each in contents.binaries]
    while waiting:
        asker = waiting.pop(0)
        for soname in asker.binary.needed:
            waiting += _need(walk, soname, asker)
    order = ("missing", "kept-out", "grafted", "removed", "inside", "system")
    askers = {**{each.path: each for each in contents.binaries}, **walk.grafted}
    majors = {name: cuda_major(each, request.cuda_major) for name, each in askers.items()}
    machine = contents.binaries[0].machine if contents.binaries else ""
    narrowed = (_narrowed(each, majors, machine) for each in walk.facts.values())
    facts = sorted(narrowed, key=lambda each: (each.indirect, order.index(each.fate), each.soname))
    return Sorted(facts=tuple(facts), grafted=walk.grafted)


def excluded(sorted_: Sorted) -> Iterator[str]:
    """What auditwheel and delvewheel must leave alone: what is kept out, and what is inside.

    They look at each library of the wheel by itself. What one needs of another they would look for where the search
    path leads before installing: nowhere, or to a copy in the folder of the build.
    """
    return (each.soname for each in sorted_.facts if each.fate in ("kept-out", "inside"))


def _need(walk: _Walk, soname: str, asker: _Asker) -> Iterator[_Asker]:
    """One more need: it is noted, and the library it leads to is examined next."""
    if known := walk.facts.get(soname):
        if not asker.indirect or known.indirect:
            by = dict.fromkeys((*known.needed_by, asker.name))
            walk.facts[soname] = replace(known, needed_by=tuple(by), indirect=known.indirect and asker.indirect)
        if not (known.indirect and not asker.indirect and known.fate == "system"):
            return
    fact, found = _sorted(walk, soname, asker)
    walk.facts[soname] = fact
    if found and fact.fate == "grafted":
        walk.grafted[soname] = found.binary
        yield _Asker(binary=found.binary, name=soname, outside=True, indirect=asker.indirect)
    elif found and fact.fate == "kept-out":
        yield _Asker(binary=found.binary, name=soname, outside=True, indirect=True)


def _sorted(walk: _Walk, soname: str, asker: _Asker) -> tuple[Fact, Found | None]:
    fact = Fact(soname=soname, fate="missing", reason="", needed_by=(asker.name,), indirect=asker.indirect)
    if reason := asked_for(soname, walk.request.exclude):
        return _kept_out(walk, fact, asker, reason)
    places = () if asker.indirect else walk.inside.get(soname, ())
    if places and (not packages.from_system(soname) or any(leads_to(asker.binary, each) for each in places)):
        return replace(fact, fate="inside", reason="it is in the wheel", place=places[0]), None
    if cuda_libraries.component_of(soname):
        return _kept_out(walk, fact, asker, "NVIDIA's")
    if framework := packages.framework_of(soname):
        return _kept_out(walk, replace(fact, packages=(framework,)), asker, f"{framework}'s own package provides it")
    if policies.is_from_system(soname, walk.policy):
        return replace(fact, fate="system", reason=f"every {walk.policy.name} machine has it"), None
    if _LIBPYTHON.fullmatch(soname):
        return replace(fact, fate="removed", reason="the interpreter has it already"), None
    if asker.indirect:  # of NVIDIA's own libraries: their packages' business
        return replace(fact, fate="system", reason="needed only by NVIDIA's libraries"), None
    found, trail = walk.searcher.find(soname, _own_folders(asker))
    if found is None:
        return replace(fact, reason="not found", trail=trail), None
    reason = "not every machine has it"
    return replace(_placed(fact, found), fate="grafted", reason=reason, trail=trail), found


def asked_for(soname: str, exclude: Sequence[str]) -> str:
    """The reason, where a pattern of the caller keeps it out; a framework's name stands for its libraries."""
    for pattern in exclude:
        if fnmatchcase(soname, pattern) or packages.framework_of(soname) == pattern:
            return f"requested ({pattern})"
    return ""


def _kept_out(walk: _Walk, fact: Fact, asker: _Asker, reason: str) -> tuple[Fact, Found | None]:
    row = cuda_libraries.known_library(fact.soname)
    if row and row.from_driver:
        return replace(fact, fate="kept-out", reason="it comes with the driver"), None
    cuda = cuda_major(asker.binary, walk.request.cuda_major) if row else None
    found, trail = walk.searcher.find(fact.soname, _own_folders(asker), cuda if row and cuda in row.majors else None)
    fact = replace(fact, fate="kept-out", reason=reason, trail=trail, cuda=row.majors if row else ())
    if row:
        fact = replace(fact, packages=tuple(dict.fromkeys(each.name for each in row.packages)))
    return (_placed(fact, found) if found else fact), found


def _placed(fact: Fact, found: Found) -> Fact:
    path = Path(found.binary.path)
    found_versions = (found.folder.versions.get(each) for each in fact.packages)
    version = next(filter(None, found_versions), None) or _version_in(fact.soname, path)
    return replace(
        fact,
        place=str(path),
        via=found.folder.via,
        bytes=found.binary.size,
        glibc=found.binary.glibc,
        version=version,
        toolkit=found.toolkit,
    )


def _narrowed(fact: Fact, majors: Mapping[str, int | None], machine: str) -> Fact:
    """For the CUDA of those that need it: the packages that bring it, and what those ask for where it is not here."""
    row = cuda_libraries.known_library(fact.soname)
    if row is None or row.from_driver or fact.fate != "kept-out":
        return fact
    wanted = {majors.get(each) or _only_major(each) for each in fact.needed_by} - {None}
    rows = [each for each in row.packages if each.cuda in wanted] or list(row.packages)
    floors = []
    for major in dict.fromkeys(each.cuda for each in rows):
        glibcs = [each.glibc[machine] for each in rows if each.cuda == major and machine in each.glibc]
        floors += [min(glibcs, key=versions.key)] if glibcs else []
    return replace(
        fact,
        packages=tuple(dict.fromkeys(each.name for each in rows)),
        cuda=tuple(sorted({each.cuda for each in rows if each.cuda})),
        # What is here tells more than the table: it is what the wheel was linked with.
        glibc=fact.glibc if fact.place else max(floors, key=versions.key, default=None),
    )


def _only_major(name: str) -> int | None:
    """The CUDA major of one of NVIDIA's own libraries, where its name tells."""
    row = cuda_libraries.known_library(name)
    return row.majors[0] if row and len(row.majors) == 1 else None


def _version_in(soname: str, path: Path) -> str | None:
    """libcublas.so.12 that is a link to libcublas.so.12.9.1.4 is of 12.9.1.4."""
    try:
        name = path.resolve().name
    except OSError:
        return None
    rest = name.removeprefix(soname)
    number = soname.rpartition(".so.")[2]
    if rest == name or not re.fullmatch(r"(?:\.\d+)+", rest) or not number:
        return None
    return number + rest


def _own_folders(asker: _Asker) -> tuple[Folder, ...]:
    """Where a library itself says to look, on this machine: build machines' folders among them."""
    found = []
    for entry in asker.binary.search_path:
        if asker.outside:
            entry = _ORIGIN.sub(lambda _: posixpath.dirname(asker.binary.path), entry, count=1)  # noqa: PLW2901
        if entry.startswith("/"):
            found.append(Folder(path=Path(posixpath.normpath(entry)), via=f"the search path of {asker.name}"))
    return tuple(found)


# RPATH: where the loader looks for what a library of the wheel needs, relative to where that library is installed.


def cuda_major(binary: Binary, wanted_major: int | None) -> int | None:
    """The CUDA that it was linked with, told by a library that only one fits, its runtime, or what was asked for."""
    rows = [row for row in map(cuda_libraries.known_library, binary.needed) if row and not row.from_driver]
    shared = set.intersection(*(set(row.majors) for row in rows)) if rows else set()
    if len(shared) == 1:
        return shared.pop()
    return binary.cuda or (wanted_major if wanted_major in shared or not shared else None)


def folders_for(soname: str, major: int | None) -> tuple[str, ...]:
    """Below site-packages, where the packages of a CUDA put a library; those of every CUDA where it is not known."""
    row = cuda_libraries.known_library(soname)
    if row is None:
        return ()
    fitting = [each.folder for each in row.packages if each.folder and major in (None, each.cuda)]
    return tuple(dict.fromkeys(fitting or [each.folder for each in row.packages if each.folder]))


def search_path_of(
    binary: Binary,
    inside: Mapping[str, Sequence[str]],
    kept_out: Callable[[str], bool],
    wanted_major: int | None = None,
) -> SearchPath | None:
    """The path of one library of the wheel; None where nobody knows where it will be installed.

    `inside`: soname → the paths in the wheel that have it. `kept_out`: whether a library comes from elsewhere.
    """
    place = installed_path(binary.path)
    if place is None:
        return None
    here = posixpath.dirname(place)
    major = cuda_major(binary, wanted_major)
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


def leads_to(binary: Binary, path: str) -> bool:
    """Whether the library's search path leads to a file of the wheel."""
    place, target = installed_path(binary.path), installed_path(path)
    if place is None or target is None:
        return False
    here = posixpath.dirname(place)
    entries = {_reached(each, here) for each in binary.search_path if _ORIGIN.match(each)}
    return posixpath.dirname(target) in entries


def _to_inside(binary: Binary, here: str, inside: Mapping[str, Sequence[str]], reached: Iterable[str]) -> Iterator[str]:
    reached_folders = set(reached)
    for soname in binary.needed:
        if packages.from_system(soname):  # the system's comes first; who wants another leads to it himself
            continue
        places = [place for path in inside.get(soname, ()) if (place := installed_path(path))]
        folders = [posixpath.dirname(each) for each in places]
        if not folders or reached_folders & set(folders):
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


# NVIDIA's packages as requirements of a wheel: of the CUDA that it was linked with, and of no other.


def requirements_of(found: Contents, sorted_: Sorted, request: RepairRequest) -> tuple[tuple[str, ...], list[Finding]]:
    """Requirements of a wheel and of what is grafted into it, where that was asked for."""
    if not request.requires:
        return (), []
    asking = (*found.binaries, *sorted_.grafted.values())
    return _wanted(asking, sorted_.facts, request, found.distribution.requires)


def _wanted(
    binaries: Iterable[Binary], facts: Iterable[Fact], request: RepairRequest, required: Sequence[str]
) -> tuple[tuple[str, ...], list[Finding]]:
    """The lines to add, and what stands against them. `required`: what the wheel requires already."""
    kept = {each.soname: each for each in facts if each.fate == "kept-out" and not each.indirect}
    lines: set[str] = set()
    majors: set[int] = set()
    findings: list[Finding] = []
    unclear: list[str] = []
    wanted_major = request.cuda_major
    for binary in binaries:
        major = cuda_major(binary, wanted_major)
        own = (each for each in binary.toolkits if versions.major(each) == major)
        compiled_with = max(own, key=versions.key, default=request.cuda_release)
        for fact in (kept[each] for each in binary.needed if each in kept):
            row = cuda_libraries.known_library(fact.soname)
            if row is None or row.from_driver:
                continue
            if major is None:
                unclear.append(fact.soname)
            elif wanted_major in (None, major):
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
        return finding(
            "cuda-unclear",
            "it is not known which CUDA its libraries are for, so neither are the packages to require",
            evidence=tuple(dict.fromkeys(unclear)),
        )
    names = " and ".join(str(each) for each in sorted(majors))
    return finding(
        "several-cudas",
        f"the wheel has libraries for CUDA {names}; requiring the packages of each would install them all",
    )
