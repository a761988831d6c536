"""The journal of changes as a file: its lines, its folder, and what is checked before it is believed.

A journal is anybody's word. It is checked as a whole before anything is done.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import NewerSchemaError
from cuwheel.support import codec, confined, files, system_calls
from cuwheel.support.files import sync_folder
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded

SCHEMA = "cuwheel.journal/3"
FOLDER = ".cuwheel"
FILE_NAME = "journal.jsonl"
_RUN = re.compile(r"(\d{1,9})(?:-[0-9a-f]{16})?", re.ASCII)
_ESCAPED = re.compile(r"\\(\\|x[0-9a-f]{2})", re.ASCII)
ASIDE = "in-use"
_PARTS = ("new", "originals", "copies", ASIDE)
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")

Verb: TypeAlias = Literal["slim", "install"]
# preparing: nothing was changed. switching: some files may be changed, all new ones are ready. installing: an installer
# may have changed anything, all files are kept. done: all were. undoing, committing: to be finished by whoever comes
# next. kept: undone but for the steps that are left, whose originals wait for a person to decide.
State: TypeAlias = Literal["preparing", "switching", "installing", "done", "undoing", "committing", "kept"]
Action: TypeAlias = Literal["replace", "create", "remove", "keep"]
SettingsKind: TypeAlias = Literal["activate", "activate.fish", "activate.csh", "env-file", "systemd", "dockerfile"]


class FileState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Enough to know a file again. `sha256` is known of what cuwheel wrote; `mode` and `target` (a link's) are kept
    where an installer works, which makes and removes folders and links as well."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None = None
    kind: Literal["file", "folder", "link"] = "file"
    mode: int | None = None
    target: str | None = None


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. `path` is relative to the root; `before` is null for what is created, `after` for what is removed.

    `record`: of what is removed, the RECORD that listed it. Only while that one is there does it come back.
    """

    number: int
    action: Action
    path: str
    before: FileState | None = None
    after: FileState | None = None
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


class Pinned(Struct, frozen=True, kw_only=True):
    """A file with settings, which may lie anywhere, and those that its block had before: None where it had none.

    `made`: it was not there. `ended`: its last line had an end.
    """

    kind: SettingsKind
    path: str
    before: dict[str, str] | None
    made: bool = False
    ended: bool = True


class Header(Struct, frozen=True, kw_only=True):
    """`targets`: the machines that it was cut for; of an install, what was installed."""

    tool: str
    targets: tuple[str, ...]
    root: Root | None = None
    pinned: tuple[Pinned, ...] = ()
    schema: str = SCHEMA


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exactly one of these is there."""

    header: Header | None = None
    step: Step | None = None
    state: State | None = None


class Journal(Struct, frozen=True, kw_only=True):
    header: Header | None
    steps: tuple[Step, ...]
    state: State


# ---- the file ----


class Writer:
    """Appends lines, each on the disk before the call returns."""

    def __init__(self, folder: Path, name: str = FILE_NAME) -> None:
        self._path = folder / name

    def start(self, header: Header) -> None:
        self._append([_Line(header=header)])
        sync_folder(self._path.parent)

    def steps(self, steps: Iterable[Step]) -> None:
        self._append([_Line(step=each) for each in steps])

    def state(self, state: State) -> None:
        self._append([_Line(state=state)])

    def rewrite(self, found: Journal) -> None:
        """The journal anew; whole at any moment."""
        whole = Writer(self._path.parent, "kept.jsonl")
        whole._path.unlink(missing_ok=True)
        whole._append(
            [_Line(header=found.header), *(_Line(step=each) for each in found.steps), _Line(state=found.state)]
        )
        system_calls.rename_over(whole._path, self._path)
        sync_folder(self._path.parent)

    def _append(self, lines: list[_Line]) -> None:
        data = b"".join(codec.encode(_with_names(each, _told)) + b"\n" for each in lines)
        handle = confined.open_plain(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            files.append_lines(handle, data)
        finally:
            os.close(handle)


def _told(name: str) -> str:
    """Names of files are bytes: those that are no UTF-8 are written as `\\xff`, and a backslash twice."""
    data = name.replace("\\", "\\\\").encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace")


def _meant(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return "\\" if match[1] == "\\" else bytes([int(match[1][1:], 16)]).decode("utf-8", "surrogateescape")

    return _ESCAPED.sub(character, text)


def _with_names(line: _Line, spelled: Callable[[str], str]) -> _Line:
    """All names of files in it spelled otherwise."""
    if step := line.step:
        states: dict[str, Any] = {}
        for each in ("before", "after"):
            there = getattr(step, each)
            states[each] = replace(there, target=spelled(there.target)) if there and there.target is not None else there
        record = spelled(step.record) if step.record is not None else None
        return replace(line, step=replace(step, path=spelled(step.path), record=record, **states))
    if line.header and line.header.pinned:
        pinned = tuple(replace(each, path=spelled(each.path)) for each in line.header.pinned)
        return replace(line, header=replace(line.header, pinned=pinned))
    return line


def read_journal(folder: Path, root: Path | None = None) -> Journal:
    """What a run left in `root`. A line that a crash cut short was never acted upon, and is passed over.

    One of another folder, or with a path outside this one, is refused.
    """
    path = folder / FILE_NAME
    lines = [_with_names(each, _meant) for each in _lines(path)]
    header = next((each.header for each in reversed(lines) if each.header), None)
    if header and header.schema != SCHEMA:
        raise NewerSchemaError(path, header.schema, SCHEMA)
    state: State = next((each.state for each in reversed(lines) if each.state), "preparing")
    found = Journal(header=header, steps=tuple(each.step for each in lines if each.step), state=state)
    if root and (header or found.steps or state != "preparing"):
        _must_be_of(root, found, path)
    return found


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


def _must_be_of(root: Path, found: Journal, path: Path) -> None:
    made_for = found.header.root if found.header else None
    if made_for != Root.of(root):
        where = f"{made_for.path}, but this is another folder" if made_for else "a folder that it does not name"
        raise MalformedError(
            path,
            f"is a journal of changes to {where}; nothing was changed",
            hint=f"undo them there; to keep this folder as it is, move {path.parent} out of it",
        )
    # What an installer left as a link, in place of a folder, goes before what was in the folder comes back.
    folders = {each.path for each in found.steps if each.before and each.before.kind == "folder"}
    for step in found.steps:
        confined.must_be_below(step.path, path)
        if not folders.intersection(_above(step.path)):
            confined.inside(root, step.path, path)
    for side in ("before", "after"):
        # No file is in a file, or behind a link that the journal itself would make.
        states = {each.path: there for each in found.steps if (there := getattr(each, side))}
        for name in states:
            for above in _above(name):
                if above in states and states[above].kind != "folder":
                    what = f"has {name!r} below {above!r}, which is a {states[above].kind}; nothing was changed"
                    raise MalformedError(path, what, hint=f"it was not written by cuwheel: look at {path.parent}")
    if found.state == "installing" and len({each.path for each in found.steps}) != len(found.steps):
        raise MalformedError(path, "keeps a file twice; nothing was changed")


def _above(path: str) -> list[str]:
    """The folders that a file is in, all of them."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


# ---- the folders ----


def folder_of(root: Path, verb: Verb = "slim") -> Path:
    """Where the journals of an environment or folder are."""
    return root / FOLDER / verb


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """No other cuwheel changes `root` while the block runs, whichever its verb, nor an environment that it is in."""
    with contextlib.ExitStack() as stack:
        for place in (*_changed_as_a_whole(root), root):
            confined.must_be_a_folder(place / FOLDER)
            confined.must_be_a_folder(folder_of(place))
            stack.enter_context(files.folder_lock(folder_of(place)))
        yield


def _changed_as_a_whole(root: Path) -> Iterator[Path]:
    """The folders above that others may be changing, with all that is in them: environments, and what has a journal.

    Only where nobody else can put such a thing there, to be waited for.
    """
    for above in root.parents:
        status = above.stat()
        if not system_calls.is_ours(status) or status.st_mode & stat.S_IWOTH or not os.access(above, os.W_OK):
            continue
        if any((above / each).exists() for each in _ENVIRONMENT) or os.path.lexists(folder_of(above)):
            yield above


def folders(root: Path, verb: Verb) -> list[Path]:
    place = folder_of(root, verb)
    if not confined.must_be_a_folder(root / FOLDER) or not confined.must_be_a_folder(place):
        return []
    found = [(bounded.digits(match[1]), each) for each in place.iterdir() if (match := _RUN.fullmatch(each.name))]
    for _, folder in found:
        for part in (folder, *(folder / each for each in _PARTS)):
            confined.must_be_a_folder(part)
    return [folder for _, folder in sorted(found)]


def journals(root: Path, verb: Verb = "slim") -> list[tuple[Path, Journal]]:
    """All of them are read and checked before the first is acted upon."""
    return [(folder, read_journal(folder, root)) for folder in folders(root, verb)]


def new_folder(root: Path, verb: Verb) -> Path:
    """The path of a new journal; for an install one with a name that no wheel can know, and bring files for."""
    there = folders(root, verb)
    number = bounded.digits(there[-1].name.partition("-")[0]) + 1 if there else 1
    return folder_of(root, verb) / (f"{number:04}" + (f"-{secrets.token_hex(8)}" if verb == "install" else ""))


def within(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix()
