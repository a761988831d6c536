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

from cuwheel.building.recording import cachelog, calls, instructions, reader, sealing, session_folder, words
from cuwheel.building.recording.instructions import Orders, Wish
from cuwheel.building.recording.means import choose
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.support import log, masking, system_calls
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.building.recording.means import Means

__all__ = ["Progress", "Session", "Wish", "recording"]

_LONGEST_LINE = 1 << 26


class Progress(Struct, frozen=True, kw_only=True):
    """`running`: what is being compiled now and since how many seconds, the longest first."""

    calls_ended: int
    running: tuple[tuple[str, float], ...]


class Session:
    """A record being made. Run `command` with `environ`, then `finish`."""

    def __init__(
        self, folder: Path, means: Means, command: tuple[str, ...], environ: dict[str, str], began: int
    ) -> None:
        self.folder, self.command, self.environ = folder, command, environ
        self._means = means
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
        found = _found(name, self.environ, cwd)
        if not found or name == str(self._means.keeper):
            return self.command
        return self._means.keeping((found if os.name == "nt" else name, *self.command[1:]))

    def finish(self, status: int) -> None:
        """The command has ended: with this status, negative for a signal."""
        if self._finished:
            return
        self._finished = True
        end = {"event": "finish", "ended": time.perf_counter_ns() - self._began, "status": status}
        try:
            calls.append_event(self.folder, end)
        except OSError as error:  # a full disk, or a build that cleaned up the folder that the record was in
            log.warning("%s: the record is incomplete: %s", self.folder, error.strerror)
            return
        cache_log, start = self._cache_log
        if cachelog.size(cache_log) > start:
            record = reader.read_record(self.folder)
            cachelog.mark(record, cachelog.hits(cache_log, start, record.calls))

    def progress(self) -> Progress:
        """Reads only what was written since it was asked before."""
        with contextlib.suppress(OSError), (self.folder / calls.CALLS_FILE).open("rb") as file:
            file.seek(self._seen)
            for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
                if not line.endswith(b"\n"):
                    break
                self._seen += len(line)
                self._heed(line)
        now = time.perf_counter_ns() - self._began
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
    if os.name == "nt":  # there `Path` is PATH
        environ = {name.upper(): value for name, value in environ.items()}
    with session_folder.folder() as own:
        means = choose(environ, wish)
        _begin(folder, command, environ, cwd, wish, means)
        began = time.perf_counter_ns()
        led = means.led(environ)
        changed = {name: value for name, value in led.items() if environ.get(name) != value and name != "LD_PRELOAD"}
        instructions.write(
            own,
            Orders(
                record=folder,
                began=began,
                wish=wish,
                library=means.library,
                watch=means.way == "watch",
                environ=environ,
                led=changed,
            ),
        )
        led[instructions.VARIABLE] = str(own)
        session = Session(folder, means, _through(means, command, environ, cwd), led, began)
        try:
            yield session
        finally:
            if wish.masked:
                sealing.mask(folder, environ)


def _through(means: Means, command: Sequence[str], environ: Mapping[str, str], cwd: Path) -> tuple[str, ...]:
    """Nobody loads our library before the command itself: where that is a compiler, the shim runs it.

    On Windows what is not started by the watcher is not watched.
    """
    if not command or (means.way != "watch" and (os.name == "nt" or not words.tool(command[0]))):
        return tuple(command)
    found = _found(command[0], environ, cwd)
    if not found:
        return tuple(command)
    if means.way == "watch":
        return means.keeping((found, *command[1:]))
    return (str(means.stand_in), "--cuwheel-run", found, *command)


def _found(name: str, environ: Mapping[str, str], cwd: Path) -> str | None:
    """The program that a shell would run."""
    if not name:
        return None
    apart = "/" in name or (os.name == "nt" and "\\" in name)
    return shutil.which(str(cwd / name) if apart else name, path=environ.get("PATH", os.defpath))


def _begin(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, wish: Wish, means: Means
) -> None:
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and records are never overwritten", hint="choose another folder")
    except OSError as error:
        raise UnreadableError.from_os(error, folder, hint="choose a writable folder with --output") from error
    try:
        _lay_out(folder, command, environ, cwd, wish, means)
    except (OSError, UnreadableError) as error:
        for path in (folder,) if made else tuple(folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        hint = "choose a writable folder with --output"
        reason = error.__cause__ if isinstance(error, UnreadableError) else error
        raise UnreadableError(folder, getattr(reason, "strerror", None) or str(error), hint=hint) from error


def _lay_out(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, wish: Wish, means: Means
) -> None:
    for name in calls.RECORD_FOLDERS:
        (folder / name).mkdir()
    variables = masking.variables(environ) if wish.masked else dict(environ)
    hide = partial(masking.known, environ=environ)
    shown_command = masking.words(command, hide) if wish.masked else list(command)
    calls.write_json(folder, calls.ENVIRONMENT_FILE, variables)
    calls.write_json(
        folder,
        calls.HEAD_FILE,
        {
            "schema": calls.SCHEMA,
            "cuwheel": __version__,
            "system": " ".join(filter(None, (platform.system(), platform.release(), platform.machine()))),
            "command": shown_command,
            "cwd": str(cwd),
            "began": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "masked": wish.masked,
            "way": means.way,
            "encoding": system_calls.code_page(),
        },
    )
    (folder / calls.CALLS_FILE).touch()
