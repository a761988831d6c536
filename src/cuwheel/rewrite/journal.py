"""The journal of changes to an environment: what was planned, how far it got, in lines that survive a crash."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from cuwheel.errors import NewerSchemaError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = "cuwheel.slim-journal/1"
_FILE = "journal.jsonl"

# preparing: nothing was changed. switching: some files may be changed, all new ones are ready.
# done: all were. undoing, committing: to be finished by whoever comes next.
State: TypeAlias = Literal["preparing", "switching", "done", "undoing", "committing"]
Action: TypeAlias = Literal["replace", "create", "remove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Enough to know a file again. `sha256` is known of what cuwheel wrote."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One file. `path` is relative to the root; `before` is null for what is created, `after` for what is removed.

    `record`: of what is removed, the RECORD that listed it. Only while that one is there does it come back.
    """

    number: int
    action: Action
    path: str
    before: FileState | None
    after: FileState | None
    record: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    tool: str
    targets: tuple[str, ...]
    schema: str = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Exactly one of these is there."""

    header: Header | None = None
    step: Step | None = None
    state: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    header: Header | None
    steps: tuple[Step, ...]
    state: State


class Writer:
    """Appends lines, each on the disk before the call returns."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def start(self, header: Header) -> None:
        self._append([_Line(header=header)])
        sync_folder(self._path.parent)

    def steps(self, steps: tuple[Step, ...]) -> None:
        self._append([_Line(step=each) for each in steps])

    def state(self, state: State) -> None:
        self._append([_Line(state=state)])

    def _append(self, lines: list[_Line]) -> None:
        data = b"".join(msgspec.json.encode(each) + b"\n" for each in lines)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            # A line that a crash cut short would swallow the next one.
            if (size := os.fstat(handle).st_size) and not self._ends_whole(size):
                data = b"\n" + data
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)

    def _ends_whole(self, size: int) -> bool:
        with self._path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"


def read(folder: Path) -> Journal:
    """What a run left. A line that a crash cut short was never acted upon, and is passed over."""
    header: Header | None = None
    steps: list[Step] = []
    state: State = "preparing"
    for line in _lines(folder / _FILE):
        header = line.header or header
        state = line.state or state
        steps += [line.step] if line.step else []
    if header and header.schema != SCHEMA:
        raise NewerSchemaError(folder / _FILE, header.schema, SCHEMA)
    return Journal(header=header, steps=tuple(steps), state=state)


def _lines(path: Path) -> Iterator[_Line]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    decoder = msgspec.json.Decoder(_Line)
    for piece in data.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            yield decoder.decode(piece)


def sync_folder(folder: Path) -> None:
    """So that names survive a crash, too; where folders cannot be synced there is nothing to be done."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
