"""Recording a command: every compiler that it calls, however it finds it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel import files, log, masking, own_c
from cuwheel.errors import ToolError, UnreadableError, UsageError
from cuwheel.recording import (
    cachelog,
    instructions,
    layout,
    native,
    reader,
    sealing,
    session_folder,
    shadow,
    words,
)
from cuwheel.recording.instructions import Orders, Wish
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Progress", "Session", "Wish", "recording"]

_LONGEST_LINE = 1 << 26


class Progress(Struct, frozen=True, kw_only=True):
    """`running`: what is being compiled now and since how many seconds, the longest first."""

    calls_ended: int
    running: tuple[tuple[str, float], ...]


class Session:
    """A record being made. Run `command` with `environ`, then `finish`."""

    def __init__(self, folder: Path, shim: Path, command: tuple[str, ...], environ: dict[str, str], began: int) -> None:
        self.folder, self.command, self.environ = folder, command, environ
        self._shim = shim
        self._began = began
        cache_log = Path(environ.get(cachelog.VARIABLE) or Path(environ[instructions.VARIABLE], cachelog.NAME))
        self._cache_log = (cache_log, cachelog.size(cache_log))
        self._finished = False
        self._seen = 0
        self._running: dict[str, tuple[str, int]] = {}
        self._ended = 0

    def keeping_output(self, cwd: Path) -> tuple[str, ...]:
        """The command, run by the shim, which passes on what it prints and keeps the end of it in the record.

        One that cannot be found stays as it is: whoever starts it is told. A compiler runs by the shim anyway.
        """
        name = self.command[0] if self.command else ""
        found = shutil.which(str(cwd / name) if "/" in name else name, path=self.environ.get("PATH", os.defpath))
        if not name or not found or name == str(self._shim):
            return self.command
        return (str(self._shim), "--cuwheel-keep", *self.command)

    def finish(self, status: int) -> None:
        """The command has ended: with this status, negative for a signal."""
        if self._finished:
            return
        self._finished = True
        end = {"event": "finish", "ended": time.monotonic_ns() - self._began, "status": status}
        try:
            layout.append(self.folder, end)
        except OSError as error:  # a full disk, or a build that cleaned up the folder that the record was in
            log.warning("%s: the record is incomplete: %s", self.folder, error.strerror)
            return
        cache_log, start = self._cache_log
        if cachelog.size(cache_log) > start:
            record = reader.read(self.folder)
            cachelog.mark(record, cachelog.hits(cache_log, start, record.calls))

    def progress(self) -> Progress:
        """Reads only what was written since it was asked before."""
        with contextlib.suppress(OSError), (self.folder / layout.CALLS).open("rb") as file:
            file.seek(self._seen)
            for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
                if not line.endswith(b"\n"):
                    break
                self._seen += len(line)
                self._heed(line)
        now = time.monotonic_ns() - self._began
        running = sorted(self._running.values(), key=lambda each: each[1])
        return Progress(
            calls_ended=self._ended, running=tuple((label, max(now - start, 0) / 1e9) for label, start in running)
        )

    def _heed(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            event = json.loads(line)
            if event["event"] == "start":
                self._running[event["id"]] = words.label(event["name"], event["words"]), int(event["began"])
            elif event["event"] == "end":
                self._running.pop(event["id"], None)
                self._ended += 1


@contextlib.contextmanager
def recording(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, wish: Wish | None = None
) -> Iterator[Session]:
    """A new record in `folder` of a command that the caller runs: the session's, with its environment, in `cwd`."""
    wish = wish or Wish()
    folder = folder.absolute()
    with session_folder.folder() as own:
        means = _means(environ, wish)
        _begin(folder, command, environ, cwd, wish)
        began = time.monotonic_ns()
        led = _preloaded(means.library, environ) if means.library else shadow.led(means.home, means.shim, environ)
        changed = {name: value for name, value in led.items() if environ.get(name) != value and name != "LD_PRELOAD"}
        instructions.write(
            own,
            Orders(record=folder, began=began, wish=wish, library=means.library, environ=environ, led=changed),
        )
        led[instructions.VARIABLE] = str(own)
        session = Session(folder, means.shim, _through(means.shim, command, environ), led, began)
        try:
            yield session
        finally:
            if wish.masked:
                sealing.mask(folder, environ)


class _Means(Struct, frozen=True, kw_only=True):
    """`library` None: by shims on PATH."""

    home: Path
    shim: Path
    library: Path | None


def _means(environ: Mapping[str, str], wish: Wish) -> _Means:
    cache = files.cache_folder()
    home = own_c.home(cache)
    try:
        made = native.built(cache, environ)
        shim = made.shim if made else native.in_python(home)
        if not made and not native.steps_aside(shim):
            raise UnreadableError(
                home, "programs cannot be run from it", hint="choose another folder with CUWHEEL_CACHE"
            )
    except OSError as error:
        raise UnreadableError.from_os(error, hint="choose another folder with CUWHEEL_CACHE") from error
    library = made.library if made and wish.way != "path" else None
    if wish.way == "preload" and not library:
        raise ToolError(
            ["cc"],
            "cannot make a library that this machine's programs load",
            hint="use --way path, which does not need it",
        )
    return _Means(home=home, shim=shim, library=library)


def _preloaded(library: Path, environ: Mapping[str, str]) -> dict[str, str]:
    before = environ.get("LD_PRELOAD")
    return {**environ, "LD_PRELOAD": f"{library}:{before}" if before else str(library)}


def _through(shim: Path, command: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Nobody loads our library before the command itself: where that is a compiler, the shim runs it."""
    if not command or not words.tool(command[0]):
        return tuple(command)
    found = shutil.which(command[0], path=environ.get("PATH", os.defpath))
    return (str(shim), "--cuwheel-run", found, *command) if found else tuple(command)


def _begin(folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, wish: Wish) -> None:
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and records are never overwritten", hint="choose another folder")
    except OSError as error:
        raise UnreadableError.from_os(error, folder, hint="choose a writable folder with --output") from error
    try:
        _lay_out(folder, command, environ, cwd, wish)
    except (OSError, UnreadableError) as error:
        for path in (folder,) if made else tuple(folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        hint = "choose a writable folder with --output"
        reason = error.__cause__ if isinstance(error, UnreadableError) else error
        raise UnreadableError(folder, getattr(reason, "strerror", None) or str(error), hint=hint) from error


def _lay_out(folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, wish: Wish) -> None:
    for name in layout.FOLDERS:
        (folder / name).mkdir()
    variables = masking.variables(environ) if wish.masked else dict(environ)
    hide = partial(masking.known, environ=environ)
    shown_command = masking.words(command, hide) if wish.masked else list(command)
    layout.write(folder, layout.ENVIRONMENT, variables)
    layout.write(
        folder,
        layout.HEAD,
        {
            "schema": layout.SCHEMA,
            "cuwheel": __version__,
            "system": " ".join(filter(None, (platform.system(), platform.release(), platform.machine()))),
            "command": shown_command,
            "cwd": str(cwd),
            "began": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "masked": wish.masked,
        },
    )
    (folder / layout.CALLS).touch()
