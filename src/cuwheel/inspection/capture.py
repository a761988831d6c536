"""Keeps the headers of fat binaries while a file streams by, so that no second pass is needed to walk them.

It only guesses: what it kept serves reads of exactly that place, and everything else is read again.
"""

from __future__ import annotations

import sys

from cuwheel.buffer import occurrences
from cuwheel.inspection.fatbin import CONTAINER, ENTRY, MAGIC

_KEPT = 128  # the longest header seen; longer ones are read again
_MOST = 1 << 17


class HeaderCapture:
    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self._pending = b""
        self._next: int | None = None  # where a header is expected; None while searching for a container
        self._stop = 0  # the end of the container that `_next` is in

    def feed(self, offset: int, chunk: bytes) -> None:
        """The bytes at `offset`; calls come in order and leave no gap."""
        if self._next is not None and self._next >= offset + len(chunk):
            self._pending = b""
            return  # inside a payload: nothing to look at
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
            self._next = self._keep(self._next, data[position : position + _KEPT])
            position += 1

    def _keep(self, at: int, head: bytes) -> int | None:
        """Keep what stands at `at`; where the next header is expected, if this was one."""
        following: int
        if at >= self._stop:
            _, _, header, size = CONTAINER.unpack_from(head)
            if head[:4] != MAGIC or header < CONTAINER.size:
                return None
            self._stop = at + header + size
            following = at + header
        else:
            _, _, header, payload, *_ = ENTRY.unpack_from(head)
            if header < ENTRY.size:
                return None
            following = at + header + payload
        self.pieces[at] = head
        return following
