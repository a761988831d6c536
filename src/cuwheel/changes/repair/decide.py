"""What repairing a wheel would do, decided by looking alone."""

from __future__ import annotations

import ast
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.repair import contents, objections, policies
from cuwheel.changes.repair.answer import Fact, Fate, RepairedWheel, SearchPath
from cuwheel.changes.repair.contents import CALL_MODULE, Binary, Contents, Searcher, read_contents
from cuwheel.changes.repair.needs import (
    Sorted,
    cuda_major,
    excluded,
    inside_of,
    requirements_of,
    search_path_of,
    sort_needs,
)
from cuwheel.changes.repair.policies import Policy
from cuwheel.changes.stamp.guard import Call, with_call
from cuwheel.support.finding import finding
from cuwheel.wheel.file import WheelFile, installed_path, package_folder
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.tags import platform_of

if TYPE_CHECKING:
    from cuwheel.changes.repair.request import RepairRequest
    from cuwheel.wheel.edit import WheelEdit
    from cuwheel_core.facts.rows.cuda_libraries import Package


class Decision(RepairedWheel, frozen=True, kw_only=True):
    """The answer as it will be, and what `execute` goes by. Nothing to do: `changes` is empty and `refused` false.

    `before`: what is in the wheel. `excluded`: what auditwheel is told to leave out. `folders`: where it looks.
    """

    request: RepairRequest
    before: Contents
    file_name: str
    excluded: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def refused(self) -> bool:
        return self.outcome == "refused"

    @property
    def windows(self) -> bool:
        """Whether there are Windows libraries to repair."""
        return self.machine is not None and self.before.windows

    def of(self, fate: Fate) -> tuple[Fact, ...]:
        return tuple(each for each in self.libraries if each.fate == fate)

    def answer(
        self,
        output: Path | None = None,
        *,
        bytes_after: int | None = None,
        grafted: tuple[str, ...] = (),
        findings: tuple[Finding, ...] = (),
    ) -> RepairedWheel:
        """`output`: where it was written, or would be. `findings`: what writing met."""
        foreseen = RepairedWheel(**{name: getattr(self, name) for name in RepairedWheel.__struct_fields__})
        return replace(
            foreseen,
            output=str(output) if output else None,
            bytes_after=bytes_after,
            grafted=grafted,
            findings=(*self.findings, *findings),
        )


def decide(wheel: Path, request: RepairRequest) -> Decision:
    """Raises if the wheel is not sound. Everything that prevents a repair is in the findings, all at once."""
    found = read_contents(wheel, hashes=True)
    standing = objections.objections_to(found)
    machine = found.binaries[0].machine if found.binaries else None
    if machine is None or any(each.severity == "error" for each in standing):
        # Nothing to repair, or nothing that can be.
        return _decision(found, request, machine, standing)
    if found.windows:
        return _decide_for_windows(found, request, machine, standing)
    named = {each.path: each.search_path for each in found.binaries}
    searcher = contents.Searcher(contents.folders(request.libraries, named, os.environ, machine), machine)
    choice = _chosen(found, request, searcher, machine)
    required, doubts = requirements_of(found, choice.sorted, request)
    ways = tuple(_paths(found, choice.sorted, request))
    return _decision(
        found,
        request,
        machine,
        (*standing, *choice.findings, *doubts, *objections.objections_to_needs(found, choice.sorted.facts, request)),
        choice=choice,
        paths=ways,
        requires=required,
        folders=tuple(each.path for each in searcher.folders),
        changes=tuple(_changes(found, choice, ways, required)),
    )


def _decision(
    found: Contents,
    request: RepairRequest,
    machine: str | None,
    findings: Sequence[Finding],
    *,
    choice: _Choice | None = None,
    paths: tuple[SearchPath, ...] = (),
    requires: tuple[str, ...] = (),
    folders: tuple[Path, ...] = (),
    changes: tuple[str, ...] = (),
) -> Decision:
    facts = choice.sorted.facts if choice else ()
    tags = choice.platforms if choice else found.platforms
    policy = choice.policy.name if choice and not found.windows else None
    refused = any(each.severity == "error" for each in findings)
    return Decision(
        wheel=str(found.wheel),
        outcome="refused" if refused else "repaired" if changes else "unchanged",
        machine=machine,
        policy=policy,
        because=choice.because if choice else (),
        tags=tags,
        output=None,
        bytes_before=found.size,
        bytes_after=None,
        bundled=sum(each.bytes for each in facts if each.fate == "kept-out"),
        changes=changes,
        grafted=(),
        requires=requires,
        libraries=facts,
        paths=paths,
        findings=tuple(dict.fromkeys(findings)),
        request=request,
        before=found,
        file_name=str(found.name._replace(platform=".".join(tags))) if policy else found.wheel.name,
        excluded=tuple(excluded(choice.sorted)) if choice else (),
        folders=folders,
    )


class _Choice(Struct, frozen=True, kw_only=True):
    """A policy, what it makes of the libraries, and why no lower one holds."""

    policy: Policy
    sorted: Sorted
    platforms: tuple[str, ...]
    because: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def _chosen(found: Contents, request: RepairRequest, searcher: Searcher, machine: str) -> _Choice:
    """The lowest policy that holds, or the one asked for. A wheel that was tagged keeps its tags if they hold."""
    known = policies.policies(machine)
    candidates = (policies.find(request.policy, machine),) if request.policy else known
    because: tuple[str, ...] = ()
    for policy in candidates:
        sorted_ = sort_needs(found, request, searcher, policy)
        problems = tuple(unfit(policy, found, sorted_))
        if not problems:
            break
        because = problems
    choice = _Choice(policy=policy, sorted=sorted_, platforms=policy.platforms(machine), because=because)
    if problems:
        newest = policy.name == known[-1].name
        unfit_finding = finding(
            "policy-unfit",
            f"the wheel cannot be {policy.name}" + (", the newest that auditwheel knows" if newest else ""),
            evidence=tuple(problems[:6]),
            fix="build on an older system (a manylinux image)" + ("" if newest else ", or choose a newer policy"),
        )
        return replace(choice, because=(), findings=(unfit_finding,))
    claimed = None if request.policy else _claimed(found, machine)
    if claimed is None:
        return choice
    if not versions.at_least(claimed, policy.glibc):
        return replace(choice, findings=objections.too_low(found, policy, because))
    reached = [each for each in known if versions.at_least(claimed, each.glibc)][-1]
    sorted_again = sort_needs(found, request, searcher, reached)
    return _Choice(policy=reached, sorted=sorted_again, platforms=found.platforms)


def unfit(policy: Policy, found: Contents, sorted_: Sorted) -> Iterator[str]:
    """What does not hold under a policy, in words."""
    for binary in (*found.binaries, *sorted_.grafted.values()):
        lacks = sorted(policy.lacks(binary.versions), key=lambda each: versions.key(each.partition("_")[2]))
        if lacks:
            yield f"{binary.path} needs {lacks[-1]}"
        for soname in binary.needed:
            if taken := sorted(policy.forbidden.get(soname, frozenset()) & binary.undefined):
                yield f"{binary.path} needs {taken[0]} of {soname}, which not every such machine provides"
    for fact in sorted_.facts:
        if fact.fate == "kept-out" and fact.glibc and not versions.at_least(policy.glibc, fact.glibc):
            where = "kept out" if not fact.indirect else "needed by what is kept out"
            yield f"{fact.soname} ({where}) needs glibc {fact.glibc}"


def _claimed(found: Contents, machine: str) -> str | None:
    """The least glibc that the wheel's own tags ask for, if all of them are manylinux tags of its machine."""
    claims = []
    for platform in found.platforms:
        said = platform_of(platform)
        if said.glibc is None or said.cpu != machine:
            return None
        claims.append(said.glibc)
    return min(claims, key=versions.key)


def _paths(found: Contents, sorted_: Sorted, request: RepairRequest) -> Iterator[SearchPath]:
    grafted = {each.soname for each in sorted_.facts if each.fate == "grafted"}
    inside: dict[str, list[str]] = inside_of(found.binaries)
    for soname in grafted:
        inside.setdefault(soname, []).append(f"{found.name.name}.libs/{soname}")
    kept = {each.soname for each in sorted_.facts if each.fate == "kept-out"}
    for binary in found.binaries:
        if way := search_path_of(binary, inside, kept.__contains__, request.cuda_major):
            yield way


def _changes(found: Contents, choice: _Choice, ways: Sequence[SearchPath], required: Sequence[str]) -> Iterator[str]:
    if choice.platforms != found.platforms:
        yield "tag"
    if choice.sorted.grafted or any(each.fate == "removed" for each in choice.sorted.facts):
        yield "libraries"
    if any(each.changes for each in ways):
        yield "search paths"
    if required:
        yield "requirements"


# Windows has no search path in a library: Python code adds folders before the first DLL is loaded. delvewheel writes
# that for what it copies into the wheel; for NVIDIA's DLLs, in the environment's packages, it is done here.

MODULE = CALL_MODULE.removesuffix(".py")
_CALL = Call(
    module=MODULE,
    line=f"from .{MODULE} import add as _cuwheel_add; _cuwheel_add(); del _cuwheel_add",
    why="put here by cuwheel repair: NVIDIA's DLLs are found in this environment's packages",
    hint="build the wheel again from sources that are valid Python",
)
_TEMPLATE = Path(__file__).with_name("dll_folders_call.py")
_FOLDERS = "FOLDERS: tuple[str, ...] = ()"


def _decide_for_windows(found: Contents, request: RepairRequest, machine: str, standing: Sequence[Finding]) -> Decision:
    searcher = contents.Searcher(contents.windows_folders(request.libraries, os.environ), machine)
    policy = policies.windows(found.name, machine)
    sorted_ = sort_needs(found, request, searcher, policy)
    required, doubts = requirements_of(found, sorted_, request)
    ways = tuple(_ways(found, sorted_, request, machine))
    unchanged = tuple(each for each in ways if each.path in found.members)
    changes = {
        "libraries": bool(sorted_.grafted),
        "DLL folders": any(each.changes for each in unchanged),
        "requirements": bool(required),
    }
    return _decision(
        found,
        request,
        machine,
        (
            *standing,
            *doubts,
            *objections.objections_to_needs(found, sorted_.facts, request),
            *_without_init(found, ways),
        ),
        choice=_Choice(policy=policy, sorted=sorted_, platforms=found.platforms),
        paths=unchanged,
        requires=required,
        folders=tuple(each.path for each in searcher.folders),
        changes=tuple(what for what, needed in changes.items() if needed),
    )


def _ways(found: Contents, sorted_: Sorted, request: RepairRequest, machine: str) -> Iterator[SearchPath]:
    """One for each package that has a library which needs a folder: its `__init__.py`.

    What delvewheel copies, or has copied, serves all of them; it adds the folder for that itself.
    """
    kept = {each.soname for each in sorted_.facts if each.fate == "kept-out"}
    inside = inside_of(found.binaries)
    copies = f"{found.name.name}.libs"
    wanted: dict[str, dict[str, None]] = {}
    shared: dict[str, None] = {}
    for binary in (*found.binaries, *sorted_.grafted.values()):
        place = installed_path(binary.path) if binary.path in found.members else f"{copies}/"
        if place is None:
            continue
        copied = posixpath.dirname(place) == copies
        needs = shared if copied else wanted.setdefault(_init(found, place), {})
        needs.update(dict.fromkeys(_folders_of(binary, kept, inside, request, machine)))
    for init, own in wanted.items():
        if folders := [each for each in (*own, *shared) if each != copies]:
            before = written_folders(found.call_modules.get(posixpath.dirname(init), b""), _package(init))
            yield SearchPath(path=init, before=before, after=tuple(dict.fromkeys((*before, *folders))))


def _init(found: Contents, place: str) -> str:
    """The file that Python runs first of the packages around a library; where none has one, it is not in the wheel."""
    parts = place.split("/")[:-1]
    around = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
    folder = next((each for package in around if (each := package_folder(found.members, package))), None)
    return f"{folder if folder is not None else ''.join(f'{each}/' for each in parts[:1])}__init__.py"


def _folders_of(
    binary: Binary, kept: set[str], inside: dict[str, list[str]], request: RepairRequest, machine: str
) -> Iterator[str]:
    """Folders below site-packages. Windows looks beside the library itself anyway."""
    major = cuda_major(binary, request.cuda_major)
    here = posixpath.dirname(installed_path(binary.path) or "")
    for name in binary.needed:
        if name in kept:
            # Where the packages of a CUDA put a DLL; those of every CUDA where it is not known.
            row = cuda_libraries.known_library(name)
            rows = [each for each in row.packages if each.dll_folder] if row else []
            fitting = [each for each in rows if major in (None, each.cuda)] or rows
            yield from dict.fromkeys(_folder(each, machine) for each in fitting)
        elif places := [posixpath.dirname(place) for path in inside.get(name, ()) if (place := installed_path(path))]:
            yield from () if here in places else sorted(places)[:1]


def _folder(package: Package, machine: str) -> str:
    return package.dll_folder_arm64 if machine == "aarch64" and package.dll_folder_arm64 else package.dll_folder


def _without_init(found: Contents, ways: Sequence[SearchPath]) -> Iterator[Finding]:
    for each in ways:
        if each.path not in found.members:
            where = f"the package {posixpath.dirname(each.path)}" if "/" in each.path else "a module at the top"
            yield finding(
                "dll-folders-not-added",
                f"{where} has no __init__.py, so nothing tells Windows where the DLLs that it needs are",
                evidence=each.after,
            )


def written_folders(module: bytes, package: str) -> tuple[str, ...]:
    """What an earlier repair wrote into the folder of a package; nothing where it is none of ours."""
    try:
        body = ast.parse(module).body
        rows = (each.value for each in body if isinstance(each, ast.Assign) and _name(each) == "FOLDERS")
        value = ast.literal_eval(next(rows))
    except (StopIteration, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    entries = (each for each in value if isinstance(each, str)) if isinstance(value, tuple) else ()
    return tuple(posixpath.normpath(posixpath.join(package, each)) for each in entries)


def _package(init: str) -> str:
    """The folder of an `__init__.py` below site-packages."""
    return posixpath.dirname(installed_path(init) or init)


def _name(statement: ast.Assign) -> str:
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def add_folders(edit: WheelEdit, wheel: WheelFile, ways: Sequence[SearchPath]) -> None:
    """Into each package, before anything of its own runs: a module, and its call."""
    for each in ways:
        if each.changes:
            folder = each.path.removesuffix("__init__.py")
            package = _package(each.path)
            rows = "".join(f"    {posixpath.relpath(entry or '.', package)!a},\n" for entry in each.after)
            text = _TEMPLATE.read_text(encoding="utf-8").replace(_FOLDERS, f"FOLDERS = (\n{rows})")
            edit.add(f"{folder}{MODULE}.py", text.encode())
            edit.replace(each.path, with_call(wheel.read(each.path), each.path, _CALL))
