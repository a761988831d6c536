"""What a library is to whoever loads it, found out twice: by loading it, and by a model of the loader.

The oracle for rewriting: of any library that loads, and any output that `slim` accepts, both say the same.
"""

from __future__ import annotations

import functools
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.fixtures.damage import elf
from tests.integration.test_rewrite_layouts import SHARED, SOURCE, containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HOST = SOURCE.with_name("host.c")
NAMES = ("answer", "blank", "wide", "own_thread", "zeroed", "twice", "thrice", "host", "report", "absent")
_LOAD = """
import ctypes, json, sys
class Info(ctypes.Structure):
    text, place = ctypes.c_char_p, ctypes.c_void_p
    _fields_ = [("file", text), ("base", place), ("name", text), ("at", place)]
library, this = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
this.dlsym.restype, this.dlsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
this.dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
places = {}
for name in sys.argv[2:]:
    info, at = Info(), this.dlsym(library._handle, name.encode())
    known = at and this.dladdr(at, ctypes.byref(info))
    places[name] = [at - info.base, (info.name or b"").decode()] if known else bool(at)
said = []
for name in ("host", "report"):
    function = library[name]
    function.restype = ctypes.c_char_p
    said.append(function().decode())
print(json.dumps([places, *said]))
"""
_SEGMENT = struct.Struct("<IIQQQQQQ")
_PT_LOAD = 1
_PAGE = 4096
_FOUND_BY_HEADER = (2, 4)  # the dynamic section, notes
_MOVING = (".gnu.hash", ".hash", ".dynsym", ".dynstr", ".gnu.version", ".note.gnu.property", ".note.gnu.build-id")
_EXECUTABLE = 1
_CODE = (".init", ".plt", ".plt.got", ".plt.sec", ".text", ".fini")
_DEVICE = (".nv_fatbin", "__nv_relfatbin")


class Loaded(NamedTuple):
    """Where its names are, what its host functions say, and what is in its device code."""

    places: dict[str, object]
    host: str
    report: str


@functools.cache
def built(flags: tuple[str, ...]) -> bytes:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    with tempfile.TemporaryDirectory() as folder:
        for index, data in enumerate(containers()):
            Path(folder, f"{index}.fatbin").write_bytes(data)
        command = ["gcc", "-Os", *SHARED, *flags, str(SOURCE), str(HOST), "-o", "library.so"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
        return Path(folder, "library.so").read_bytes()


def load(path: Path) -> Loaded | None:
    """In a process of its own; None where it does not load, or crashes."""
    command = [sys.executable, "-S", "-c", _LOAD, str(path), *NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return Loaded(*json.loads(done.stdout)) if done.returncode == 0 else None


def segments(data: bytes) -> Iterator[tuple[int, ...]]:
    at, count = struct.unpack_from("<Q", data, 0x20)[0], struct.unpack_from("<H", data, 0x38)[0]
    for index in range(count):
        yield _SEGMENT.unpack_from(data, at + index * _SEGMENT.size)


def image(data: bytes) -> dict[int, tuple[int, bytes]]:
    """As a loader maps it: page → what may be done with it, and its bytes."""
    pages: dict[int, tuple[int, bytes]] = {}
    for kind, flags, offset, address, _, stored, memory, _ in segments(data):
        if kind != _PT_LOAD or memory > 1 << 28:
            continue
        content = data[offset : offset + stored].ljust(memory, b"\0")
        for page in range(address // _PAGE, -(-(address + memory) // _PAGE)):
            start, shift = max(page * _PAGE, address), max(page * _PAGE - address, 0)
            part = content[shift : shift + _PAGE - (start - page * _PAGE)]
            before = bytearray(pages.get(page, (0, bytes(_PAGE)))[1])
            before[start - page * _PAGE : start - page * _PAGE + len(part)] = part
            pages[page] = flags, bytes(before)
    return pages


def moving(data: bytes) -> list[tuple[int, int]]:
    """Headers, and what the loader finds through them or the dynamic section: loading shows whether it does."""
    at, count = struct.unpack_from("<Q", data, 0x20)[0], struct.unpack_from("<H", data, 0x38)[0]
    found = [(0, at + _SEGMENT.size * (count + 12))]
    found += [(row[3], row[3] + row[6]) for row in segments(data) if row[0] in _FOUND_BY_HEADER]
    return [*found, *(_addresses(data, name) for name in _MOVING if name in elf.sections(data))]


def host_differences(before: bytes, after: bytes, may_differ: Sequence[tuple[int, int]]) -> list[str]:
    """Bytes and rights of memory that is not device code. Addresses in `may_differ` are looked at by loading alone.

    What has no code of the host may lose the right to be run.
    """
    old, new = image(before), image(after)
    device = _joined(_addresses(before, name) for name in _DEVICE if name in elf.sections(before))
    free = [*device, *may_differ]
    code = [_addresses(before, name) for name in _CODE if name in elf.sections(before)]
    found = []
    for page, (flags, content) in sorted(old.items()):
        start = page * _PAGE
        if any(low <= start and start + _PAGE <= high for low, high in free):
            continue
        if page not in new:
            found.append(f"page {start:#x} is gone")
            continue
        runs = any(low < start + _PAGE and start < high for low, high in code)
        if new[page][0] not in (flags, flags if runs else flags & ~_EXECUTABLE):
            found.append(f"page {start:#x} had rights {flags}, and has {new[page][0]}")
        words = zip(_words(content), _words(new[page][1]), strict=True)
        for index, (one, two) in enumerate(words):
            at = start + 8 * index
            inside = any(low < at + 8 and at < high for low, high in free)
            moved = all(any(low <= word < high for low, high in device) for word in (one, two))
            if one != two and not inside and not moved:
                found.append(f"the word at {at:#x} was {one:#x}, and is {two:#x}")
    return found


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that meet, as one: where one section of device code ends and the next begins, a page holds nothing else."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low == found[-1][1]:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def _addresses(data: bytes, name: str) -> tuple[int, int]:
    start, size = elf.extent(data, name)
    address = struct.unpack_from("<Q", data, elf.sections(data)[name] + 0x10)[0]
    return address, address + size if start else address


def _words(content: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(content) // 8}Q", content)
