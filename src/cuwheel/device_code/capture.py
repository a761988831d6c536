"""Keeps what readers of device code come back for while a file streams by, so that little is inflated twice.

It only guesses: what it kept serves reads of exactly that place, and everything else is read again. So of an
ELF file it searches what is loaded as data alone: of a library of 450 MB most is code, or names for debuggers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cuwheel.device_code import elf
from cuwheel.device_code.fatbin import CONTAINER, ENTRY, KIND_CUBIN, KIND_PTX, MAGIC, compression_of
from cuwheel.device_code.payload import start_size
from cuwheel.support.buffer import occurrences

if TYPE_CHECKING:
    from cuwheel.device_code.elf import Segment

_KEPT = 128  # the longest header seen; longer ones are read again
_MOST = 1 << 17
_PAYLOADS = 1 << 22  # bytes of payloads that are kept
_LARGEST_TABLES = 1 << 22  # of a segment with what the loader fills in: pointers to device code are there


class HeaderCapture:
    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self._pending = b""
        self._next: int | None = None  # where a header is expected; None while searching for a container
        self._stop = 0  # the end of the container that `_next` is in
        self._searched: tuple[Segment, ...] | None = None  # where containers are looked for; None: everywhere
        self._smallest: dict[tuple[int, ...], tuple[int, int]] = {}  # size and place of a cubin of each kind
        self._room = _PAYLOADS

    def feed(self, offset: int, chunk: bytes) -> bool:
        """The bytes at `offset`; calls come in order and leave no gap. Whether all of them should be kept."""
        end = offset + len(chunk)
        if not offset:
            self._searched = elf.data_segments(chunk)
        inside = [each for each in self._searched or () if each.offset < end and offset < each.offset + each.file_size]
        if (self._searched is not None and not inside) if self._next is None else self._next >= end:
            self._pending = b""  # in code, or in a payload: nothing to look at
        else:
            self._look(offset, chunk)
        return any(each.flags & elf.PF_W and each.file_size <= _LARGEST_TABLES for each in inside)

    def _look(self, offset: int, chunk: bytes) -> None:
        data = self._pending + chunk
        base = offset - len(self._pending)
        position = 0
        while True:
            if self._next is None:
                found = next(occurrences(data, MAGIC, 1, position), -1)
                if found < 0:
                    self._pending = data[max(len(data) - len(MAGIC) + 1, position) :]
                    return
                self._next = self._stop = base + found
            position = self._next - base
            if len(self.pieces) >= _MOST:
                self._next, self._pending = sys.maxsize, b""  # no real file has so many: look no further
                return
            if position + _KEPT > len(data):
                self._pending = data[position:]
                return
            self._next = self._keep(self._next, data, position)
            position += 1

    def _keep(self, at: int, data: bytes, position: int) -> int | None:
        """Keep what stands at `at`; where the next header is expected, if this was one."""
        following: int
        head = data[position : position + _KEPT]
        if at >= self._stop:
            _, _, header, size = CONTAINER.unpack_from(head)
            if head[:4] != MAGIC or header < CONTAINER.size:
                return None
            self._stop = at + header + size
            following = at + header
        else:
            kind, _, header, payload, compressed, _, minor, _, arch, _, _, flags, _, _ = ENTRY.unpack_from(head)
            if header < ENTRY.size:
                return None
            following = at + header + payload
            stored = compressed or payload
            wanted = 0
            if kind == KIND_PTX:  # its first lines say its version
                wanted = start_size(stored, compression_of(flags) if compressed else "none")
            elif kind == KIND_CUBIN:  # the smallest of each kind tells who wrote it
                wanted = self._smaller((arch, flags, minor), payload, stored, at + header)
            # One that the next piece of the file completes is read again: few are.
            if 0 < wanted <= min(self._room, len(data) - position - header):
                start = position + header
                self.pieces[at + header] = data[start : start + wanted]
                self._room -= wanted
        self.pieces[at] = head
        return following

    def _smaller(self, key: tuple[int, ...], payload: int, stored: int, at: int) -> int:
        """How much to keep of a cubin: nothing where a smaller one was seen, whose place it takes otherwise."""
        size, place = self._smallest.get(key, (sys.maxsize, -1))
        if payload >= size:
            return 0
        self._room += len(self.pieces.pop(place, b""))
        self._smallest[key] = payload, at
        return stored
