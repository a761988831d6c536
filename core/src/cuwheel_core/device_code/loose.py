"""Device code that no section tells of: looked for while a file streams by, and outside the sections made for it.

Fat binaries, cubins, PTX files, AMD's code objects.
"""

from __future__ import annotations

import bisect
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel_core.device_code import cubin, elf, fatbin, limits
from cuwheel_core.device_code.fatbin import CONTAINER, CONTAINER_VERSION, ENTRY, MAGIC, ZSTD_MAGIC
from cuwheel_core.device_code.libraries import Compression, DeviceCode, Entry, Kind, Search
from cuwheel_core.device_code.sections import AMD_SECTIONS, Section
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.buffer import SCAN_CHUNK, Buffer, SliceBuffer, occurrences
from cuwheel_core.support.finding import Finding, finding
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import first_few

if TYPE_CHECKING:
    from cuwheel_core.device_code.elf import Segment


# What a cubin begins with, bare or packed, and which byte of that to search for.
_ELF_START = elf.MAGIC + b"\x02\x01"
_CUBIN_STARTS = ((_ELF_START, 0), (ZSTD_MAGIC, 1))
_LONGEST_START = len(_ELF_START)

_HEADER_KEPT = 128  # the longest header seen; longer ones are read again
_MOST_PIECES = 1 << 17
_MOST_CLEAN = 1 << 14
_PAYLOADS_KEPT = 1 << 22  # bytes of payloads that are kept
_LARGEST_TABLES = 1 << 22  # of a segment with what the loader fills in: pointers to device code are there


class HeaderCapture:
    """Keeps what readers of device code come back for while a file streams by, so that little is inflated twice.

    It only guesses: what it kept serves reads of exactly that place, and everything else is read again. So of an
    ELF file it searches what is loaded as data alone: of a library of 450 MB most is code, or names for debuggers.
    Where it saw that no device code begins, nobody need search again.
    """

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self._pending = b""
        self._next: int | None = None  # where a header is expected; None while searching for a container
        self._stop = 0  # the end of the container that `_next` is in
        self._searched: tuple[Segment, ...] | None = None  # where containers are looked for; None: everywhere
        self._clean: list[tuple[int, int]] = []  # where no device code begins
        self._smallest: dict[tuple[int, ...], tuple[int, int]] = {}  # size and place of a cubin of each kind
        self._room = _PAYLOADS_KEPT

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

    def clean_until(self, position: int) -> int:
        """How far on from `position` no device code begins; `position` itself where that is not known."""
        index = bisect.bisect_right(self._clean, (position, sys.maxsize)) - 1
        return max(position, self._clean[index][1]) if index >= 0 else position

    def _look(self, offset: int, chunk: bytes) -> None:
        data = self._pending + chunk
        base = offset - len(self._pending)
        position = 0
        while True:
            if self._next is None:
                found = next(occurrences(data, MAGIC, 1, position), -1)
                looked_at = found if found >= 0 else max(len(data) - _LONGEST_START + 1, position)
                self._note_clean(base, data, position, looked_at)
                if found < 0:
                    self._pending = data[looked_at:]
                    return
                self._next = self._stop = base + found
            position = self._next - base
            if len(self.pieces) >= _MOST_PIECES:
                self._next, self._pending = sys.maxsize, b""  # no real file has so many: look no further
                return
            if position + _HEADER_KEPT > len(data):
                self._pending = data[position:]
                return
            self._next = self._keep(self._next, data, position)
            position += 1

    def _note_clean(self, base: int, data: bytes, start: int, stop: int) -> None:
        """Notes of a part where no fat binary begins that no cubin, packed or not, does either."""
        part = data[start : stop + _LONGEST_START - 1]
        places = [start + at for begin, rare in _CUBIN_STARTS for at in occurrences(part, begin, rare)]
        for end in (*sorted(at for at in places if at < stop), stop):
            if self._clean and self._clean[-1][1] == base + start:
                self._clean[-1] = self._clean[-1][0], base + end
            elif start < end and len(self._clean) < _MOST_CLEAN:
                self._clean.append((base + start, base + end))
            start = end + 1

    def _keep(self, at: int, data: bytes, position: int) -> int | None:
        """Keep what stands at `at`; where the next header is expected, if this was one."""
        following: int
        head = data[position : position + _HEADER_KEPT]
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
            if kind == fatbin.KIND_PTX:  # its first lines say its version
                wanted = fatbin.payload_start_size(stored, fatbin.compression_of(flags) if compressed else "none")
            elif kind == fatbin.KIND_CUBIN:  # the smallest of each kind tells who wrote it
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


_CUDA_MACHINE = struct.pack("<H", elf.MACHINE_CUDA)
_OVERLAP = elf.HEADER_SIZE
_MOST_HITS = 1 << 18  # in one file; cuFFT has 24,448
_SHOWN = 5
# Sections that hold neither code of the host nor tables: where a file put by hand would be.
_SEARCHED = ("data",)


class Hit(Struct, frozen=True):
    section: str
    offset: int
    end: int  # of the place it was found in
    compressed: bool = False  # a ZSTD frame, which may hold a cubin


class Hidden(Struct, frozen=True):
    containers: tuple[Hit, ...] = ()
    cubins: tuple[Hit, ...] = ()
    amd: tuple[str, ...] = ()  # sections, by name


def search_outside_sections(buffer: Buffer, sections: Sequence[Section], *, where: Search) -> Hidden:
    """Look through the data of a file, or through every byte that is not known device code."""
    if where == "nowhere":
        return Hidden()
    containers: list[Hit] = []
    cubins: list[Hit] = []
    for name, start, end in _regions(buffer, sections, whole=where == "whole"):
        _search_region(buffer, name, start, end, containers, cubins)
    amd = tuple(each.name for each in sections if each.name in AMD_SECTIONS and each.size)
    return Hidden(tuple(containers), tuple(sorted(cubins, key=lambda hit: hit.offset)), amd)


def _regions(buffer: Buffer, sections: Sequence[Section], *, whole: bool) -> Iterator[tuple[str, int, int]]:
    if not whole and sections:
        for each in sections:
            if each.role in _SEARCHED and each.name not in AMD_SECTIONS:
                yield each.name, each.offset, each.offset + each.size
        return
    position = 0
    for each in sorted(sections, key=lambda section: section.offset):
        if each.role == "device" and each.offset >= position:
            yield "", position, each.offset
            position = each.offset + each.size
    yield "", position, buffer.size


def _search_region(buffer: Buffer, name: str, start: int, end: int, containers: list[Hit], cubins: list[Hit]) -> None:
    clean_until = getattr(buffer, "clean_until", None)  # of a file, and of one that was searched when it was inflated
    position = start
    while (position := clean_until(position) if clean_until else position) < end:
        if len(containers) + len(cubins) >= _MOST_HITS:
            limits.met(f"{_MOST_HITS:,} fat binaries and cubins outside the known sections", "the rest were not read")
            return
        chunk = buffer.read(position, min(SCAN_CHUNK + _OVERLAP, end - position))
        containers += [
            Hit(name, position + at, end)
            for at in occurrences(chunk, MAGIC, 1)
            if at < SCAN_CHUNK and _starts_container(chunk, at, position, end)
        ]
        cubins += [
            Hit(name, position + at, end)
            for at in occurrences(chunk, _ELF_START, 0)
            if at < SCAN_CHUNK and chunk[at + 18 : at + 20] == _CUDA_MACHINE
        ]
        cubins += [
            Hit(name, position + at, end, compressed=True)
            for at in occurrences(chunk, ZSTD_MAGIC, 1)
            if at < SCAN_CHUNK
        ]
        position += SCAN_CHUNK


def _starts_container(chunk: bytes, at: int, base: int, end: int) -> bool:
    if at + CONTAINER.size > len(chunk):
        return False
    _, version, header, size = CONTAINER.unpack_from(chunk, at)
    return (version, header) == (CONTAINER_VERSION, CONTAINER.size) and size in range(1, end - base - at)


def findings_about_hidden(found: Hidden) -> Iterator[Finding]:
    if found.containers:
        yield finding(
            "fatbin-elsewhere",
            "fat binaries are outside the sections that the CUDA runtime registers",
            evidence=_evidence(found.containers),
        )
    if found.cubins:
        yield finding(
            "cubin-without-container",
            "cubins are embedded without a fat binary: the library loads them itself",
            evidence=_evidence(found.cubins),
        )
    if found.amd:
        yield finding(
            "amd-code",
            "the library contains code for AMD GPUs (ROCm), which cuwheel does not read",
            evidence=tuple(f"section {name}" for name in found.amd),
        )


def _evidence(hits: Sequence[Hit]) -> tuple[str, ...]:
    return first_few(
        hits, _SHOWN, lambda hit: f"offset {hit.offset:#x}" + (f" in {hit.section}" if hit.section else "")
    )


_HEADER = struct.Struct("<16sHHIQQQI")  # as far as the flags
_ABI_AT = 8
# What stands before the first directive of PTX is white space and comments.
_BLANK = rb"(?:\s|//[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)"
_PTX = lazy_pattern(
    _BLANK + rb"*\.version\s+(\d{1,3}\.\d{1,3})" + _BLANK + rb"+\.target\s+sm_(\d{2,3}[af]?)\b([^\n]*)", re.ASCII
)
_PTX_START = (b"/", b".", b" ", b"\t", b"\r", b"\n")
_PTX_HEAD = 1 << 12


class Loose(Struct, frozen=True):
    section: str
    offset: int
    size: int
    arch: Arch
    abi: int | None
    linked: bool
    debug: bool
    toolkit: str | None
    compression: Compression = "none"
    real_size: int | None = None
    kind: Kind = "cubin"
    ptx_isa: str | None = None

    @property
    def real(self) -> int:
        return self.size if self.real_size is None else self.real_size


def read_loose_cubin(buffer: Buffer, section: str, start: int, end: int) -> Loose:
    """A cubin that begins at `start`; it ends where its own tables do."""
    found = cubin.open_buffer(SliceBuffer(buffer, start, end - start, buffer.name))
    size = found.size
    return Loose(
        section=section,
        offset=start,
        size=size,
        arch=found.arch,
        abi=found.abi,
        linked=found.linked,
        debug=found.elf.named(".debug_info") is not None,
        toolkit=cubin.toolkit(fatbin.read_payload(buffer, start, size, size, "none")),
    )


def is_ptx(buffer: Buffer) -> bool:
    start = buffer.read(0, min(buffer.size, _PTX_HEAD))
    return start.startswith(_PTX_START) and _PTX.match(start) is not None


def read_ptx(buffer: Buffer) -> Loose:
    """A file of PTX: what its first two directives say."""
    match = _PTX.match(buffer.read(0, min(buffer.size, _PTX_HEAD)))
    if match is None:
        raise MalformedError(buffer.name, "PTX without .version and .target")
    return Loose(
        section="",
        offset=0,
        size=buffer.size,
        arch=Arch.parse(f"compute_{match[2].decode()}"),
        abi=None,
        linked=True,
        debug=b"debug" in match[3],
        toolkit=None,
        kind="ptx",
        ptx_isa=match[1].decode(),
    )


def read_packed_cubin(buffer: Buffer, section: str, start: int, end: int) -> Loose | None:
    """A cubin in a ZSTD frame, by the cubin's header alone: of an architecture that not every toolkit tells whole
    (`sm_100f` may be `sm_100`), so never one that fewer GPUs load. None where the frame holds anything else.
    """
    head = fatbin.payload_start(buffer, start, end - start, "zstd")
    if len(head) < _HEADER.size or head[:4] != elf.MAGIC:
        return None
    ident, kind, machine, _, _, _, _, flags = _HEADER.unpack_from(head)
    if machine != elf.MACHINE_CUDA or (frame := fatbin.zstd_frame(buffer, start, end)) is None:
        return None
    stored, real = frame
    abi = ident[_ABI_AT]
    return Loose(
        section=section,
        offset=start,
        size=stored,
        arch=cubin.arch_by_flags(flags, abi),
        abi=abi,
        linked=kind != elf.TYPE_RELOCATABLE,
        debug=False,
        toolkit=None,
        compression="zstd",
        real_size=real,
    )


def rows_of_loose(found: Sequence[Loose]) -> Iterator[DeviceCode]:
    """Those that are alike in a section, together."""
    alike: dict[tuple[str, Arch, bool, Compression], list[Loose]] = {}
    for each in found:
        alike.setdefault((each.section, each.arch, each.linked, each.compression), []).append(each)
    for (section, arch, linked, compression), group in alike.items():
        yield DeviceCode(
            kind=group[0].kind,
            arch=arch,
            section=section,
            linked=linked,
            compression=compression,
            ptx_isa=group[0].ptx_isa,
            count=len(group),
            bytes=sum(each.size for each in group),
            real_bytes=sum(each.real for each in group),
            debug_count=sum(each.debug for each in group),
        )


def entry_of_loose(found: Loose) -> Entry:
    return Entry(
        container=None,
        section=found.section,
        offset=found.offset,
        kind=found.kind,
        arch=found.arch,
        linked=found.linked,
        compression=found.compression,
        ptx_isa=found.ptx_isa,
        cubin_abi=found.abi,
        header_size=0,
        bytes=found.size,
        compressed_bytes=found.size if found.compression != "none" else 0,
        real_bytes=found.real,
        debug=found.debug,
        flags=0,
        options="",
        identifier="",
    )
