"""Code that stands in no section made for it: fat binaries, cubins, PTX files, AMD's code objects."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import cubin, elf, fatbin, limits
from cuwheel.device_code.fatbin import ZSTD_MAGIC
from cuwheel.device_code.libraries import Compression, DeviceCode, Entry, Kind
from cuwheel.device_code.sections import AMD_SECTIONS
from cuwheel.errors import MalformedError
from cuwheel.facts.arch import Arch
from cuwheel.support.buffer import SCAN_CHUNK, SliceBuffer, occurrences
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import Search
    from cuwheel.device_code.sections import Section
    from cuwheel.support.buffer import Buffer


_ELF_START = elf.MAGIC + b"\x02\x01"
_CUDA_MACHINE = struct.pack("<H", elf.MACHINE_CUDA)
_OVERLAP = elf.HEADER_SIZE
_MOST_HITS = 1 << 18  # in one file; cuFFT has 24,448
_SHOWN = 5
# Sections that hold neither code of the host nor tables: where a file put by hand would be.
_SEARCHED = ("data",)


class Hit(NamedTuple):
    section: str
    offset: int
    end: int  # of the place it was found in
    compressed: bool = False  # a ZSTD frame, which may hold a cubin


class Hidden(NamedTuple):
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
    position = start
    while position < end:
        if len(containers) + len(cubins) >= _MOST_HITS:
            limits.met(f"{_MOST_HITS:,} fat binaries and cubins outside the known sections", "the rest were not read")
            return
        chunk = buffer.read(position, min(SCAN_CHUNK + _OVERLAP, end - position))
        containers += [
            Hit(name, position + at, end)
            for at in occurrences(chunk, fatbin.MAGIC, 1)
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
    if at + fatbin.CONTAINER.size > len(chunk):
        return False
    _, version, header, size = fatbin.CONTAINER.unpack_from(chunk, at)
    return (version, header) == (1, fatbin.CONTAINER.size) and size in range(1, end - base - at)


def findings_about_hidden(found: Hidden) -> Iterator[Finding]:
    if found.containers:
        yield Finding(
            rule="fatbin-elsewhere",
            severity="note",
            message="fat binaries are outside the sections that the CUDA runtime registers",
            evidence=_evidence(found.containers),
        )
    if found.cubins:
        yield Finding(
            rule="cubin-without-container",
            severity="note",
            message="cubins are embedded without a fat binary: the library loads them itself",
            evidence=_evidence(found.cubins),
        )
    if found.amd:
        yield Finding(
            rule="amd-code",
            severity="note",
            message="the library contains code for AMD GPUs (ROCm), which cuwheel does not read",
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
_PTX = re.compile(
    _BLANK + rb"*\.version\s+(\d{1,3}\.\d{1,3})" + _BLANK + rb"+\.target\s+sm_(\d{2,3}[af]?)\b([^\n]*)", re.ASCII
)
_PTX_START = (b"/", b".", b" ", b"\t", b"\r", b"\n")
_PTX_HEAD = 1 << 12


class Loose(NamedTuple):
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
