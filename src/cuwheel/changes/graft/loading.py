"""Whether the system's own loader takes a new library, where it took the old one. None of its code is run."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.device_code import elf
from cuwheel.device_code.pe import Pe
from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.support import process
from cuwheel.support.buffer import FileBuffer

if TYPE_CHECKING:
    from cuwheel.changes.graft.subject import Subject

_SECONDS = 120.0
_TAKEN = (0, 2)  # of `ld.so --verify`: a program, a library


def must_load(base: Subject, written: Path) -> None:
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


_BUG = "nothing was written; this is a bug in cuwheel: please report it"


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
    """All but those of parts of a segment that was executable and stays so."""
    done = process.run([lint, "--gnu-ld", str(path)], timeout=_SECONDS, check=False)
    lines = [line for line in done.stdout.splitlines() if line.strip() and line.strip() != "No errors"]
    return [line for line in lines if "is executable but contains no executable sections" not in line]
