"""Containers put together, and libraries slimmed, for the tests of the engine."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cuwheel.changes.binaries.plan import EntryDecision, LibraryPlan
from cuwheel.changes.slim.decide import decide_library
from cuwheel.changes.slim.request import SlimRequest, SlimTask
from cuwheel.machine.fleet import from_gpu
from cuwheel_core.device_code import library as reader
from cuwheel_core.device_code.fatbin import CONTAINER, ENTRY
from cuwheel_core.support.buffer import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel_core.device_code.libraries import Library

KINDS = {"sm": 2, "compute": 1, "lto": 8}
__all__ = ["EntryDecision", "LibraryPlan"]
SUFFIXES = {"": 0, "a": 0x100000, "f": 0x200000}


def entry(arch: str, payload: bytes, *, flags: int = 0x11) -> bytes:
    """An entry as nvcc writes one, stored raw."""
    kind, _, number = arch.partition("_")
    suffix = number.lstrip("0123456789")
    payload += bytes(-len(payload) % 8)
    plain = int(number.removesuffix(suffix))
    fields = (KINDS[kind], 0x0101, ENTRY.size, len(payload), 0, 0, 7, 1, plain, 0, 0, flags | SUFFIXES[suffix], 0, 0)
    head = ENTRY.pack(*fields)
    return head + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return CONTAINER.pack(0xBA55ED50, 1, CONTAINER.size, len(body)) + body


def noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress and that no container's magic number is in."""
    state = seed * 2654435761 % 2**32 or 1
    words = []
    for _ in range(size // 4):
        state = state * 1664525 + 1013904223 & 0xFFFFFFFF
        words.append(state & 0x7FFFFFFF)
    return struct.pack(f"<{len(words)}I", *words)


def read(path: Path) -> Library:
    buffer = FileBuffer(path)
    try:
        return reader.read_library(buffer, detail="entries")
    finally:
        buffer.close()


def task(*gpus: str, **changes: Any) -> SlimTask:
    """No GPU: for every architecture."""
    return SlimTask(request=SlimRequest(**changes), machines=tuple(from_gpu(each) for each in gpus) or None)


def plan(path: Path, *gpus: str, **changes: Any) -> LibraryPlan:
    return decide_library(read(path), task(*gpus, **changes))


def keeping(found: Library, keep: Callable[[EntryDecision], bool], **changes: Any) -> LibraryPlan:
    """A plan that keeps exactly this, whoever would want it."""
    whole = decide_library(found, task(**changes))
    return replace(whole, entries=tuple(replace(each, keep=keep(each)) for each in whole.entries))


def contents(path: Path) -> list[list[bytes]]:
    """The entries of each container as bytes, headers and all."""
    found = read(path)
    data = path.read_bytes()
    containers: list[list[bytes]] = [[] for _ in found.containers]
    for each in found.entries:
        if each.container is not None:
            containers[each.container].append(data[each.offset : each.offset + each.header_size + each.bytes])
    return containers
