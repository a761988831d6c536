"""Every compiler call of a command."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.recording.orders import Wish
    from cuwheel.recording.values import Call, Record
    from cuwheel.report.record import Failure, Reason, Recorded

_NAME = "cuwheel-record"
_MAX_OUTPUT = 256 * 1024
_VERSION_WORDS = frozenset({"--version", "-V", "-v"})


def record(
    command: Sequence[str],
    *,
    output: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    wish: Wish | None = None,
    trace: Path | None = None,
    compile_commands: Path | None = None,
    quiet_stdout: bool = False,
) -> Recorded:
    """Run a command as it is, and record every call of nvcc and of host compilers and linkers.

    `output`: a new folder (`cuwheel-record`, with a number where that is taken). `quiet_stdout`: what the command
    prints on stdout goes to stderr.
    """
    from cuwheel import process
    from cuwheel.errors import CuwheelError
    from cuwheel.recording import exports, session

    exports.see_that_they_can_be_written(*(path for path in (trace, compile_commands) if path))
    folder = (output or _new(Path.cwd())).absolute()
    guard = contextlib.nullcontext() if output else _removed_if_empty(folder)
    cwd = (cwd or Path.cwd()).absolute()
    environ = dict(os.environ if environ is None else environ)
    with guard, session.recording(folder, command, environ, cwd, wish) as running:
        words = ("/bin/sh", "-c", 'exec "$@" >&2', "sh", *running.command) if quiet_stdout else running.command
        try:
            status = process.attend(words, env=running.environ, cwd=cwd)
        except CuwheelError:
            running.finish(127)
            raise
        running.finish(status)
    return _told(folder, status, trace, compile_commands)


@contextlib.contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    """A record that could not begin leaves nothing."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


def _new(place: Path) -> Path:
    """A folder under a name that nobody has: a record is never written over, and others may record here too."""
    from cuwheel.errors import UnreadableError

    for number in range(1, 100_000):
        folder = place / (_NAME if number == 1 else f"{_NAME}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            hint = "name a folder that can be written with --output"
            raise UnreadableError.from_os(error, folder, hint=hint) from error
        return folder
    raise UnreadableError(place, "has too many records", hint="name a folder with --output")


def _told(folder: Path, status: int, trace: Path | None, compile_commands: Path | None) -> Recorded:
    """Whatever became of the record, the command's status is told."""
    from cuwheel import files, log
    from cuwheel.errors import UnreadableError
    from cuwheel.recording import failures, layout, summary
    from cuwheel.recording.words import readable
    from cuwheel.report.answer import to_json
    from cuwheel.report.record import Recorded

    found = _read(folder, status)
    call = failures.first(found)
    answer = Recorded(
        folder=readable(str(folder)),
        command=tuple(map(readable, found.command)),
        status=status,
        exit_status=status if status >= 0 else 128 - status,
        masked=found.masked,
        damaged=found.damaged,
        summary=summary.of(found),
        failure=_failure(found, call) if call else None,
        written=tuple(_exported(found, trace, compile_commands)),
    )
    try:
        files.write(folder / layout.REPORT, to_json(answer))
    except UnreadableError as error:
        log.debug("%s", error.message)
    return answer


def _read(folder: Path, status: int) -> Record:
    """Empty where the build took it away with its own folder."""
    from dataclasses import replace

    from cuwheel.errors import CuwheelError
    from cuwheel.recording import reader
    from cuwheel.recording.values import Record

    try:
        return replace(reader.read(folder), status=status)
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


def _exported(record: Record, trace: Path | None, compile_commands: Path | None) -> Iterator[str]:
    from cuwheel import log
    from cuwheel.errors import CuwheelError
    from cuwheel.recording import exports

    for path, save in ((trace, exports.save_trace), (compile_commands, exports.save_compile_commands)):
        try:
            if path:
                save(record, path)
                yield str(path)
        except CuwheelError as error:
            log.warning("%s", error.message)


def _failure(record: Record, call: Call) -> Failure:
    from cuwheel.recording import quoting, reader, summary
    from cuwheel.recording.words import readable
    from cuwheel.report.record import Failure

    parsed = summary.parse(call)
    said = reader.printed(record, call, _MAX_OUTPUT)
    name = os.path.relpath(record.folder)
    place = name if len(name) < len(record.folder) else record.folder
    return Failure(
        number=call.number,
        command=readable(quoting.posix((call.program, *(call.ran or call.words)))),
        cwd=readable(call.cwd),
        state=call.state,
        status=call.status,
        signal=reader.signal_name(call.signal) if call.signal is not None else None,
        problem=call.problem,
        files=tuple(map(readable, parsed.inputs)),
        archs=tuple(map(readable, parsed.archs)),
        output=said,
        causes=_causes(record, call, said),
        replay=readable(quoting.posix(("cuwheel", "replay", f"{place}:{call.number}"))),
    )


def _causes(record: Record, call: Call, said: str) -> tuple[Reason, ...]:
    """With what compilers said of their versions before: a cause is surer with them."""
    from cuwheel.api.diagnosis import explain
    from cuwheel.recording import quoting, reader
    from cuwheel.report.record import Reason

    asked = [each for each in record.calls if _VERSION_WORDS.intersection(each.words) and each.state == "succeeded"]
    versions = dict.fromkeys(reader.printed(record, each, 4096) for each in asked[:50])
    line = quoting.posix((call.program, *(call.ran or call.words)))
    problem = f"{call.program}: {call.problem}\n" if call.problem else ""
    log = "\n".join((*versions, line, said + problem))
    return tuple(
        Reason(
            id=cause.id,
            confidence=cause.confidence,
            title=cause.title,
            evidence=tuple(each.text for each in cause.evidence),
            fix=cause.fix,
        )
        for cause in explain(io.BytesIO(os.fsencode(log))).causes
    )
