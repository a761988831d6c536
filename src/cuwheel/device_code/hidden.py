"""Device code outside the sections made for it: fat binaries, bare cubins, AMD's code objects."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import elf, fatbin, limits
from cuwheel.device_code.image import AMD_SECTIONS
from cuwheel.device_code.payload import ZSTD_MAGIC
from cuwheel.support.buffer import SCAN_CHUNK, occurrences
from cuwheel.support.finding import Finding
from cuwheel.support.wording import first_few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.image import Section
    from cuwheel.device_code.libraries import Search
    from cuwheel.support.buffer import Buffer

_ELF = elf.MAGIC + b"\x02\x01"
_CUDA = struct.pack("<H", elf.MACHINE_CUDA)
_OVERLAP = elf.HEADER_SIZE
_MOST = 1 << 18  # in one file; cuFFT has 24,448
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


def search(buffer: Buffer, sections: Sequence[Section], *, where: Search) -> Hidden:
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
        if len(containers) + len(cubins) >= _MOST:
            limits.met(f"{_MOST:,} fat binaries and cubins outside the known sections", "the rest were not read")
            return
        chunk = buffer.read(position, min(SCAN_CHUNK + _OVERLAP, end - position))
        containers += [
            Hit(name, position + at, end)
            for at in occurrences(chunk, fatbin.MAGIC, 1)
            if at < SCAN_CHUNK and _starts_container(chunk, at, position, end)
        ]
        cubins += [
            Hit(name, position + at, end)
            for at in occurrences(chunk, _ELF, 0)
            if at < SCAN_CHUNK and chunk[at + 18 : at + 20] == _CUDA
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


def findings(found: Hidden) -> Iterator[Finding]:
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
