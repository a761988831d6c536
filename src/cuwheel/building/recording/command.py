"""A command run as it is, and every compiler call of it recorded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import calls, reader, recorder, replays, session, words
from cuwheel.building.recording.calls import Call, CallState, Record, Summary, duration, is_trial, parse_call
from cuwheel.building.recording.replays import Replay
from cuwheel.errors import NotStartedError, UsageError
from cuwheel.support import files, log, process
from cuwheel.support.answer import Answer
from cuwheel_core.errors import CuwheelError, UnreadableError

if TYPE_CHECKING:
    from cuwheel.building.recording.shims import RecordOptions


_NAME = "cuwheel-record"


class Reason(Struct, frozen=True, kw_only=True):
    """A cause that `explain` found, in few words: records of builds that succeed need not know all of explain."""

    id: str
    confidence: float
    title: str
    evidence: tuple[str, ...]
    fix: tuple[str, ...]


class Failure(Struct, frozen=True, kw_only=True):
    """The first call that failed and mattered. `archs`: what it was to make code for; `output`: what it printed."""

    number: int
    command: str
    cwd: str
    state: CallState
    status: int | None
    signal: str | None
    problem: str
    files: tuple[str, ...]
    archs: tuple[str, ...]
    output: str
    causes: tuple[Reason, ...]
    replay: str
    inside: tuple[str, ...] = ()  # programs that it ran itself and that failed, and how
    compare: str = ""  # the command that finds what makes it fail in the build alone
    flags: tuple[str, ...] = ()  # variables whose words nvcc puts to those of the command, as NAME=VALUE


class LastWords(Struct, frozen=True, kw_only=True):
    """What the command itself said when it gave up. `what`: in a line; empty where nothing in it says why.

    `lines`: all of that, or the last of what it printed. `causes`: where no call is to blame.
    """

    what: str
    lines: tuple[str, ...]
    causes: tuple[Reason, ...]


class Recorded(Answer, frozen=True, kw_only=True):
    """`status`: of the command, negative for a signal; `exit_status`: the same as a shell has it.

    `failure`: the call that made it stop; None where none did. `last_words`: of a command that failed and printed any.
    """

    aside: ClassVar[bool] = True  # stdout is the command's

    schema: Literal["cuwheel.record/1"] = "cuwheel.record/1"
    folder: str
    command: tuple[str, ...]
    status: int
    exit_status: int
    masked: bool
    damaged: int
    summary: Summary
    failure: Failure | None
    last_words: LastWords | None = None
    written: tuple[str, ...] = ()
    way: str = ""  # how calls were seen: `preload`, `watch` or `path`
    comparison: Replay | None = None  # of the call that failed with this environment, where --diff asked for it

    @property
    def succeeded(self) -> bool:
        return self.exit_status == 0


class EndedCommand(Struct, frozen=True, kw_only=True):
    """The answer as far as the record tells; `tail`: the end of what the command printed, where it did not succeed."""

    answer: Recorded
    record: Record
    tail: str

    @property
    def failed(self) -> bool:
        """The command, or a call that it does not tell of."""
        return bool(self.answer.status) or calls.first_failure(self.record) is not None


def record_command(
    command: Sequence[str],
    *,
    output: Path | None,
    environ: Mapping[str, str] | None,
    cwd: Path | None,
    options: RecordOptions | None,
    quiet_stdout: bool,
) -> EndedCommand:
    """`output`: a new folder, or one that is named after those that are there."""
    folder = files.absolute(output or _new_folder(Path.cwd()))
    guard = contextlib.nullcontext() if output else _removed_if_not_begun(folder)
    cwd = files.absolute(cwd or Path.cwd())
    environ = dict(os.environ if environ is None else environ)
    with guard, session.recording(folder, command, environ, cwd, options) as running:
        line = running.keeping_output(cwd)
        if quiet_stdout:
            line = recorder.quiet_command(line)
        try:
            status = process.attend(line, env=running.environ, cwd=cwd)
        except NotStartedError as error:
            running.finish(error.exit_code)
            raise
        running.finish(status)
    record = _read(folder, status)
    answer = Recorded(
        folder=words.readable(str(folder)),
        command=tuple(map(words.readable, record.command)),
        status=status,
        exit_status=calls.shell_status(status),
        masked=record.masked,
        damaged=record.damaged,
        summary=calls.summarize(record),
        failure=None,
        way=record.way,
    )
    tail = reader.read_command_output(record) if status else ""
    return EndedCommand(answer=answer, record=record, tail=tail)


@contextlib.contextmanager
def _removed_if_not_begun(folder: Path) -> Iterator[None]:
    """A record that could not begin, of a command that there is not, leaves nothing."""
    try:
        yield
    except NotStartedError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def _new_folder(place: Path) -> Path:
    """A folder under a name that nobody has: a record is never written over, and others may record here too."""
    for number in range(1, 100_000):
        folder = place / (_NAME if number == 1 else f"{_NAME}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            hint = "choose a writable folder with --output"
            raise UnreadableError.from_os(error, folder, hint=hint) from error
        return folder
    raise UnreadableError(place, "has too many records", hint="choose a folder with --output")


def _read(folder: Path, status: int) -> Record:
    """Empty if the build removed it together with its own folder: the status is returned anyway."""
    try:
        return replace(reader.read_record(folder), status=status)
    except CuwheelError:
        return Record(
            folder=str(folder),
            command=(),
            cwd="",
            began="",
            seconds=None,
            status=status,
            environment={},
            masked=True,
            calls=(),
        )


def with_comparison(answer: Recorded, folder: Path) -> Recorded:
    """What makes the call fail that did: run again, in the build's environment and in this one."""
    if answer.failure is None:
        return answer
    try:
        return replace(answer, comparison=replays.compare_environments(f"{folder}:{answer.failure.number}"))
    except CuwheelError as error:
        log.warning("call %d cannot be compared: %s", answer.failure.number, error.message)
        return answer


def write_exports(record: Record, trace: Path | None, compile_commands: Path | None) -> Iterator[str]:
    """What could be written; a warning for what could not."""
    for path, save in ((trace, save_trace), (compile_commands, save_compile_commands)):
        try:
            if path:
                save(record, path)
                yield str(path)
        except CuwheelError as error:
            log.warning("%s", error.message)


# A record for other programs: a timeline for Chrome's and Perfetto's viewers, compile commands for editors.

_MICRO = 1e6
_CALLS, _PHASES = 1, 2  # the viewers' "processes": calls, and nvcc's inner programs


def save_trace(record: Record, path: Path) -> None:
    names = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        for number, name in ((_CALLS, "compiler calls"), (_PHASES, "inside nvcc"))
    ]
    events = [*names, *_events(record)]
    _save_json(path, {"displayTimeUnit": "ms", "otherData": {"command": list(record.command)}, "traceEvents": events})


def save_compile_commands(record: Record, path: Path) -> None:
    """Writes compile_commands.json as CMake does: clangd and other tools read how each file is compiled."""
    _save_json(path, list(_compile_commands(record)))


def _events(record: Record) -> Iterator[dict[str, Any]]:
    end = max((call.ended or call.began for call in record.calls), default=0.0)
    end = max(end, record.seconds or 0.0)
    for lane, call in _lanes(record.calls, end):
        parsed = parse_call(call)
        stopped = end if call.ended is None else call.ended
        details: dict[str, Any] = {"number": call.number, "state": call.state, "cwd": call.cwd}
        details |= {"archs": " ".join(parsed.archs)} if parsed.archs else {}
        details |= {"status": call.status} if call.status is not None else {}
        details |= {"signal": reader.signal_name(call.signal)} if call.signal is not None else {}
        details |= {"memory": call.memory} if call.memory else {}
        details |= {"cache hit": call.cache_hit} if call.cache_hit is not None else {}
        details |= {"command": [call.program, *call.words][:200]}
        name = words.call_label(call.name, call.ran or call.words)
        yield _span(name, call.tool, (call.began, stopped - call.began), (_CALLS, lane), details)
        yield from _phases(call, lane)


def _phases(call: Call, lane: int) -> Iterator[dict[str, Any]]:
    """nvcc tells how long each took and in which order, not when it began: one after the other, within the call.

    Where they ran side by side (`--threads`) their sum is more than the call took, and they are drawn shorter.
    """
    total = sum(phase.seconds for phase in call.phases)
    lasted = duration(call)
    scale = min(1.0, lasted / total) if total else 1.0
    at = call.began
    for phase in call.phases:
        details = {"file": phase.file, "arch": phase.arch, "seconds": phase.seconds, "call": call.number}
        yield _span(phase.name, "phase", (at, phase.seconds * scale), (_PHASES, lane), details)
        at += phase.seconds * scale


def _span(
    name: str, category: str, span: tuple[float, float], row: tuple[int, int], details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": round(span[0] * _MICRO, 3),
        "dur": round(max(span[1], 0.0) * _MICRO, 3),
        "pid": row[0],
        "tid": row[1],
        "args": details,
    }


def _lanes(calls: Sequence[Call], end: float) -> Iterator[tuple[int, Call]]:
    """Calls that ran at the same time in rows of their own, as few rows as there were at once."""
    busy_until: list[float] = []
    for call in calls:
        lane = next((index for index, until in enumerate(busy_until) if until <= call.began), len(busy_until))
        if lane == len(busy_until):
            busy_until.append(0.0)
        busy_until[lane] = end if call.ended is None else call.ended
        yield lane + 1, call


def _compile_commands(record: Record) -> Iterator[dict[str, Any]]:
    """Each file once: the last call that compiled it is how it is compiled now."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for call in record.calls:
        parsed = parse_call(call)
        if not parsed.compiles or is_trial(call):
            continue
        line = list(call.ran or call.words)
        program = [] if call.tool == "cache" else [call.program]
        for file in parsed.inputs:
            entry = {"directory": call.cwd, "arguments": [*program, *line], "file": file}
            found[call.cwd, file] = entry | ({"output": parsed.output} if parsed.output else {})
    yield from found.values()


def require_writable(*paths: Path) -> None:
    """Before a build of hours, not after it."""
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", hint="give a file in it")
        if not os.access(path.parent, os.W_OK):
            raise UsageError(f"{path} cannot be written: check {path.parent}", hint="choose a file in another folder")


def _save_json(path: Path, value: object) -> None:
    """Bytes that are not text stay as escapes."""
    files.write(path, json.dumps(value, indent=1))
