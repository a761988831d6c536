"""The driver's library to import against where there is none: every function answers that there is no device.

Unlike the stub of a toolkit, which only the linker reads, this one is loaded and run. It has the functions that the
libraries of the environment name, and those that CUDA's own runtime looks up by name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from cuwheel.errors import UnavailableError
from cuwheel.toolchains.driver_stub import CODE, library
from cuwheel_core.device_code import dynamic, elf, limits, pe
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts.cuda_libraries import DRIVER_DLL, DRIVER_LIBRARY
from cuwheel_core.support.buffer import Buffer, FileBuffer
from cuwheel_core.wheel.tags import PROCESSORS

# nvcuda.dll as `stub` wants it: functions that share a few bytes of code.

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
    coff = (b"PE\0\0", PROCESSORS[cpu].pe, 1, 0, 0, 0, len(optional) + len(directories), _DLL)
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
_MOST = 5000


def names_wanted(libraries: Iterable[Path]) -> tuple[str, ...]:
    """The driver's functions that these libraries link with."""
    wanted = set(_ALWAYS)
    for path in libraries:
        with suppress(CuwheelError), closing(FileBuffer(path)) as buffer:
            wanted |= {name for name in _linked_with(buffer) if _FUNCTION.fullmatch(name)}
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
    if cpu not in CODE:
        raise UnavailableError(f"there is no stub of libcuda for {cpu}", hint="verify without --stub")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (DRIVER_DLL if windows else DRIVER_LIBRARY)
    path.write_bytes(windows_library(names, cpu, CODE[cpu]) if windows else library(names, cpu))
    path.chmod(0o755)
    return path
