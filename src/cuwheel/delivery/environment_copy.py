"""An environment as it was before an install: every file linked aside, so that it can be put back file by file.

The copy is made of hard links, in the environment itself: it takes no room until a file is replaced. Installers write
new files and never into old ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel import codec, confined, files, system_calls
from cuwheel.delivery import pin_files
from cuwheel.delivery.pin_files import Pinned
from cuwheel.errors import MalformedError, NewerSchemaError, UnreadableError, UsageError
from cuwheel.slimming.journal import Root
from cuwheel.wheel.installed import site_packages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ".cuwheel-install"
SCHEMA = "cuwheel.install-journal/1"
_JOURNAL = "journal.json"
_SCRIPTS = ("bin", "Scripts")
_CACHE = "__pycache__"

# installing, undoing: to be finished by whoever comes next. done: kept for `install --undo`.
State: TypeAlias = Literal["installing", "done", "undoing"]
# Where the originals are, by state: two folders, so that a journal and its originals always belong together.
_STORES: dict[State, str] = {"installing": "everything", "done": "replaced", "undoing": "replaced"}


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, folder or link of an environment, and enough to know it again. `path` is relative to the prefix."""

    path: str
    kind: Literal["file", "folder", "link"] = "file"
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    mode: int = 0
    target: str = ""

    def is_same(self, other: Entry | None) -> bool:
        if other is None or self.kind != other.kind:
            return False
        if self.kind != "file":
            return self.target == other.target
        return (self.size, self.mtime_ns, self.inode) == (other.size, other.mtime_ns, other.inode)


class Journal(Struct, frozen=True, kw_only=True):
    """`before`: what was there; once it is done, only what is there no longer. `added`: what is there instead.

    `pinned`: files with settings, which may lie anywhere.
    """

    schema: str = SCHEMA
    state: State
    name: str
    root: Root
    before: tuple[Entry, ...]
    added: tuple[Entry, ...] = ()
    pinned: tuple[Pinned, ...] = ()


class Copy:
    """Of one environment. The folder is locked by the caller."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self._folder = prefix / FOLDER

    def begin(self, name: str, pinned: tuple[Pinned, ...] = ()) -> None:
        """What `install --undo` could have put back until now is forgotten. `pinned`: settings that will be written."""
        self.forget()
        before = tuple(self._entries())
        store = self._folder / _STORES["installing"]
        try:
            store.mkdir(parents=True)
            for number, entry in enumerate(before):
                if entry.kind == "file":
                    _link(self.prefix / entry.path, store / str(number))
        except OSError as error:
            raise UnreadableError.from_os(error, store) from error
        self._write(Journal(state="installing", name=name, root=Root.of(self.prefix), before=before, pinned=pinned))

    def journal(self) -> Journal | None:
        """What a run left; None where there is nothing to put back."""
        path = self._folder / _JOURNAL
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError.from_os(error, path) from error
        try:
            found = codec.decode(data, Journal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(
                path, f"is not the journal of an install: {error}", hint=f"remove {path.parent}"
            ) from error
        if found.schema != SCHEMA:
            raise NewerSchemaError(path, found.schema, SCHEMA)
        if found.root != Root.of(self.prefix):
            raise MalformedError(
                path, "is about another environment; nothing was changed", hint=f"remove {path.parent}"
            )
        try:
            for entry in (*found.before, *found.added):
                confined.inside(self.prefix, entry.path, path)
        except MalformedError as error:
            raise MalformedError(path, error.problem, hint=f"remove {path.parent}") from error
        return found

    def recover(self) -> str:
        """What a run that was killed left, put back; the package that it was about, or nothing."""
        journal = self.journal()
        if journal is None or journal.state == "done":
            return ""
        if journal.state == "installing":
            self.restore()
        else:
            self._undo(journal)
        return journal.name

    def restore(self) -> None:
        """As it was before `begin`: what is new goes, what is gone or replaced comes back."""
        journal = self.journal()
        if journal is None:
            return
        before = {each.path: each for each in journal.before}
        now = {each.path: each for each in self._entries()}
        for number, entry in enumerate(journal.before):
            if not entry.is_same(now.get(entry.path)):
                self._put_back(journal, number)
        for path in sorted(now.keys() - before.keys(), reverse=True):  # what is in a folder before the folder
            _remove(self.prefix / path)
        self._settle(journal)

    def _settle(self, journal: Journal) -> None:
        for each in journal.pinned:
            pin_files.restore(each)
        self._folder_times(journal.before)
        self.forget()

    def finish(self) -> None:
        """What the install replaced is kept, for `undo`; the links to all else go."""
        journal = self.journal()
        if journal is None:
            return
        now = {each.path: each for each in self._entries()}
        gone = [number for number, each in enumerate(journal.before) if not each.is_same(now.get(each.path))]
        same = {each.path for each in journal.before} - {journal.before[number].path for number in gone}
        everything, replaced = (self._folder / _STORES[state] for state in ("installing", "done"))
        replaced.mkdir()
        for number, old in enumerate(gone):
            if journal.before[old].kind == "file":
                _link(everything / str(old), replaced / str(number))
        self._write(
            replace(
                journal,
                state="done",
                before=tuple(journal.before[number] for number in gone),
                added=tuple(each for path, each in now.items() if path not in same),
            )
        )
        shutil.rmtree(everything, ignore_errors=True)

    def undo(self) -> str:
        """What the last install did, put back; what was installed. Refused where its files were changed since."""
        journal = self.journal()
        if journal is None or journal.state != "done":
            raise UsageError(f"there is no install to undo in {self.prefix}", hint="cuwheel install NAME")
        now = {each.path: each for each in self._entries()}
        own = [each for each in journal.added if _CACHE not in each.path]
        if changed := [each.path for each in own if not each.is_same(now.get(each.path))]:
            raise UsageError(
                f"{changed[0]} was changed since {journal.name} was installed: nothing was put back",
                hint=f"pip uninstall {journal.name}; to forget that install: rm -r {self._folder}",
            )
        journal = replace(journal, state="undoing")
        self._write(journal)
        self._undo(journal)
        return journal.name

    def _undo(self, journal: Journal) -> None:
        for number in range(len(journal.before)):
            self._put_back(journal, number)
        old = {each.path for each in journal.before}
        for entry in sorted(journal.added, key=lambda each: each.path, reverse=True):
            if entry.path not in old:
                _remove(self.prefix / entry.path)
        self._settle(journal)

    def forget(self) -> None:
        """The journal first: without it nothing is put back."""
        (self._folder / _JOURNAL).unlink(missing_ok=True)
        for name in set(_STORES.values()):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def _write(self, journal: Journal) -> None:
        files.write(self._folder / _JOURNAL, codec.encode(journal), durable=True)

    def _put_back(self, journal: Journal, number: int) -> None:
        """Moved, not copied: that needs no room, and there is no moment without the old file or the new one."""
        entry = journal.before[number]
        place = self.prefix / entry.path
        kept = self._folder / _STORES[journal.state] / str(number)
        try:
            if entry.kind == "folder" and place.is_dir() and not place.is_symlink():
                place.chmod(entry.mode)
                return
            if entry.kind == "file" and not kept.exists() and place.is_file():
                return  # by a run that was killed
            if os.path.lexists(place) and (entry.kind != "file" or (place.is_dir() and not place.is_symlink())):
                _remove(place)
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.kind == "folder":
                place.mkdir(mode=entry.mode)
            elif entry.kind == "link":
                place.symlink_to(entry.target)
            else:
                system_calls.rename_over(kept, place)
        except OSError as error:
            hint = f"what was there is kept in {self._folder}, and the next cuwheel install puts it back"
            raise UnreadableError.from_os(error, place, hint=hint) from error

    def _folder_times(self, before: tuple[Entry, ...]) -> None:
        for entry in reversed(before):
            if entry.kind == "folder":
                with contextlib.suppress(OSError):
                    os.utime(self.prefix / entry.path, ns=(entry.mtime_ns, entry.mtime_ns))

    def _entries(self) -> Iterator[Entry]:
        """All of an environment of its own; of a Python that is the system's, its packages and programs alone."""
        if (self.prefix / "pyvenv.cfg").is_file() or (self.prefix / "conda-meta").is_dir():
            yield from self._walk(self.prefix)
            return
        scripts = [self.prefix / each for each in _SCRIPTS if (self.prefix / each).is_dir()]
        for folder in (*site_packages(self.prefix), *scripts):
            if folder.is_relative_to(self.prefix):
                yield from self._walk(folder)

    def _walk(self, folder: Path) -> Iterator[Entry]:
        try:
            with os.scandir(folder) as found:
                listed = sorted(found, key=lambda each: each.name)
        except OSError as error:
            raise UnreadableError.from_os(error, folder) from error
        for each in listed:
            path = folder / each.name
            if path == self._folder:
                continue
            status = each.stat(follow_symlinks=False)
            relative = path.relative_to(self.prefix).as_posix()
            common = {"path": relative, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
            if stat.S_ISLNK(status.st_mode):
                yield Entry(kind="link", target=str(path.readlink()), **common)  # type: ignore[arg-type]
            elif stat.S_ISDIR(status.st_mode):
                yield Entry(kind="folder", mode=stat.S_IMODE(status.st_mode), **common)  # type: ignore[arg-type]
                yield from self._walk(path)
            elif stat.S_ISREG(status.st_mode):
                yield Entry(size=status.st_size, mode=stat.S_IMODE(status.st_mode), **common)  # type: ignore[arg-type]


def _link(source: Path, to: Path) -> None:
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError:  # another disk, or a file system without links
        shutil.copy2(source, to)


def _remove(path: Path) -> None:
    """A folder only if nothing but compiled Python is left in it."""
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path / _CACHE, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.rmdir()
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
