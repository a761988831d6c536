"""Bytes from one file into another, in pieces and without holding them: memory stays small whatever the size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError
from cuwheel.support import system_calls
from cuwheel.support.buffer import OutOfBoundsError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.changes.binaries.elf_writer import Patch
    from cuwheel.changes.binaries.fatbin_writer import Piece

# In the cache of one core. Faster than copy_file_range where nothing lies on the same place of a page.
_CHUNK = 1 << 18


def write(source: int, spool: int | None, target: int, pieces: Iterable[Piece], patches: Iterable[Patch]) -> None:
    """Pieces first, patches over them. All three are file descriptors."""
    chunk = memoryview(bytearray(_CHUNK))
    try:
        for piece in pieces:
            if piece.data:
                _write(target, memoryview(piece.data), piece.place)
            elif piece.spool and spool is not None:
                _copy(spool, piece.offset, target, piece.place, piece.size, chunk)
            else:
                _copy(source, piece.offset, target, piece.place, piece.size, chunk)
        for place, data in patches:
            _write(target, memoryview(data), place)
    except OSError as error:
        raise UnreadableError.from_os(error) from error


def same(one: int, at: int, other: int, place: int, size: int) -> bool:
    """Whether two files hold the same bytes there."""
    while size:
        count = min(size, _CHUNK)
        first = system_calls.read_at(one, count, at)
        if not first or first != system_calls.read_at(other, len(first), place):
            return False
        at, place, size = at + len(first), place + len(first), size - len(first)
    return True


def write_checksum(target: int, place: int, size: int) -> None:
    """What a PE file's header says of all its bytes: their words added up, carries too, and the file's size.

    `place`: of its four bytes, which count as zeros. As a number, a piece is its words' sum modulo 65,535.
    """
    try:
        _write(target, memoryview(bytes(4)), place)
        total, nonzero = 0, False
        for at in range(0, size, _CHUNK):
            number = int.from_bytes(system_calls.read_at(target, min(_CHUNK, size - at), at), "little")
            total, nonzero = (total + number) % 0xFFFF, nonzero or bool(number)
        folded = total or (0xFFFF if nonzero else 0)
        _write(target, memoryview((folded + size).to_bytes(8, "little")[:4]), place)
    except OSError as error:
        raise UnreadableError.from_os(error) from error


def _copy(source: int, offset: int, target: int, place: int, size: int, chunk: memoryview) -> None:
    while size:
        count = system_calls.read_into(source, chunk[: min(size, _CHUNK)], offset)
        if not count:  # it was cut while it was read
            raise OutOfBoundsError("the file", offset, size, offset)
        _write(target, chunk[:count], place)
        offset, place, size = offset + count, place + count, size - count


def _write(target: int, data: memoryview, place: int) -> None:
    while data:
        count = system_calls.write_at(target, data, place)
        data, place = data[count:], place + count
