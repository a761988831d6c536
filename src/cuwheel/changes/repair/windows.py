"""What repairing a wheel for Windows would do, decided by looking alone.

Windows has no search path in a library: Python code adds folders before the first DLL is loaded. delvewheel writes that
for what it copies into the wheel; for NVIDIA's DLLs, in the environment's packages, it is done here.
"""

from __future__ import annotations

import ast
import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.changes.repair import objections, paths, policies, requirements, search, sorting
from cuwheel.changes.repair.contents import CALL_MODULE
from cuwheel.changes.repair.decision import Decision, SearchPath
from cuwheel.changes.stamp.guard_call import Call, with_call
from cuwheel.support.finding import Finding
from cuwheel.wheel.file import installed_path, package_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.repair.contents import Binary, Contents
    from cuwheel.changes.repair.decision import Wish
    from cuwheel.changes.repair.sorting import Sorted
    from cuwheel.facts.rows.libraries import Package
    from cuwheel.wheel.edit import WheelEdit
    from cuwheel.wheel.file import WheelFile

MODULE = CALL_MODULE.removesuffix(".py")
_CALL = Call(
    module=MODULE,
    line=f"from .{MODULE} import add as _cuwheel_add; _cuwheel_add(); del _cuwheel_add",
    why="put here by cuwheel repair: NVIDIA's DLLs are found in this environment's packages",
    hint="build the wheel again from sources that are valid Python",
)
_TEMPLATE = Path(__file__).with_name("dll_folders_call.py")
_FOLDERS = "FOLDERS: tuple[str, ...] = ()"


def decide(found: Contents, wish: Wish, machine: str, standing: Sequence[Finding]) -> Decision:
    searcher = search.Searcher(search.windows_folders(wish.libraries, os.environ), machine)
    sorted_ = sorting.sort(found, wish, searcher, policies.windows(found.name, machine))
    required, doubts = requirements.of(found, sorted_, wish)
    ways = tuple(_ways(found, sorted_, wish, machine))
    findings = (*standing, *doubts, *objections.of_needs(found, sorted_.facts, wish), *_not_led(found, ways))
    there = tuple(each for each in ways if each.path in found.members)
    changes = {
        "libraries": bool(sorted_.grafted),
        "DLL folders": any(each.changes for each in there),
        "requirements": bool(required),
    }
    return Decision(
        wheel=found.wheel,
        wish=wish,
        file_name=found.wheel.name,
        machine=machine,
        policy=None,
        because=(),
        platforms=found.platforms,
        libraries=sorted_.facts,
        paths=there,
        requires=required,
        excluded=tuple(sorting.excluded(sorted_)),
        folders=tuple(each.path for each in searcher.folders),
        changes=tuple(what for what, needed in changes.items() if needed),
        bytes_before=found.size,
        bundled=sum(each.bytes for each in sorted_.facts if each.fate == "kept-out"),
        findings=tuple(dict.fromkeys(findings)),
        windows=True,
    )


def _ways(found: Contents, sorted_: Sorted, wish: Wish, machine: str) -> Iterator[SearchPath]:
    """One for each package that has a library which needs a folder: its `__init__.py`.

    What delvewheel copies, or has copied, serves all of them; it adds the folder for that itself.
    """
    kept = {each.soname for each in sorted_.facts if each.fate == "kept-out"}
    inside = paths.inside_of(found.binaries)
    copies = f"{found.name.name}.libs"
    wanted: dict[str, dict[str, None]] = {}
    shared: dict[str, None] = {}
    for binary in (*found.binaries, *sorted_.grafted.values()):
        place = installed_path(binary.path) if binary.path in found.members else f"{copies}/"
        if place is None:
            continue
        copied = posixpath.dirname(place) == copies
        needs = shared if copied else wanted.setdefault(_init(found, place), {})
        needs.update(dict.fromkeys(_folders_of(binary, kept, inside, wish, machine)))
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
    binary: Binary, kept: set[str], inside: dict[str, list[str]], wish: Wish, machine: str
) -> Iterator[str]:
    """Below site-packages. Beside the library itself Windows looks anyway."""
    major = paths.cuda_major(binary, wish.cuda_major)
    here = posixpath.dirname(installed_path(binary.path) or "")
    for name in binary.needed:
        if name in kept:
            yield from folders_for(name, major, machine)
        elif places := [posixpath.dirname(place) for path in inside.get(name, ()) if (place := installed_path(path))]:
            yield from () if here in places else sorted(places)[:1]


def folders_for(name: str, major: int | None, machine: str) -> tuple[str, ...]:
    """Where the packages of a CUDA put a DLL; those of every CUDA where it is not known."""
    row = paths.known(name)
    rows = [each for each in row.packages if each.dll_folder] if row else []
    fitting = [each for each in rows if major in (None, each.cuda)] or rows
    return tuple(dict.fromkeys(_folder(each, machine) for each in fitting))


def _folder(package: Package, machine: str) -> str:
    return package.dll_folder_arm64 if machine == "aarch64" and package.dll_folder_arm64 else package.dll_folder


def _not_led(found: Contents, ways: Sequence[SearchPath]) -> Iterator[Finding]:
    for each in ways:
        if each.path not in found.members:
            where = f"the package {posixpath.dirname(each.path)}" if "/" in each.path else "a module at the top"
            yield Finding(
                rule="dll-folders-not-added",
                severity="warning",
                message=f"{where} has no __init__.py, so nothing tells Windows where the DLLs that it needs are",
                evidence=each.after,
                fix="move the library into a package with an __init__.py, or add the folders in your own code",
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
