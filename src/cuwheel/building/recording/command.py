"""A command run as it is, and every compiler call of it recorded."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import calls, exports, means, reader, session
from cuwheel.building.recording.calls import Record
from cuwheel.errors import CuwheelError, UnreadableError
from cuwheel.support import log, process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.building.recording.instructions import Wish

_NAME = "cuwheel-record"
_NOT_STARTED = 127  # as shells tell that a program could not be started


class Ended(Struct, frozen=True, kw_only=True):
    """`folder`: of the record. `tail`: the end of what the command itself printed, where it did not succeed."""

    folder: Path
    status: int
    record: Record
    tail: str

    @property
    def failed(self) -> bool:
        """The command, or a call that it does not tell of."""
        return bool(self.status) or calls.first_failure(self.record) is not None


def run(
    command: Sequence[str],
    *,
    output: Path | None,
    environ: Mapping[str, str] | None,
    cwd: Path | None,
    wish: Wish | None,
    quiet_stdout: bool,
) -> Ended:
    """`output`: a new folder, or one that is named after those that are there."""
    folder = (output or _new(Path.cwd())).absolute()
    guard = contextlib.nullcontext() if output else _removed_if_empty(folder)
    cwd = (cwd or Path.cwd()).absolute()
    environ = dict(os.environ if environ is None else environ)
    with guard, session.recording(folder, command, environ, cwd, wish) as running:
        words = running.keeping_output(cwd)
        if quiet_stdout:
            words = means.quiet(words)
        try:
            status = process.attend(words, env=running.environ, cwd=cwd)
        except CuwheelError:
            running.finish(_NOT_STARTED)
            raise
        running.finish(status)
    record = _read(folder, status)
    tail = reader.read_command_output(record) if status else ""
    return Ended(folder=folder, status=status, record=record, tail=tail)


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


def exported(record: Record, trace: Path | None, compile_commands: Path | None) -> Iterator[str]:
    """What could be written; a warning for what could not."""
    for path, save in ((trace, exports.save_trace), (compile_commands, exports.save_compile_commands)):
        try:
            if path:
                save(record, path)
                yield str(path)
        except CuwheelError as error:
            log.warning("%s", error.message)
