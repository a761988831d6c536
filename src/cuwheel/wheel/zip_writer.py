"""Writes zip files with exact bytes: members are copied unchanged, or deflated on all cores.

Blocks of a member are deflated apart, each with the end of the one before as its dictionary, and joined:
the result depends on the data and the level, not on how many cores there were.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

if TYPE_CHECKING:
    from concurrent.futures import Executor

DEFAULT_LEVEL = 6
_BLOCK = 1 << 20
_DICTIONARY = 1 << 15
_LIMIT = 0xFFFFFFFF
_MANY = 0xFFFF
_UTF8 = 0x800
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_PLAIN, _ZIP64 = 20, 45  # the version of the format that is needed to read it


class Traits(Struct, frozen=True, kw_only=True):
    """What a member has besides its content. `time` and `date` are as zip files write them."""

    name: str
    time: int
    date: int
    external_attr: int
    create_system: int

    @classmethod
    def of(cls, info: zipfile.ZipInfo, name: str | None = None) -> Traits:
        year, month, day, hour, minute, second = info.date_time
        return cls(
            name=name or info.filename,
            time=hour << 11 | minute << 5 | second // 2,
            date=max(year - 1980, 0) << 9 | month << 5 | day,
            external_attr=info.external_attr,
            create_system=info.create_system,
        )


class _Written(Struct, frozen=True, kw_only=True):
    traits: Traits
    method: int
    crc: int
    stored: int
    size: int
    offset: int


class ZipWriter:
    """Writes front to back; the directory comes with `finish`."""

    def __init__(self, file: BinaryIO, pool: Executor, level: int = DEFAULT_LEVEL) -> None:
        self._file, self._pool, self._level = file, pool, level
        self._members: list[_Written] = []

    def copy(self, traits: Traits, info: zipfile.ZipInfo, packed: Iterable[bytes]) -> None:
        """A member of another zip, its compressed bytes as they are."""
        start = self._file.tell()
        self._header(traits, info.compress_type, info.CRC, info.compress_size, info.file_size)
        for piece in packed:
            self._file.write(piece)
        self._remember(traits, info.compress_type, info.CRC, info.compress_size, info.file_size, start)

    def add(self, traits: Traits, content: Iterable[bytes], size: int, *, deflate: bool = True) -> None:
        """A member from its content, in pieces of any length; `size` bytes of it."""
        method = zipfile.ZIP_DEFLATED if deflate and self._level and size else zipfile.ZIP_STORED
        start = self._file.tell()
        # The size after compression is not known yet; it may exceed the size itself by a little.
        self._header(traits, method, 0, size + size // 1000 + 1024, size)
        body = self._file.tell()
        crc = have = 0

        def blocks() -> Iterator[bytes]:
            nonlocal crc, have
            for block in _blocks(content):
                crc = zlib.crc32(block, crc)
                have += len(block)
                yield block

        packed = deflated(blocks(), self._level, self._pool) if method == zipfile.ZIP_DEFLATED else blocks()
        for piece in packed:
            self._file.write(piece)
        end = self._file.tell()
        if have != size:
            raise OSError(f"{traits.name} has {have:,} bytes, and {size:,} were expected")
        self._file.seek(start)
        self._header(traits, method, crc, end - body, size, wide=size + size // 1000 + 1024 >= _LIMIT)
        self._file.seek(end)
        self._remember(traits, method, crc, end - body, size, start)

    def finish(self) -> None:
        start = self._file.tell()
        for each in self._members:
            self._central(each)
        end = self._file.tell()
        count, size = len(self._members), end - start
        if count >= _MANY or start >= _LIMIT or size >= _LIMIT:
            self._file.write(_END64.pack(b"PK\6\6", _END64.size - 12, _ZIP64, _ZIP64, 0, 0, count, count, size, start))
            self._file.write(_LOCATOR64.pack(b"PK\6\7", 0, end, 1))
        self._file.write(
            _END.pack(b"PK\5\6", 0, 0, min(count, _MANY), min(count, _MANY), min(size, _LIMIT), min(start, _LIMIT), 0)
        )

    def _header(
        self, traits: Traits, method: int, crc: int, stored: int, size: int, *, wide: bool | None = None
    ) -> None:
        name, flags = _encoded(traits.name)
        wide = max(stored, size) >= _LIMIT if wide is None else wide
        extra = struct.pack("<HHQQ", 1, 16, size, stored) if wide else b""
        self._file.write(
            _LOCAL.pack(
                b"PK\3\4",
                _ZIP64 if wide else _PLAIN,
                flags,
                method,
                traits.time,
                traits.date,
                crc,
                _LIMIT if wide else min(stored, _LIMIT - 1),
                _LIMIT if wide else size,
                len(name),
                len(extra),
            )
        )
        self._file.write(name + extra)

    def _remember(self, traits: Traits, method: int, crc: int, stored: int, size: int, offset: int) -> None:
        self._members.append(_Written(traits=traits, method=method, crc=crc, stored=stored, size=size, offset=offset))

    def _central(self, each: _Written) -> None:
        name, flags = _encoded(each.traits.name)
        wide = [value for value in (each.size, each.stored, each.offset) if value >= _LIMIT]
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        needed = _ZIP64 if wide else _PLAIN
        self._file.write(
            _CENTRAL.pack(
                b"PK\1\2",
                each.traits.create_system << 8 | needed,
                needed,
                flags,
                each.method,
                each.traits.time,
                each.traits.date,
                each.crc,
                min(each.stored, _LIMIT),
                min(each.size, _LIMIT),
                len(name),
                len(extra),
                0,
                0,
                0,
                each.traits.external_attr,
                min(each.offset, _LIMIT),
            )
        )
        self._file.write(name + extra)


def _encoded(name: str) -> tuple[bytes, int]:
    return name.encode(), 0 if name.isascii() else _UTF8


def _blocks(content: Iterable[bytes]) -> Iterator[bytes]:
    """The same blocks however the content came: what they deflate to depends on where they end."""
    held = bytearray()
    for piece in content:
        if not held and len(piece) == _BLOCK:
            yield piece
            continue
        held += piece
        while len(held) >= _BLOCK:
            yield bytes(held[:_BLOCK])
            del held[:_BLOCK]
    if held:
        yield bytes(held)


def deflated(blocks: Iterable[bytes], level: int, pool: Executor) -> Iterator[bytes]:
    """One raw deflate stream. At most a few blocks for each core are in memory."""
    most = 2 * (os.cpu_count() or 1) + 1
    waiting: deque[Callable[[], bytes]] = deque()
    before = b""
    for block, last in _marking_the_last(blocks):
        waiting.append(pool.submit(_deflate, block, before, level, last=last).result)
        before = block[-_DICTIONARY:]
        if len(waiting) >= most:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


def _deflate(block: bytes, before: bytes, level: int, *, last: bool) -> bytes:
    packer = zlib.compressobj(level, wbits=-15, zdict=before) if before else zlib.compressobj(level, wbits=-15)
    return packer.compress(block) + packer.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


def _marking_the_last(blocks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    held = None
    for block in blocks:
        if held is not None:
            yield held, False
        held = block
    yield held or b"", True
