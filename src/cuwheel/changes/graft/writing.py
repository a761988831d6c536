"""What was decided, written: a library beside its place, read again and held against its base; and the new wheel."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.graft import host
from cuwheel.changes.graft.answer import GRAFT_NOTE, Giver, WheelSize, note_of, read_note
from cuwheel.changes.graft.subject import Subject
from cuwheel.changes.stamp import stamp
from cuwheel.errors import UsageError
from cuwheel.support import files, limited, process, system_calls
from cuwheel.wheel import variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import output_of
from cuwheel_core.device_code import elf
from cuwheel_core.device_code.pe import Pe
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.wording import a_few

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cuwheel.changes.graft.answer import CompiledCode, Graft, GraftedLibrary, Origin
    from cuwheel.changes.graft.decide import Decision
    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.wheel.file import WheelFile

_SECONDS = 120.0
_TAKEN = (0, 2)  # of `ld.so --verify`: a program, a library
_BUG = "nothing was written; this is a bug in cuwheel: please report it with the name of the package"


def must_be_intact(wheel: WheelFile) -> None:
    """Sound, and as its RECORD says: what goes in is what was published."""
    wheel.must_be_sound("grafted")
    if wrong := wheel.wrong_hashes():
        problem = f"not grafted: these files do not match RECORD: {a_few(wrong, 3)}"
        raise MalformedError(wheel.path, problem, hint="download the wheel again")


def write_wheel(
    wheel: WheelFile,
    decisions: Sequence[Decision],
    folder: Path,
    request: GraftRequest,
    answer: Callable[..., Graft],
    *,
    givers: Sequence[WheelFile] = (),
    origin: Origin | None = None,
    compiled: tuple[CompiledCode, ...] = (),
    also: Callable[[str, Path], object] | None = None,
) -> Graft:
    """What was decided; with `dry_run` its sizes alone. `folder`: for scratch files, where the result is going to be.

    `answer`: `answer_of` with all that is known already. `origin`: of the wheel that this is a part of. `also`: what
    else must hold of each new library.
    """
    edit = WheelEdit(wheel)
    edit.rename(version=_grafted_version(wheel, decisions, origin, request.version))
    edit.label(None)  # it was of what the base had
    edit.drop([wheel.info + variant.FILE])
    output = output_of(request.output or Path(), str(edit.name), [each.path for each in (wheel, *givers)])
    if request.dry_run:
        libraries = tuple(each.library(expected_size(each)) for each in decisions)
        return answer(libraries=libraries, outputs=[output])
    libraries = tuple(_written(each, edit, folder / f"made-{index}", also) for index, each in enumerate(decisions))
    note = note_of(
        read_note(wheel),
        base=giver_of(wheel),
        donors=tuple(map(giver_of, givers)),
        libraries=libraries,
        forced=tuple(each for decision in decisions for each in decision.findings if each.severity == "warning"),
        compiled=compiled,
    )
    edit.add(wheel.info + GRAFT_NOTE, note)
    edit.write(folder / "wheel")
    made = stamp.restamp(folder / "wheel", output.name, added=[row.arch for each in libraries for row in each.added])
    size = WheelSize(bytes_before=wheel.size, bytes_after=made.stat().st_size)
    system_calls.rename_over(made, output)
    files.sync_folder(output.parent)
    return answer(libraries=libraries, outputs=[output], written=True, wheel=size)


def _written(
    decision: Decision, edit: WheelEdit, place: Path, also: Callable[[str, Path], object] | None
) -> GraftedLibrary:
    if not decision.containers:
        return decision.library(decision.base.buffer.size)
    size = write_library(decision, place, also)
    edit.replace(decision.base.name, place)
    return decision.library(size)


def giver_of(wheel: WheelFile) -> Giver:
    return Giver(file=wheel.path.name, version=wheel.distribution.version, sha256=files.sha256(wheel.path))


# What new wheels are called.


def _grafted_version(wheel: WheelFile, decisions: Sequence[Decision], origin: Origin | None, asked: str | None) -> str:
    """The one asked for; that of the whole, where all its parts are together; else with a label for what was added."""
    if asked:
        return _checked(asked, None)
    added = dict.fromkeys(str(each.entry.arch) for decision in decisions for each in decision.added)
    if origin and _complete(decisions, origin):
        return _checked(origin.version, wheel)
    return labelled(wheel, [each for each in added if each.startswith("sm_")] or added)


def _complete(decisions: Sequence[Decision], origin: Origin) -> bool:
    in_base = {
        str(each.entry.arch)
        for decision in decisions
        for number, held in enumerate(decision.base.held)
        for each in decision.containers.get(number, held)
    }
    return set(origin.archs) <= in_base


def labelled(wheel: WheelFile, archs: Iterable[str]) -> str:
    """`1.0+cu130` and sm_87 → `1.0+cu130.sm87`."""
    version = _checked(wheel.distribution.version, wheel)
    label = ".".join(re.sub(r"[^a-z0-9]", "", each) for each in archs)
    return f"{version}{'.' if '+' in version else '+'}{label}"


def _checked(version: str, wheel: WheelFile | None) -> str:
    try:
        return str(limited.version(version))
    except InvalidVersion as error:
        if wheel is None:
            raise UsageError(f"--version {version}: {error}", hint="such as --version 2.11.0+sm87") from error
        raise MalformedError(wheel.path, f"{version!r} is not a version", hint="download the wheel again") from error


# A library as it was decided: written beside, read again, held against the plan and against the base.


def expected_size(decision: Decision) -> int:
    """The size of the library that would be written."""
    if not decision.containers:
        return decision.base.buffer.size
    return rewrite.draft_grown(
        decision.base.buffer, decision.contents, None, drop_signature=decision.base.drop_signature
    ).size


def write_library(decision: Decision, target: Path, also: Callable[[str, Path], object] | None = None) -> int:
    """The new library at `target`; its size. `also`: raises for one, by its name, that is wrong in yet another way."""
    base = decision.base

    def must_hold(beside: Path) -> None:
        with Subject(beside, base.name) as made:
            wanted = [
                [each.code for each in decision.containers.get(number, held)] for number, held in enumerate(base.held)
            ]
            found = [[each.code for each in made.held[number]] for number in made.order]
            if [wanted[number] for number in base.order] != found:
                raise MalformedError(base.name, "the new file does not hold what was planned", hint=_BUG)
            if differs := host.difference(base, made):
                raise MalformedError(base.name, f"the new file's host side is not the base's: {differs}", hint=_BUG)
        _must_load(base, beside)
        if also:
            also(base.name, beside)

    return rewrite.grow_library(
        base.path, base.buffer, target, decision.contents, must_hold, drop_signature=base.drop_signature
    )


# Whether the system's own loader takes a new library, where it took the old one. None of its code is run.


def _must_load(base: Subject, written: Path) -> None:
    """Raises MalformedError where the new file is refused and the old one was not.

    Of a Windows library its loader's rules were asked when it was read again.
    """
    if isinstance(base.file, Pe):
        return
    loader = _loader() if base.elf.machine_name == platform.machine() else None
    if loader and _status(loader, base.path) in _TAKEN and _status(loader, written) not in _TAKEN:
        raise MalformedError(base.name, "the system's loader does not accept the new file", hint=_BUG)
    if lint := shutil.which("eu-elflint"):
        before, after = (_complaints(lint, each) for each in (base.path, written))
        if len(after) > len(before):
            raise MalformedError(base.name, f"eu-elflint complains of the new file: {after[0]}", hint=_BUG)


def _loader() -> str | None:
    """That of the interpreter that runs this."""
    try:
        buffer = FileBuffer(Path(sys.executable).resolve())
        try:
            return elf.interpreter(elf.read_elf(buffer))
        finally:
            buffer.close()
    except CuwheelError:
        return None


def _status(loader: str, path: Path) -> int:
    return process.run([loader, "--verify", str(path.absolute())], timeout=_SECONDS, check=False).status


def _complaints(lint: str, path: Path) -> list[str]:
    """Without two that are none here: parts of a segment that was executable and stays so; and relocations in read-only
    memory, since eu-elflint takes a slot for a function to be as long as that function, and ours stay where they were.
    """
    done = process.run([lint, "--gnu-ld", str(path)], timeout=_SECONDS, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip() and line.strip() != "No errors"]
    passed_over = (
        "is executable but contains no executable sections",
        "read-only section modified but text relocation",
    )
    return [line for line in lines if not any(each in line for each in passed_over)]
