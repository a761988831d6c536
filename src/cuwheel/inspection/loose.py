"""Cubins that stand in no container: whole files, or pieces embedded by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.buffer import SliceBuffer
from cuwheel.inspection import cubin, payload
from cuwheel.inspection.libraries import DeviceCode, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.buffer import Buffer
    from cuwheel.facts.arch import Arch


class Loose(NamedTuple):
    section: str
    offset: int
    size: int
    arch: Arch
    abi: int
    linked: bool
    debug: bool
    toolkit: str | None


def read(buffer: Buffer, section: str, start: int, end: int) -> Loose:
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
        toolkit=cubin.toolkit(payload.read(buffer, start, size, size, "none")),
    )


def rows(cubins: Sequence[Loose]) -> Iterator[DeviceCode]:
    alike: dict[tuple[str, Arch, bool], list[Loose]] = {}
    for each in cubins:
        alike.setdefault((each.section, each.arch, each.linked), []).append(each)
    for (section, arch, linked), group in alike.items():
        size = sum(each.size for each in group)
        yield DeviceCode(
            kind="cubin",
            arch=arch,
            section=section,
            linked=linked,
            compression="none",
            ptx_isa=None,
            count=len(group),
            bytes=size,
            real_bytes=size,
            debug_count=sum(each.debug for each in group),
        )


def entry(found: Loose) -> Entry:
    return Entry(
        container=None,
        section=found.section,
        offset=found.offset,
        kind="cubin",
        arch=found.arch,
        linked=found.linked,
        compression="none",
        ptx_isa=None,
        cubin_abi=found.abi,
        header_size=0,
        bytes=found.size,
        compressed_bytes=0,
        real_bytes=found.size,
        debug=found.debug,
        flags=0,
        options="",
        identifier="",
    )
