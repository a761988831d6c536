"""libcuda.so to link with, where there is no driver: every function of cuda.h by name, and nothing behind them.

Written as bytes, not compiled: the linker reads its names and its soname, libcuda.so.1, and nothing ever runs it.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SONAME = "libcuda.so.1"
_MACHINES = {"x86_64": 62, "aarch64": 183}
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(
    r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PTSZ\((cu\w+)\)|__CUDA_API_PTDS\((cu\w+)\)|(cu\w+))", re.MULTILINE
)
_BASE = 0x1000
_HEADER, _SECTION, _SYMBOL, _PROGRAM = 64, 64, 24, 56
_TEXT = b"\x00" * 16


class _Section(NamedTuple):
    name: str
    type: int
    flags: int
    body: bytes
    link: int = 0
    info: int = 0
    align: int = 8
    entry: int = 0


def functions(cuda_h: str) -> tuple[str, ...]:
    """The driver's functions that a header declares, under every name that a compiled file may ask for."""
    names = set(_DECLARED.findall(cuda_h))
    for name, *others in _RENAMED.findall(cuda_h):
        chosen = next((each for each in others if each), "")
        names |= {name, chosen}
        if not others[-1]:  # the per-thread stream variants, which -default-stream per-thread selects
            names |= {f"{chosen}_ptsz", f"{chosen}_ptds"}
    return tuple(sorted(name for name in names if name))


def write(path: Path, cuda_h: str, cpu: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(library(functions(cuda_h), cpu))
    path.chmod(0o755)


def library(names: Iterable[str], cpu: str) -> bytes:
    """A shared library of that soname with these functions."""
    strings = b"\0" + SONAME.encode() + b"\0"
    symbols = b"\0" * _SYMBOL
    for name in names:
        # A global function in section 1, at its start.
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, _BASE + _HEADER + 2 * _PROGRAM, len(_TEXT))
        strings += name.encode() + b"\0"
    dynamic = struct.pack("<QQ", 14, 1)  # DT_SONAME, behind the first NUL
    offsets = _offsets([_TEXT, symbols, strings, dynamic])
    for tag, value in ((5, _BASE + offsets[2]), (6, _BASE + offsets[1]), (10, len(strings)), (11, _SYMBOL), (0, 0)):
        dynamic += struct.pack("<QQ", tag, value)  # DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    sections = (
        _Section(".text", 1, 6, _TEXT, align=16),
        _Section(".dynsym", 11, 2, symbols, link=3, info=1, entry=_SYMBOL),
        _Section(".dynstr", 3, 2, strings, align=1),
        _Section(".dynamic", 6, 2, dynamic, link=3, entry=16),
    )
    return _file(sections, _MACHINES[cpu])


def _offsets(bodies: Sequence[bytes]) -> list[int]:
    found, place = [], _HEADER + 2 * _PROGRAM
    for body in bodies:
        found.append(place)
        place += -(-len(body) // 16) * 16
    return found


def _file(sections: tuple[_Section, ...], machine: int) -> bytes:
    names = b"\0" + b"".join(each.name.encode() + b"\0" for each in sections) + b".shstrtab\0"
    everything = (*sections, _Section(".shstrtab", 3, 0, names, align=1))
    offsets = _offsets([each.body for each in everything])
    body = b"".join(each.body.ljust(-(-len(each.body) // 16) * 16, b"\0") for each in everything)
    start = _HEADER + 2 * _PROGRAM
    headers = b"\0" * _SECTION
    name = 1
    for each, offset in zip(everything, offsets, strict=True):
        address = _BASE + offset if each.flags else 0
        shown = (
            name,
            each.type,
            each.flags,
            address,
            offset,
            len(each.body),
            each.link,
            each.info,
            each.align,
            each.entry,
        )
        headers += struct.pack("<IIQQQQIIQQ", *shown)
        name += len(each.name) + 1
    count = len(everything) + 1
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    numbers = (3, machine, 1, 0, _HEADER, start + len(body), 0, _HEADER, _PROGRAM, 2, _SECTION, count, count - 1)
    head = identity + struct.pack("<HHIQQQIHHHHHH", *numbers)
    dynamic_at, dynamic_size = offsets[3], len(sections[3].body)
    loaded = offsets[4]
    programs = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, loaded, loaded, _BASE)
    programs += struct.pack(
        "<IIQQQQQQ", 2, 4, dynamic_at, _BASE + dynamic_at, _BASE + dynamic_at, dynamic_size, dynamic_size, 8
    )
    return head + programs + body + headers
