"""The journal of changes to an environment: what was planned, how far it got, in lines that survive a crash."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cuwheel import codec, confined, files, system_calls
from cuwheel.errors import MalformedError, NewerSchemaError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = "cuwheel.slim-journal/2"
_OLDER = "cuwheel.slim-journal/1"  # did not say where it was made
_FILE = "journal.jsonl"

# preparing: nothing was changed. switching: some files may be changed, all new ones are ready.
# done: all were. undoing, committing: to be finished by whoever comes next.
# kept: undone but for the steps that are left, whose originals wait for a person to decide.
State: TypeAlias = Literal["preparing", "switching", "done", "undoing", "committing", "kept"]
Action: TypeAlias = Literal["replace", "create", "remove"]


class FileState(Struct, frozen=True, kw_only=True):
    """Enough to know a file again. `sha256` is known of what cuwheel wrote."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None = None


class Step(Struct, frozen=True, kw_only=True):
    """One file. `path` is relative to the root; `before` is null for what is created, `after` for what is removed.

    `record`: of what is removed, the RECORD that listed it. Only while that one is there does it come back.
    """

    number: int
    action: Action
    path: str
    before: FileState | None
    after: FileState | None
    record: str | None = None


class Root(Struct, frozen=True, kw_only=True):
    """The folder that a journal was made for. Not its device: numbers of devices change when a machine starts anew."""

    path: str
    inode: int
    owner: int

    @classmethod
    def of(cls, root: Path) -> Root:
        status = root.stat()
        return cls(path=os.fsencode(root).decode(errors="replace"), inode=status.st_ino, owner=status.st_uid)


class Header(Struct, frozen=True, kw_only=True):
    tool: str
    targets: tuple[str, ...]
    root: Root | None = None
    schema: str = SCHEMA


class _Line(Struct, frozen=True, kw_only=True):
    """Exactly one of these is there."""

    header: Header | None = None
    step: Step | None = None
    state: State | None = None


class Journal(Struct, frozen=True, kw_only=True):
    header: Header | None
    steps: tuple[Step, ...]
    state: State


class Writer:
    """Appends lines, each on the disk before the call returns."""

    def __init__(self, folder: Path, name: str = _FILE) -> None:
        self._path = folder / name

    def start(self, header: Header) -> None:
        self._append([_Line(header=header)])
        files.sync_folder(self._path.parent)

    def steps(self, steps: tuple[Step, ...]) -> None:
        self._append([_Line(step=each) for each in steps])

    def state(self, state: State) -> None:
        self._append([_Line(state=state)])

    def keep_only(self, found: Journal, steps: tuple[Step, ...]) -> None:
        """The journal anew, with the steps that could not be undone; whole at any moment."""
        whole = Writer(self._path.parent, "kept.jsonl")
        whole._path.unlink(missing_ok=True)
        whole._append([_Line(header=found.header), *(_Line(step=each) for each in steps), _Line(state="kept")])
        system_calls.rename_over(whole._path, self._path)
        files.sync_folder(self._path.parent)

    def _append(self, lines: list[_Line]) -> None:
        data = b"".join(codec.encode(each) + b"\n" for each in lines)
        handle = confined.open_plain(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            # A line that a crash cut short would swallow the next one.
            if (size := os.fstat(handle).st_size) and system_calls.read_at(handle, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(handle, data) :]
            os.fsync(handle)
        finally:
            os.close(handle)


def remove(folder: Path) -> None:
    """Nothing that it tells of is to be done any more."""
    (folder / _FILE).unlink(missing_ok=True)


def read(folder: Path, root: Path | None = None) -> Journal:
    """What a run left in `root`. A line that a crash cut short was never acted upon, and is passed over.

    A journal is anybody's word: one of another folder, or with a path outside this one, is refused.
    """
    header: Header | None = None
    steps: list[Step] = []
    state: State = "preparing"
    for line in _lines(folder / _FILE):
        header = line.header or header
        state = line.state or state
        steps += [line.step] if line.step else []
    if header and header.schema not in (SCHEMA, _OLDER):
        raise NewerSchemaError(folder / _FILE, header.schema, SCHEMA)
    found = Journal(header=header, steps=tuple(steps), state=state)
    if root and (header or steps or state != "preparing"):
        _must_be_of(root, found, folder / _FILE)
    return found


def _must_be_of(root: Path, found: Journal, path: Path) -> None:
    made_for = found.header.root if found.header else None
    if found.header and found.header.schema == _OLDER:
        _must_be_made_here(found, path)
    elif made_for != Root.of(root):
        where = f"{made_for.path}, but this is another folder" if made_for else "a folder that it does not name"
        raise MalformedError(
            path,
            f"is a journal of changes to {where}; nothing was changed",
            hint=f"undo them there; to keep this folder as it is, remove {path.parent.parent.parent}",
        )
    for step in found.steps:
        confined.inside(root, step.path, path)


def _must_be_made_here(found: Journal, path: Path) -> None:
    """An earlier cuwheel did not write down which folder a journal is of, but the originals tell it.

    They are the very files that were there, under another name; a copy of the folder has others.
    """
    kept = [(step.before, path.parent / "originals" / str(step.number)) for step in found.steps if step.before]
    there = [(before, place) for before, place in kept if place.exists()]
    if not there or any(place.lstat().st_ino != before.inode for before, place in there):
        raise MalformedError(
            path,
            "was written by an earlier cuwheel, and this is not the folder it changed; nothing was changed now",
            hint="install its packages again (pip install --force-reinstall NAME), then remove "
            f"{path.parent.parent.parent}",
        )


def _lines(path: Path) -> Iterator[_Line]:
    try:
        with os.fdopen(confined.open_plain(path, os.O_RDONLY), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    for piece in data.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            yield codec.decode(piece, _Line)
