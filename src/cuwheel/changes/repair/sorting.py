"""What becomes of each library that a wheel needs: kept out, grafted, inside, of the system, or missing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.repair import paths, policies
from cuwheel.changes.repair.contents import Binary, Contents
from cuwheel.changes.repair.decision import Fact, Wish
from cuwheel.changes.repair.policies import Policy
from cuwheel.changes.repair.search import Folder, Searcher
from cuwheel.facts import packages, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.changes.repair.search import Found

_LIBPYTHON = re.compile(r"libpython\d+\.\d+m?\.so(?:\.\d)*")
_ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?=/|$)")


class Sorted(Struct, frozen=True, kw_only=True):
    """`grafted`: soname → the file that is copied into the wheel."""

    facts: tuple[Fact, ...]
    grafted: Mapping[str, Binary]


class _Walk(Struct, kw_only=True):
    contents: Contents
    wish: Wish
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


def sort(contents: Contents, wish: Wish, searcher: Searcher, policy: Policy) -> Sorted:
    """Everything that is needed under a policy, by those in the wheel, those grafted, and NVIDIA's that were found."""
    inside = paths.inside_of(contents.binaries)
    walk = _Walk(contents=contents, wish=wish, searcher=searcher, policy=policy, inside=inside)
    waiting = [_Asker(binary=each, name=each.path) for each in contents.binaries]
    while waiting:
        asker = waiting.pop(0)
        for soname in asker.binary.needed:
            waiting += _need(walk, soname, asker)
    order = ("missing", "kept-out", "grafted", "removed", "inside", "system")
    askers = {**{each.path: each for each in contents.binaries}, **walk.grafted}
    majors = {name: paths.cuda_major(each, wish.cuda_major) for name, each in askers.items()}
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
    if reason := asked_for(soname, walk.wish.exclude):
        return _kept_out(walk, fact, asker, reason)
    places = () if asker.indirect else walk.inside.get(soname, ())
    if places and (not packages.from_system(soname) or any(paths.leads(asker.binary, each) for each in places)):
        return replace(fact, fate="inside", reason="it is in the wheel", place=places[0]), None
    if packages.component_of(soname):
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
    row = paths.known(fact.soname)
    if row and row.from_driver:
        return replace(fact, fate="kept-out", reason="it comes with the driver"), None
    cuda = paths.cuda_major(asker.binary, walk.wish.cuda_major) if row else None
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
    row = paths.known(fact.soname)
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
    """Of one of NVIDIA's own libraries, where its name tells."""
    row = paths.known(name)
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
