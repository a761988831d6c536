"""The ids of a library's source files, which are in the names of its kernels and variables.

cudafe++ makes an id of the CRC of the file's path, its name, and a symbol that it defines, or a hash with a process
number: `_b96781cf_10_kernels_cu_2c92614a_636`. Another build has other ids, unless it is given those of the first.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.changes.graft.subject import Subject

_ID = re.compile(r"_([0-9a-f]{8})_(\d{1,4})_(\w+)", re.ASCII)
_HEADED = re.compile(r"(\d{1,6})(_GLOBAL__N_|_INTERNAL)(?=_[0-9a-f]{8}_)")
_TEXT = re.compile(rb"(?<=\0)/[\w./+-]{1,1000}(?=\0)")  # one becomes an option of nvcc, which runs a shell
_SOURCES = (b".cu", b".cuh", b".h", b".hpp", b".cc", b".cpp", b".cxx", b".inl")
_NOT_WORD = re.compile(rb"[^0-9A-Za-z]")
_MOST = 10_000  # files of one build
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320


class ModuleId(NamedTuple):
    """`crc`: of the path that the file had. `name`: the file's, with `_` for what is no letter or digit."""

    text: str
    crc: int
    name: str


def parsed(text: str) -> ModuleId | None:
    if not (found := _ID.fullmatch(text)):
        return None
    size, rest = int(found[2]), found[3]
    return ModuleId(text, int(found[1], 16), rest[:size]) if rest[size : size + 1] == "_" else None


def of(subject: Subject) -> tuple[str, ...]:
    """Those that a library says, as one of relocatable code does, and those in the names of its device code."""
    said = [each.removeprefix("def ") for each in subject.registration.module_ids]
    found = dict.fromkeys((*said, *in_names(subject.names)))
    return tuple(each for each in found if parsed(each))


def in_names(names: Iterable[str]) -> Iterator[str]:
    """In those of anonymous namespaces. Only the length before an id tells where it ends."""
    for name in names:
        for found in _HEADED.finditer(name):
            digits, head = found[1], found[2]
            for start in range(len(digits) - 1, -1, -1):  # a digit before them may be the end of another name
                text = name[found.start(2) : found.start(2) + int(digits[start:])].removeprefix(head)
                if parsed(text):
                    yield text
                    break


def paths(subject: Subject) -> tuple[str, ...]:
    """Whole paths of source files in its data and device code, where `assert` and `__FILE__` put them."""
    data = [subject.buffer.read(each.offset, each.size) for each in subject.sections if each.role == "data"]
    data += [held[0].data for held in subject.held if held and held[0].entry.kind == "cubin"]
    found = dict.fromkeys(text.decode() for each in data for text in _TEXT.findall(each) if text.endswith(_SOURCES))
    return tuple(found)[:_MOST]


class Origin(NamedTuple):
    """Ids and the files of a source that they belong to. `crc`: of the folder that the source was in."""

    placed: tuple[tuple[ModuleId, str], ...]
    others: tuple[ModuleId, ...]
    crc: int | None

    def assigned(self, folder: Path) -> dict[str, str]:
        """Which file of `folder` gets which id: by path, else by a name that no other has."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for each, file in self.placed:
            found[str(folder / file)].add(each.text)
        for each in self.others:
            found[each.name].add(each.text)
        return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}

    def folder_of(self, paths: Sequence[str]) -> str | None:
        """The folder that the source was in, where one of these paths leads to it."""
        for path in paths:
            for each in (path[:at] for at, letter in enumerate(path) if letter == "/" and at):
                if zlib.crc32(each.encode()) == self.crc:
                    return each
        return None


def matched(ids: Sequence[str], files: Sequence[str]) -> Origin:
    """`files`: of the source, relative to its folder.

    Where that was in the other build nobody knows, but all CRCs began with it: taking a file's own path away again
    leaves the same number for each.
    """
    known = [each for each in map(parsed, ids[:_MOST]) if each]
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[_as_in_id(file)].append(file)
    pairs = [(each, file, _crc_before(each.crc, _path(file))) for each in known for file in by_name[each.name]]
    usual = Counter(crc for _, _, crc in pairs).most_common(1)
    folder = usual[0][0] if usual else None
    placed = tuple((each, file) for each, file, crc in pairs if crc == folder)
    texts = {each.text for each, _ in placed}
    return Origin(placed, tuple(each for each in known if each.text not in texts), folder)


def _path(file: str) -> bytes:
    return b"/" + file.encode(errors="surrogateescape")


def _as_in_id(file: str) -> str:
    return _NOT_WORD.sub(b"_", PurePath(file).name.encode(errors="surrogateescape")).decode()


def _crc_before(crc: int, data: bytes) -> int:
    """The CRC of what stood before `data`."""
    table, state = _reversed_table(), crc ^ _ONES
    for byte in reversed(data):
        index, entry = table[state >> 24]
        state = ((state ^ entry) << 8 & _ONES) | (index ^ byte)
    return state ^ _ONES


@cache
def _reversed_table() -> dict[int, tuple[int, int]]:
    """Of each entry of CRC-32's table: by its highest byte, its index and itself."""
    found = {}
    for index in range(256):
        entry = index
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        found[entry >> 24] = index, entry
    return found
