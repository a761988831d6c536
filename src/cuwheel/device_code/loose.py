"""Code that stands in no container: cubins, as files or embedded by hand, as they are or as ZSTD frames; PTX files."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import cubin, elf, payload
from cuwheel.device_code.libraries import Compression, DeviceCode, Entry, Kind
from cuwheel.errors import MalformedError
from cuwheel.facts.arch import Arch
from cuwheel.support.buffer import SliceBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.support.buffer import Buffer

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


def read(buffer: Buffer, section: str, start: int, end: int) -> Loose:
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
        toolkit=cubin.toolkit(payload.read(buffer, start, size, size, "none")),
    )


def is_ptx(buffer: Buffer) -> bool:
    start = buffer.read(0, min(buffer.size, _PTX_HEAD))
    return start.startswith(_PTX_START) and _PTX.match(start) is not None


def ptx(buffer: Buffer) -> Loose:
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


def unpacked(buffer: Buffer, section: str, start: int, end: int) -> Loose | None:
    """A cubin in a ZSTD frame, by the cubin's header alone: of an architecture that not every toolkit tells whole
    (`sm_100f` may be `sm_100`), so never one that fewer GPUs load. None where the frame holds anything else.
    """
    head = payload.start(buffer, start, end - start, "zstd")
    if len(head) < _HEADER.size or head[:4] != elf.MAGIC:
        return None
    ident, kind, machine, _, _, _, _, flags = _HEADER.unpack_from(head)
    if machine != elf.MACHINE_CUDA or (frame := payload.zstd_frame(buffer, start, end)) is None:
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


def rows(found: Sequence[Loose]) -> Iterator[DeviceCode]:
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


def entry(found: Loose) -> Entry:
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
