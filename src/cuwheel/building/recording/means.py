"""How this machine can record: by a library that programs load, by watching them as a debugger, or by stand-ins."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.building.recording import native, shadow, windows_programs, windows_shadow
from cuwheel.errors import ToolError, ToolTimeoutError, UnreadableError, UsageError
from cuwheel.support import files, log, own_c, process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.building.recording.instructions import Wish
    from cuwheel.building.recording.windows_programs import Programs

# `preload`: Linux. `watch`: Windows. `path`: stand-ins before PATH and in shadows of toolkits.
Way: TypeAlias = Literal["preload", "watch", "path"]

_KEEP, _KEEP_QUIET, _TRY = "--cuwheel-keep", "--cuwheel-keep-quiet", "--cuwheel-try"
_IT_WORKS = 7  # as in windows/watch.c
_ANSWER_S = 30
_CACHE_HINT = "choose another folder with CUWHEEL_CACHE"


class Means(Struct, frozen=True, kw_only=True):
    """`keeper`: runs the recorded command. `stand_in`: is put where compilers are looked for."""

    way: Way
    home: Path
    keeper: Path
    stand_in: Path
    library: Path | None = None

    def led(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment in which calls are seen."""
        if self.library:
            before = environ.get("LD_PRELOAD")
            return {**environ, "LD_PRELOAD": f"{self.library}:{before}" if before else str(self.library)}
        if self.way == "watch":
            return dict(environ)
        make = windows_shadow.led if os.name == "nt" else shadow.led
        with files.errors_of(self.home, _CACHE_HINT):
            return make(self.home, self.stand_in, environ)

    def keeping(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command run by the keeper."""
        return (str(self.keeper), _KEEP, *command)


def quiet(command: tuple[str, ...]) -> tuple[str, ...]:
    """The same with its stdout on stderr."""
    if os.name != "nt":
        return ("/bin/sh", "-c", 'exec "$@" >&2', "sh", *command)
    return tuple(_KEEP_QUIET if word == _KEEP and index == 1 else word for index, word in enumerate(command))


def choose(environ: Mapping[str, str], wish: Wish) -> Means:
    try:
        return (_on_windows if os.name == "nt" else _on_posix)(environ, wish)
    except OSError as error:
        raise UnreadableError.from_os(error, hint=_CACHE_HINT) from error


def _on_posix(environ: Mapping[str, str], wish: Wish) -> Means:
    if wish.way == "watch":
        raise UsageError("--way watch is for Windows", hint="use --way preload, or leave it out")
    cache = files.cache_folder()
    home = own_c.home(cache)
    made = native.built(cache, environ)
    shim = made.shim if made else native.in_python(home)
    if not made and not native.steps_aside(shim):
        raise UnreadableError(home, "programs cannot be run from it", hint=_CACHE_HINT)
    library = made.library if made and wish.way != "path" else None
    if wish.way == "preload" and not library:
        raise ToolError(
            ["cc"],
            "cannot make a library that this machine's programs load",
            hint="use --way path, which does not need it",
        )
    return Means(way="preload" if library else "path", home=home, keeper=shim, stand_in=shim, library=library)


def _on_windows(_environ: Mapping[str, str], wish: Wish) -> Means:
    if wish.way == "preload":
        raise UsageError("--way preload is for Linux", hint="use --way watch, or leave it out")
    programs = windows_programs.shipped()
    if programs is None:
        raise UnreadableError(
            windows_programs.SOURCES,
            "has no programs for Windows that were made from its sources",
            hint="pip install --force-reinstall cuwheel; from a checkout: ./run windows, on Linux",
        )
    if wish.way == "watch" and wish.changes_calls:
        raise UsageError("--way watch cannot change calls of nvcc", hint="use --way path")
    watches = wish.way != "path" and not wish.changes_calls and _can_watch(programs)
    if wish.way == "watch" and not watches:
        raise ToolError([str(programs.watch)], "cannot watch processes on this machine", hint="use --way path")
    home = files.cache_folder()
    return Means(way="watch" if watches else "path", home=home, keeper=programs.watch, stand_in=programs.nvcc)


def _can_watch(programs: Programs) -> bool:
    """Tried with a process of our own: guards of a machine may refuse debuggers, or handles of other processes."""
    with contextlib.suppress(ToolError, ToolTimeoutError):
        done = process.run([programs.watch, _TRY], timeout=_ANSWER_S, check=False)
        if done.status == _IT_WORKS:
            return True
        log.debug("watching processes does not work here: status %d", done.status)
    return False
