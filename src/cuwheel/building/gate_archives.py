"""Device code that came out of a static archive: told by its bytes, never by its looks.

`libcudadevrt.a` puts cubins for every architecture into each library that needs it, and the static CUDA libraries put
theirs. A linker copies them as they are, so the very same entries stand in the archive.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from cuwheel.building.recording import options, words
from cuwheel.device_code import archive, elf, fatbin, limits
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.support import foreign_paths, log
from cuwheel.support.buffer import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.recording.options import Option
    from cuwheel.device_code.fatbin import RawEntry
    from cuwheel.support.buffer import Buffer

# What tells most entries apart without reading them: kind, architecture, flags, sizes.
Key: TypeAlias = tuple[int, int, int, int, int]
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/*/lib", "lib/*", "nvvm/lib")
_MOST_ARCHIVES = 200  # a toolkit has some forty, a link call names a dozen


class Piece(NamedTuple):
    """An entry to be recognised."""

    key: Key
    digest: bytes


class Origin(NamedTuple):
    path: str
    of_toolkit: bool

    @property
    def name(self) -> str:
        return Path(self.path).name


def key_of(entry: RawEntry) -> Key:
    return entry.kind, entry.arch, entry.flags, entry.payload, entry.uncompressed


def piece_of(buffer: Buffer, entry: RawEntry) -> Piece:
    return Piece(key_of(entry), _digest(buffer, entry))


def _digest(buffer: Buffer, entry: RawEntry) -> bytes:
    return hashlib.sha256(buffer.read(entry.payload_offset, entry.stored)).digest()


class Archives:
    """The archives that a build may have linked: those that its link calls name first, then the toolkit's others."""

    def __init__(self, toolkit_root: str, record: Record | None) -> None:
        self._toolkit_root = toolkit_root
        self._record = record
        self._listed: list[Origin] | None = None
        self._entries: dict[str, dict[Key, list[RawEntry]]] = {}

    def origin(self, pieces: Sequence[Piece]) -> Origin | None:
        """The archive that has every one of these entries."""
        if not pieces:
            return None
        return next((each for each in self._candidates() if self._has(each, pieces)), None)

    def _candidates(self) -> list[Origin]:
        if self._listed is None:
            own = list(_of_toolkit(self._toolkit_root))
            real = {os.path.realpath(path) for path in own}
            root = os.path.realpath(self._toolkit_root) + os.sep if self._toolkit_root else "\0"
            found: dict[str, Origin] = {}
            for path in (*_named_by(self._record, own), *own):
                place = os.path.realpath(path)
                found.setdefault(place, Origin(path, place in real or place.startswith(root)))
            rest = "code from the others is not recognised as the toolkit's"
            listed = limits.first(list(found.values()), _MOST_ARCHIVES, "static archives were searched", rest)
            self._listed = list(listed)
        return self._listed

    def _has(self, origin: Origin, pieces: Sequence[Piece]) -> bool:
        index = self._index(origin.path)
        if not all(piece.key in index for piece in pieces):
            return False
        with_bytes = FileBuffer(Path(origin.path), origin.path)
        try:
            return all(
                any(_digest(with_bytes, entry) == piece.digest for entry in index[piece.key]) for piece in pieces
            )
        finally:
            with_bytes.close()

    def _index(self, path: str) -> dict[Key, list[RawEntry]]:
        if path not in self._entries:
            index: dict[Key, list[RawEntry]] = {}
            try:
                for entry in _entries(path):
                    index.setdefault(key_of(entry), []).append(entry)
            except CuwheelError as error:  # then nothing is known to come from it
                log.debug(f"{path} was not searched: {error.message}")
                index = {}
            self._entries[path] = index
        return self._entries[path]


def _entries(path: str) -> Iterator[RawEntry]:
    buffer = FileBuffer(Path(path), path)
    try:
        if buffer.read(0, min(len(archive.MAGIC), buffer.size)) != archive.MAGIC:
            return  # a linker script may bear such a name
        walk = fatbin.Walk(buffer)
        for member in archive.members(buffer):
            try:
                sections = archive.shifted(elf.read(member.buffer).sections(), member.offset)
            except MalformedError:
                continue
            for section in sections:
                if section.name in FATBIN_SECTIONS:
                    walk.section(section.name, section.offset, section.offset + section.size, linked=True)
        for container in walk.containers:
            yield from container.entries
    finally:
        buffer.close()


def _of_toolkit(root: str) -> Iterator[str]:
    if root:
        for pattern in _LIBRARY_FOLDERS:
            yield from (str(path) for path in sorted(Path(root).glob(f"{pattern}/lib*.a")) if path.is_file())


def _named_by(record: Record | None, of_toolkit: Sequence[str]) -> Iterator[str]:
    """The archives that calls name, as words (`../libfoo.a`) or as libraries (`-lfoo`), where they still exist."""
    known = {Path(path).name: path for path in of_toolkit}
    seen: set[str] = set()
    for call in record.calls if record else ():
        for path in _of_call(call, known):
            if path not in seen and Path(path).is_file():
                seen.add(path)
                yield path


def _of_call(call: Call, known: dict[str, str]) -> Iterator[str]:
    given = options.parse(words_of(call), call.tool)
    folders = [_within(call, each) for each in _values(given, "--library-path", "-L")]
    yield from (_within(call, each) for each in _values(given, options.INPUT) if each.endswith(".a"))
    for name in _values(given, "--library", "-l"):
        file = name[1:] if name.startswith(":") else f"lib{name}.a"
        yield from (f"{folder}/{file}" for folder in folders)
        if file in known:
            yield known[file]


def _values(given: Iterable[Option], *names: str) -> Iterator[str]:
    return (option.value for option in given if option.name in names and option.value)


def _within(call: Call, path: str) -> str:
    return foreign_paths.joined(call.cwd, path)


def words_of(call: Call) -> tuple[str, ...]:
    """The words that a call really got, those of its response files with them."""
    files = {each.path: each.text for each in call.response_files}
    return tuple(words.expanded(call.ran or call.words, files))
