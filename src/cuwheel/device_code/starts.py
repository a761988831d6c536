"""A large library on a server, by its start: which GPUs the first of its fat binaries are for.

A member of a wheel can only be inflated from its start, and the tables that say what is where stand at a library's end:
to read them is to download all of it, 360 MB for torch's. What decides most verdicts stands in every container again,
the list of architectures. So it is read until containers have nothing new, and a finding says how far that was. What
only the end tells (libraries that it needs, symbols that it takes) stays unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cuwheel.support.finding import finding
from cuwheel_core.device_code import elf, library, pe
from cuwheel_core.device_code.fatbin import CONTAINER, CONTAINER_VERSION, MAGIC, Walk
from cuwheel_core.device_code.libraries import UNREAD, Format, Library, Registration, Wrapper
from cuwheel_core.device_code.registration import HostStrings
from cuwheel_core.support.buffer import OutOfBoundsError, SliceBuffer
from cuwheel_core.support.wording import file_name, size

if TYPE_CHECKING:
    from cuwheel_core.device_code.items import Item
    from cuwheel_core.support.finding import Finding

LARGE = 24 << 20  # as it lies in the wheel: a smaller one is read whole
_WITHOUT_CODE = 48 << 20  # read, after which none is expected any more; torch's begins after 17 MB
_MOST = 96 << 20  # read for containers so large that none of them ends before
_NOTHING_NEW = 4  # containers in a row
_ALIGNMENT = 8
_SECTION = ".nv_fatbin"


class Start(NamedTuple):
    library: Library
    how_far: Finding


def read_start(path: str, length: int, pieces: Iterable[tuple[bytes, int]]) -> Start | None:
    """Reads the start of a library; None where all has to be read.

    `pieces`: from its start, with how much of the wheel each took.
    """
    start = _Gathered(path, length)
    for piece, read in pieces:
        start.add(piece)
        if start.is_enough or (read >= _WITHOUT_CODE and not start.is_within) or read >= _MOST:
            if start.is_within and not start.walk.containers:
                return None
            return Start(start.library(), _how_far(start, read))
    return None


def _how_far(start: _Gathered, read: int) -> Finding:
    code = "" if start.walk.containers else ", which have no code for GPUs"
    return finding(
        "read-in-part",
        f"of {file_name(start.name)} the first {size(read)} were read{code}; it is taken that the rest is alike",
        evidence=(f"{start.name}: {start.reached:,} of {start.size:,} bytes",),
    )


def by_head(path: str, length: int, head: bytes) -> Library:
    """One that has no device code, by its first bytes alone."""
    start = _Gathered(path, length)
    start.add(head)
    return start.library()


def not_read(items: Sequence[Item]) -> Finding:
    names = ", ".join(file_name(each.path) for each in items)
    return finding("read-in-part", f"{names}: not read, since as far as is known no release has code for GPUs there")


class _Gathered:
    """A buffer that has what was read since the first container, and the containers in it that are whole."""

    def __init__(self, name: str, length: int) -> None:
        self.name, self.size, self.reached = name, length, 0
        self.walk = Walk(self)
        self.is_within = False  # a container of which the end is still to come
        self._head = b""
        self._data = bytearray()  # from `_base` on
        self._base = self._looked = 0
        self._searched: tuple[elf.Segment, ...] | None = None
        self._rows = self._alike = 0

    def read(self, offset: int, count: int) -> bytes:
        if offset < self._base or offset + count > self.reached:
            raise OutOfBoundsError(self.name, offset, count, self.reached)
        return bytes(self._data[offset - self._base : offset - self._base + count])

    def close(self) -> None:
        self._data.clear()

    @property
    def is_enough(self) -> bool:
        return self._alike >= _NOTHING_NEW

    def add(self, piece: bytes) -> None:
        if not self.reached:
            self._head = piece
            self._searched = elf.data_segments(piece)
        self._data += piece
        self.reached += len(piece)
        for at, stop in self._whole_containers():
            linked = not library.is_relocatable(SliceBuffer(self, at, stop - at, self.name))
            self.walk.section(_SECTION if linked else "__nv_relfatbin", at, stop, linked=linked)
            rows = len(self.walk.device_code())
            self._alike, self._rows = (self._alike + 1 if rows == self._rows else 0), rows
        if not self.walk.containers and not self.is_within:  # code and tables of the host are not kept
            del self._data[: self._looked - self._base]
            self._base = self._looked

    def _whole_containers(self) -> Iterator[tuple[int, int]]:
        """Those that ended since it was asked last. What only looks like one is passed over."""
        self.is_within = False
        while (found := self._data.find(MAGIC, self._looked - self._base)) >= 0:
            at = self._looked = self._base + found
            if at + CONTAINER.size > self.reached:
                return
            _, version, header, payload = CONTAINER.unpack_from(self._data, found)
            stop = at + header + payload
            if at % _ALIGNMENT or version != CONTAINER_VERSION or header != CONTAINER.size or stop > self._end(at):
                self._looked = at + 1
                continue
            if stop > self.reached:
                self.is_within = True
                return
            self._looked = stop
            yield at, stop
        self._looked = max(self._looked, self.reached - len(MAGIC) + 1)

    def _end(self, at: int) -> int:
        """Where what is loaded as data here ends; 0 where code is, which compares numbers with that of a container."""
        if self._searched is None:
            return self.size
        ends = (each.offset + each.file_size for each in self._searched if each.offset <= at)
        return max((each for each in ends if at < each), default=0)

    def library(self) -> Library:
        rows = self.walk.device_code()
        toolkits, problems = library.toolkits(self.walk, rows)
        held = len(self.walk.containers)
        form, machine = self._made_for()
        return replace(
            UNREAD,
            path=self.name,
            format=form,
            machine=machine,
            size=self.size,
            toolkits=toolkits,
            device_code=rows,
            registration=Registration(
                wrappers=tuple(Wrapper(version=1, container=index) for index in range(held)),
                module_ids=(),
                containers=held,
                unnamed=(),
            ),
            containers=library.containers(self.walk, rows, HostStrings(self, ())),
            findings=(*problems, *self.walk.findings),
        )

    def _made_for(self) -> tuple[Format, str]:
        if self._head[:4] == elf.MAGIC:
            number = int.from_bytes(self._head[18:20], "little")
            return "elf", elf.MACHINES.get(number, f"machine {number}")
        (at,) = struct.unpack_from("<I", self._head, 0x3C)
        number = int.from_bytes(self._head[at + 4 : at + 6], "little")
        return "pe", pe.MACHINES.get(number, f"machine {number:#x}")
