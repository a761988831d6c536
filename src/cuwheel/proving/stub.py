"""The driver's library to import against where there is none: every function answers that there is no device.

Unlike the stub of a toolkit, which only the linker reads, this one is loaded and run. It has the functions that the
libraries of the environment name, and those that CUDA's own runtime looks up by name.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import dynamic, elf, limits, pe
from cuwheel.errors import CuwheelError, UnavailableError
from cuwheel.facts.packages import DRIVER_DLL, DRIVER_LIBRARY
from cuwheel.support.buffer import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cuwheel.support.buffer import Buffer


# nvcuda.dll as `stub` wants it: functions that share a few bytes of code.

_MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_HEADER_AT, _SECTOR, _WINDOWS_PAGE = 0x40, 0x200, 0x1000
_EXPORTS_AT = 16  # behind the code: an address in the table of exports would be taken for another library's function
_BASE = 0x180000000
_DLL = 0x2022  # executable, large addresses, a library
_CODE_AND_DATA = 0x60000060  # read and run
_EXPORTS = struct.Struct("<IIHHIIIIIII")


def windows_library(names: Sequence[str], cpu: str, code: bytes) -> bytes:
    """One section: the code that all functions share, and the table of their names, in order.

    It is its entry point, too: any answer but zero lets it be loaded.
    """
    body = code.ljust(_EXPORTS_AT, b"\0") + _exports(sorted(names))
    stored = -(-len(body) // _SECTOR) * _SECTOR
    directories = struct.pack("<II", _WINDOWS_PAGE + _EXPORTS_AT, len(body) - _EXPORTS_AT) + bytes(15 * 8)
    optional = struct.pack(
        "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII",
        *(0x20B, 14, 0, stored, 0, 0, _WINDOWS_PAGE, _WINDOWS_PAGE, _BASE, _WINDOWS_PAGE, _SECTOR, 6, 0, 0, 0, 6, 0, 0),
        *(
            _WINDOWS_PAGE + -(-len(body) // _WINDOWS_PAGE) * _WINDOWS_PAGE,
            _SECTOR,
            0,
            2,
            0x160,
            1 << 20,
            _WINDOWS_PAGE,
            1 << 20,
            _WINDOWS_PAGE,
            0,
            16,
        ),
    )
    coff = (b"PE\0\0", _MACHINES[cpu], 1, 0, 0, 0, len(optional) + len(directories), _DLL)
    row = (b".text", len(body), _WINDOWS_PAGE, stored, _SECTOR, 0, 0, 0, 0, _CODE_AND_DATA)
    dos = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", _HEADER_AT)
    head = dos + pe.COFF.pack(*coff) + optional + directories + pe.SECTION.pack(*row)
    return head.ljust(_SECTOR, b"\0") + body.ljust(stored, b"\0")


def _exports(names: Sequence[str]) -> bytes:
    """All of them lead to the section's start."""
    count, start = len(names), _WINDOWS_PAGE + _EXPORTS_AT + _EXPORTS.size
    texts_at = start + 10 * count
    places, texts = [], DRIVER_DLL.encode() + b"\0"
    for each in names:
        places.append(texts_at + len(texts))
        texts += each.encode() + b"\0"
    tables = (start, start + 4 * count, start + 8 * count)
    head = _EXPORTS.pack(0, 0, 0, 0, texts_at, 1, count, count, *tables)
    addresses = struct.pack(f"<{count}I", *[_WINDOWS_PAGE] * count) + struct.pack(f"<{count}I", *places)
    return head + addresses + struct.pack(f"<{count}H", *range(count)) + texts


_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE of cuda.h
_CODE = {
    "x86_64": (62, b"\xb8" + struct.pack("<I", _NO_DEVICE) + b"\xc3"),  # mov eax, 100; ret
    "aarch64": (183, struct.pack("<II", 0x52800000 | _NO_DEVICE << 5, 0xD65F03C0)),  # mov w0, #100; ret
}
_ALWAYS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetAttribute",
    "cuGetErrorString",
    "cuGetErrorName",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
)
_FUNCTION = re.compile(r"cu[A-Z]\w{1,100}", re.ASCII)
_PAGE = 0x10000  # the largest that an arm64 kernel has
_HEADER, _PROGRAM, _SYMBOL = 64, 56, 24
_MOST = 5000


def names_wanted(libraries: Iterable[Path]) -> tuple[str, ...]:
    """The driver's functions that these libraries link with."""
    wanted = set(_ALWAYS)
    for path in libraries:
        try:
            buffer = FileBuffer(path)
        except CuwheelError:
            continue
        try:
            wanted |= {name for name in _linked_with(buffer) if _FUNCTION.fullmatch(name)}
        except CuwheelError:
            continue
        finally:
            buffer.close()
    if len(wanted) > _MOST:
        limits.met(f"{_MOST:,} of {len(wanted):,} functions fit in the stub of the driver", "the rest are missing")
    return tuple(sorted(wanted)[:_MOST])


def _linked_with(buffer: Buffer) -> tuple[str, ...]:
    if pe.is_pe(buffer):
        return tuple(pe.imported(pe.read_pe(buffer), DRIVER_DLL))
    file = elf.read_elf(buffer)
    if DRIVER_LIBRARY not in dynamic.read_dynamic(file).needed:
        return ()
    return tuple(each.name for each in dynamic.symbols(file) if not each.defined)


def write_stub(folder: Path, names: Sequence[str], cpu: str, *, windows: bool = False) -> Path:
    if cpu not in _CODE:
        raise UnavailableError(f"there is no stub of libcuda for {cpu}", hint="verify without --stub")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (DRIVER_DLL if windows else DRIVER_LIBRARY)
    machine, code = _CODE[cpu]
    path.write_bytes(windows_library(names, cpu, code) if windows else _library(names, machine, code))
    path.chmod(0o755)
    return path


class _Layout(NamedTuple):
    """Offsets in the file, which are the addresses too."""

    code: int
    symbols: int
    strings: int
    hashes: int
    end: int
    dynamic: int


def _library(names: Sequence[str], machine: int, code: bytes) -> bytes:
    """Two segments: what is read and run, and the dynamic table, which older loaders write to."""
    strings = b"\0" + DRIVER_LIBRARY.encode() + b"\0"
    offsets = []
    for name in names:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    # One bucket, one chain: a thousand names are searched faster than they are hashed.
    count = len(names) + 1
    chain = [0, *(number + 1 if number + 1 < count else 0 for number in range(1, count))]
    hashes = struct.pack(f"<{3 + count}I", 1, count, 1 if names else 0, *chain)
    place = _layout(len(code), len(names), len(strings), len(hashes))
    symbols = bytes(_SYMBOL) + b"".join(
        struct.pack("<IBBHQQ", offset, 0x12, 0, 1, place.code, len(code)) for offset in offsets
    )
    # DT_DRIVER_LIBRARY, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    tags = (14, 1), (4, place.hashes), (5, place.strings), (6, place.symbols), (10, len(strings)), (11, _SYMBOL), (0, 0)
    table = b"".join(struct.pack("<QQ", *each) for each in tags)
    body = bytearray(place.dynamic + len(table))
    programs = (
        (1, 5, 0, place.end, _PAGE),  # PT_LOAD: read and execute
        (1, 6, place.dynamic, len(table), _PAGE),  # PT_LOAD: read and write
        (2, 6, place.dynamic, len(table), 8),  # PT_DYNAMIC
        (0x6474E551, 6, 0, 0, 16),  # PT_GNU_STACK: not executable
    )
    numbers = (3, machine, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, len(programs), 64, 0, 0)
    pieces = [
        (0, b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *numbers)),
        *((_HEADER + _PROGRAM * at, _program(*each)) for at, each in enumerate(programs)),
        (place.code, code),
        (place.symbols, symbols),
        (place.strings, strings),
        (place.hashes, hashes),
        (place.dynamic, table),
    ]
    for offset, piece in pieces:
        body[offset : offset + len(piece)] = piece
    return bytes(body)


def _program(kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)


def _layout(code: int, count: int, strings: int, hashes: int) -> _Layout:
    at = _HEADER + 4 * _PROGRAM
    places = []
    for size in (code, (count + 1) * _SYMBOL, strings, hashes):
        places.append(at)
        at = -(-(at + size) // 16) * 16
    first, second, third, fourth = places
    return _Layout(first, second, third, fourth, at, -(-at // _PAGE) * _PAGE)
