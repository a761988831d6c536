"""Recording a command: every compiler that it calls, however it finds it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cuwheel.building.recording import calls, reader, sccache, shims, words
from cuwheel.building.recording.recorder import Recorder, choose_recorder
from cuwheel.building.recording.shims import RecordOptions, ShimOrders
from cuwheel.errors import UsageError
from cuwheel.support import files, log, masking, scratch, system_calls
from cuwheel.version import __version__
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    _Hide = Callable[[str], str]

_LONGEST_LINE = 1 << 26
_FOLDER_PREFIX = "cuwheel-record-"
_PIECE = 1 << 22
# Whose options stand in a word of their own, before the secret: only the list of words tells.
_PROGRAMS = tuple({f'{each.split()[0]}"'.encode() for each in masking.SHORT_OPTIONS})
_SINGLE = (f"-{each}" for each in masking.SINGLE_DASH)
# And response files, in which an option and its secret may stand on two lines.
_TELLING = (*_PROGRAMS, *(f'"{each}'.encode() for each in (*masking.LOGIN_OPTIONS, *_SINGLE)), b'"text"')


class Progress(Struct, frozen=True, kw_only=True):
    """`running`: what is being compiled now and since how many seconds, the longest first."""

    calls_ended: int
    running: tuple[tuple[str, float], ...]


@contextlib.contextmanager
def recording(
    folder: Path, command: Sequence[str], environ: Mapping[str, str], cwd: Path, options: RecordOptions | None = None
) -> Iterator[Session]:
    """A new record in `folder` of a command that the caller runs: the session's, with its environment, in `cwd`."""
    options = options or RecordOptions()
    folder = folder.absolute()
    if os.name == "nt":  # there `Path` is PATH
        environ = {name.upper(): value for name, value in environ.items()}
    with session_folder() as own:
        recorder = choose_recorder(environ, options)
        made = _lay_out(folder, command, environ, cwd, options, recorder)
        began = time.perf_counter_ns()
        redirected = recorder.redirected_environ(environ)
        orders = ShimOrders(
            record=folder,
            began=began,
            options=options,
            library=recorder.library,
            watch=recorder.way == "watch",
            environ=environ,
            redirected={
                name: value for name, value in redirected.items() if environ.get(name) != value and name != "LD_PRELOAD"
            },
        )
        try:
            shims.write_orders(own, orders)
        except OSError as error:
            _remove_files(folder, whole=made)
            hint = "nothing was run or recorded: make room there, or choose another folder with TMPDIR"
            raise UnreadableError.from_os(error, own, hint=hint) from error
        redirected[shims.RECORD_VARIABLE] = str(own)
        words_to_run = _through_recorder(recorder, command, environ, cwd)
        try:
            yield Session(folder, recorder, words_to_run, redirected, began)
        finally:
            if options.masked:
                mask_record(folder, environ)


def _lay_out(
    folder: Path,
    command: Sequence[str],
    environ: Mapping[str, str],
    cwd: Path,
    options: RecordOptions,
    recorder: Recorder,
) -> bool:
    """The files of a record of which nothing has happened yet; none of them where one cannot be written.

    Whether the folder is new, too.
    """
    made = not folder.exists()
    hint = "choose a writable folder with --output"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and records are never overwritten", hint="choose another folder")
    except OSError as error:
        raise UnreadableError.from_os(error, folder, hint=hint) from error
    shown_command = masking.words(command, partial(masking.known, environ=environ)) if options.masked else list(command)
    head = {
        "schema": calls.SCHEMA,
        "cuwheel": __version__,
        "system": " ".join(filter(None, (platform.system(), platform.release(), platform.machine()))),
        "command": shown_command,
        "cwd": str(cwd),
        "began": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "masked": options.masked,
        "way": recorder.way,
        "encoding": system_calls.code_page(),
    }
    try:
        for name in calls.RECORD_FOLDERS:
            (folder / name).mkdir()
        variables = masking.variables(environ) if options.masked else dict(environ)
        calls.write_json(folder, calls.ENVIRONMENT_FILE, variables)
        calls.write_json(folder, calls.HEAD_FILE, head)
        (folder / calls.CALLS_FILE).touch()
    except (OSError, UnreadableError) as error:
        _remove_files(folder, whole=made)
        reason = error.__cause__ if isinstance(error, UnreadableError) else error
        raise UnreadableError(folder, getattr(reason, "strerror", None) or str(error), hint=hint) from error
    return made


def _remove_files(folder: Path, *, whole: bool) -> None:
    for path in (folder,) if whole else tuple(folder.iterdir()):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _through_recorder(
    recorder: Recorder, command: Sequence[str], environ: Mapping[str, str], cwd: Path
) -> tuple[str, ...]:
    """Nobody loads our library before the command itself: where that is a compiler, the shim runs it.

    On Windows what is not started by the watcher is not watched.
    """
    if not command or (recorder.way != "watch" and (os.name == "nt" or not words.tool_kind(command[0]))):
        return tuple(command)
    program = _found_program(command[0], environ, cwd)
    if not program:
        return tuple(command)
    if recorder.way == "watch":
        return recorder.kept_command((program, *command[1:]))
    return (str(recorder.stand_in), "--cuwheel-run", program, *command)


def _found_program(name: str, environ: Mapping[str, str], cwd: Path) -> str | None:
    """The program that a shell would run."""
    if not name:
        return None
    with_folder = "/" in name or (os.name == "nt" and "\\" in name)
    return shutil.which(str(cwd / name) if with_folder else name, path=environ.get("PATH", os.defpath))


class Session:
    """A record being made. Run `command` with `environ`, then `finish`."""

    def __init__(
        self, folder: Path, recorder: Recorder, command: tuple[str, ...], environ: dict[str, str], began: int
    ) -> None:
        self.folder, self.command, self.environ = folder, command, environ
        self._recorder = recorder
        self._began = began
        cache_log = Path(environ.get(sccache.LOG_VARIABLE) or Path(environ[shims.RECORD_VARIABLE], sccache.LOG_NAME))
        self._cache_log = (cache_log, sccache.log_size(cache_log))
        self._finished = False
        self._seen = 0
        self._running: dict[str, tuple[str, int]] = {}
        self._ended = 0

    def keeping_output(self, cwd: Path) -> tuple[str, ...]:
        """The command, run by the shim, which passes on what it prints and keeps the end of it in the record.

        One that cannot be found stays as it is: whoever starts it is told. A compiler runs by the shim anyway.
        """
        name = self.command[0] if self.command else ""
        program = _found_program(name, self.environ, cwd)
        if not program or name == str(self._recorder.keeper):
            return self.command
        return self._recorder.kept_command((program if os.name == "nt" else name, *self.command[1:]))

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
        if sccache.log_size(cache_log) > start:
            record = reader.read_record(self.folder)
            sccache.mark_hits(record, sccache.cache_hits(cache_log, start, record.calls))

    def progress(self) -> Progress:
        """Reads only what was written since it was asked before."""
        with contextlib.suppress(OSError), (self.folder / calls.CALLS_FILE).open("rb") as file:
            file.seek(self._seen)
            for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
                if not line.endswith(b"\n"):
                    break
                self._seen += len(line)
                with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                    event = json.loads(line)
                    if event["event"] == "start":
                        label = words.call_label(event["name"], event["words"])
                        self._running[event["id"]] = label, int(event["began"])
                    elif event["event"] == "end":
                        self._running.pop(event["id"], None)
                        self._ended += 1
        now = time.perf_counter_ns() - self._began
        running = sorted(self._running.values(), key=lambda each: each[1])
        return Progress(
            calls_ended=self._ended, running=tuple((label, max(now - start, 0) / 1e9) for label, start in running)
        )


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    """Tells the shims of a session what to do, by variables as they are, secrets among them: for its owner alone, and
    gone afterwards. Those of killed sessions go first, also where the build lives on: shims without orders step aside.
    """
    place = Path(tempfile.gettempdir())

    def mask_leftover(name: str) -> None:
        """A session that was killed could not mask what its build printed: done now, by the variables that it left."""
        with contextlib.suppress(OSError):
            record, environ, masked = shims.read_orders(place / name)
            if masked and (record / calls.HEAD_FILE).is_file():
                mask_record(record, environ)

    with scratch.folder(place, _FOLDER_PREFIX, mask_leftover) as own:
        yield own


# Secrets taken out of what a build has written into its record.


def mask_record(folder: Path, environ: Mapping[str, str]) -> None:
    """All files that the shims wrote; `environ`: of the command, whose secrets may stand in anything that it printed.

    A file that holds no secret is not touched.
    """
    secrets = masking.secrets(environ)
    hide = masking.hiding(secrets)
    escaped = any(set('"\\') & set(each) or not (each.isascii() and each.isprintable()) for each in secrets.values())

    def mask_events(lines: list[bytes]) -> bytes:
        return b"".join(_masked_event(hide, line, escaped=escaped) for line in lines)

    _change_file(folder / calls.CALLS_FILE, mask_events)
    for path in (path for name in calls.RECORD_FOLDERS for path in (folder / name).glob("*")):
        _change_file(path, partial(_masked_text, hide))


def _change_file(path: Path, change: Callable[[list[bytes]], bytes]) -> None:
    """Written beside, then renamed. A secret that goes on behind the end of a line is none of those that are known."""

    def pieces() -> Iterator[list[bytes]]:
        with path.open("rb") as file:
            while lines := file.readlines(_PIECE):
                yield lines

    with contextlib.suppress(OSError, UnreadableError):
        if path.is_symlink() or not path.is_file() or not any(change(each) != b"".join(each) for each in pieces()):
            return
        with files.replacing(path) as target:
            target.writelines(map(change, pieces()))


def _masked_text(hide: _Hide, lines: list[bytes]) -> bytes:
    return hide(b"".join(lines).decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _masked_event(hide: _Hide, line: bytes, *, escaped: bool) -> bytes:
    """Inside its strings: a mask across a quote would make the line unreadable.

    `escaped`: JSON writes some secret otherwise than it is, so that only its strings tell.
    """
    if not escaped and not any(each in line for each in _TELLING) and _masked_text(hide, [line]) == line:
        return line
    try:
        event = json.loads(line)
        hidden = _masked_value(hide, event)
        return line if hidden == event else json.dumps(hidden).encode("ascii") + b"\n"
    except (ValueError, RecursionError):
        return b"\n"  # cut short by a crash, with a secret in it


def _masked_value(hide: _Hide, value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return masking.words(value, hide)
    if isinstance(value, list):
        return [_masked_value(hide, each) for each in value]
    if isinstance(value, dict) and "path" in value and isinstance(value.get("text"), str):
        return {**value, "text": masking.response_file(value["text"], hide)}
    if isinstance(value, dict):
        return {key: _masked_value(hide, each) for key, each in value.items()}
    return value
