"""The shim in Python: as shim.c, for machines without a C compiler."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from cuwheel.building.recording import words
from cuwheel.building.recording.shim.call import Call, Session
from cuwheel.building.recording.shim.streams import run_command, run_recorded

VARIABLE = "CUWHEEL_RECORD"
RUN_WORD, KEEP_WORD = "--cuwheel-run", "--cuwheel-keep"
SHIMS_MARK, TOOLKIT_LINK, PROGRAM_LINK = ".cuwheel-shims", ".cuwheel-toolkit", ".cuwheel-program"


def own_environment(session: Session | None) -> dict[str, str]:
    """The caller's environment as it would be without us."""
    environ = _given()
    environ.pop(VARIABLE, None)
    for name, _, value in (led.partition("=") for led in (session.every("led") if session else ())):
        if session and environ.get(name) == value and name in session.base:
            environ[name] = session.base[name]
    if "PATH" in environ:
        environ["PATH"] = os.pathsep.join(
            folder for folder in environ["PATH"].split(os.pathsep) if not is_shims(folder)
        )
    return environ


def _given() -> dict[str, str]:
    """As it came: Python sets LC_CTYPE for itself where the locale is C."""
    try:
        lines = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in (line.partition("=") for line in lines if line)}


def is_shims(folder: str) -> bool:
    return bool(folder) and os.path.lexists(os.path.join(folder, SHIMS_MARK))  # noqa: PTH118 - fast


def find_real(link: str) -> str | None:
    folder, name = os.path.split(link)
    with contextlib.suppress(OSError):
        return os.path.join(os.readlink(os.path.join(folder, "..", TOOLKIT_LINK)), "bin", name)  # noqa: PTH115, PTH118
    with contextlib.suppress(OSError):
        return os.readlink(os.path.join(folder, PROGRAM_LINK))  # noqa: PTH115, PTH118
    for each in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(each, name)  # noqa: PTH118
        if not is_shims(each) and os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    return None


def main(link: str, given: list[str]) -> NoReturn:
    """`link`: the path by which it was called, under the compiler's name."""
    session = None
    with contextlib.suppress(OSError, LookupError, ValueError):
        session = Session(os.environ[VARIABLE])
    if given[:1] == [KEEP_WORD]:
        run_command(session.record if session else None, given[1:])
    environ = own_environment(session)
    if given[:1] == [RUN_WORD]:
        program, argv = given[1], given[2:]
    else:
        found = find_real(link)
        if found is None:
            sys.stderr.write(f"{os.path.basename(link)}: command not found\n")  # noqa: PTH119
            sys.exit(127)
        program, argv = found, [found, *given]
    if not session or not recordable(program, argv):
        os.execve(program, argv, environ)  # noqa: S606 - no shell, no surprise
    call = Call(session, program, argv, environ)
    call.prepare()
    run_recorded(call)


def recordable(program: str, argv: list[str]) -> bool:
    kind = words.tool_kind(program)
    if kind == "cache":
        inner = words.tool_kind(argv[1]) if len(argv) > 1 else None
        return inner not in (None, "cache")
    return kind is not None
