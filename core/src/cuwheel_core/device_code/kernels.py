"""The kernels of one piece of device code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel_core.device_code import cubin, fatbin

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Entry
    from cuwheel_core.support.buffer import Buffer


def names_in(buffer: Buffer, entry: Entry) -> tuple[cubin.Kernel, ...]:
    """The kernels of one entry; none of LTO-IR. Raises MalformedError."""
    if entry.kind not in ("cubin", "ptx"):
        return ()
    stored = entry.compressed_bytes or entry.bytes
    data = fatbin.read_payload(buffer, entry.offset + entry.header_size, stored, entry.real_bytes, entry.compression)
    return cubin.ptx_kernels(data) if entry.kind == "ptx" else cubin.read_cubin(buffer.name, data).kernels()
