"""libcuda.so.1 where there is no driver, to link with and to import against: every function says that no GPU is there.

Written as bytes, not compiled: linkers read its sections, the loader its segments. Offsets in the file are addresses.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from cuwheel_core.facts.cuda_libraries import DRIVER_LIBRARY
from cuwheel_core.wheel.tags import PROCESSORS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE of cuda.h
# Processor → the code of every function.
CODE = {
    "x86_64": b"\xb8" + struct.pack("<I", _NO_DEVICE) + b"\xc3",  # mov eax, 100; ret
    "aarch64": struct.pack("<II", 0x52800000 | _NO_DEVICE << 5, 0xD65F03C0),  # mov w0, #100; ret
}
_DECLARED = re.compile(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(")
_RENAMED = re.compile(
    r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PTSZ\((cu\w+)\)|__CUDA_API_PTDS\((cu\w+)\)|(cu\w+))", re.MULTILINE
)
_PAGE = 0x10000  # the largest that an arm64 kernel has
_HEADER, _PROGRAM, _SECTION, _SYMBOL = 64, 56, 64, 24
_NAMES = (".text", ".dynsym", ".dynstr", ".hash", ".dynamic", ".shstrtab")


def functions(cuda_h: str) -> tuple[str, ...]:
    """The driver's functions that a header declares, under every name that a compiled file may ask for."""
    names = set(_DECLARED.findall(cuda_h))
    for name, *others in _RENAMED.findall(cuda_h):
        chosen = next((each for each in others if each), "")
        names |= {name, chosen}
        if not others[-1]:  # the per-thread stream variants, which -default-stream per-thread selects
            names |= {f"{chosen}_ptsz", f"{chosen}_ptds"}
    return tuple(sorted(name for name in names if name))


def processor_of(program: Path) -> str | None:
    """The processor that an ELF program is for; None where that is not known."""
    try:
        with program.open("rb") as file:
            head = file.read(20)
    except OSError:
        return None
    machine = int.from_bytes(head[18:20], "little") if head.startswith(b"\x7fELF") else 0
    return next((cpu for cpu, row in PROCESSORS.items() if row.elf == machine), None)


def write(path: Path, names: Iterable[str], cpu: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(library(names, cpu))
    path.chmod(0o755)


def library(names: Iterable[str], cpu: str) -> bytes:
    """A shared library with these functions. Its dynamic table has a page of its own: older loaders write to it."""
    machine, code = PROCESSORS[cpu].elf, CODE[cpu]
    start = _HEADER + 4 * _PROGRAM
    strings, symbols = b"\0" + DRIVER_LIBRARY.encode() + b"\0", [bytes(_SYMBOL)]
    for name in names:
        symbols.append(struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, start, len(code)))  # global, in section 1
        strings += name.encode() + b"\0"
    # One bucket, one chain: a thousand names are searched faster than they are hashed.
    count = len(symbols)
    chain = [0, *(number + 1 if number + 1 < count else 0 for number in range(1, count))]
    hashes = struct.pack(f"<{3 + count}I", 1, count, int(count > 1), *chain)
    bodies, places, end = (code, b"".join(symbols), strings, hashes), [], start
    for each in bodies:
        places.append(end)
        end = _aligned(end + len(each), 16)
    dynamic = _aligned(end, _PAGE)
    # DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    tags = (14, 1), (4, places[3]), (5, places[2]), (6, places[1]), (10, len(strings)), (11, _SYMBOL), (0, 0)
    table = b"".join(struct.pack("<QQ", *each) for each in tags)
    programs = (
        (1, 5, 0, end, _PAGE),  # PT_LOAD: read and execute
        (1, 6, dynamic, len(table), _PAGE),  # PT_LOAD: read and write
        (2, 6, dynamic, len(table), 8),  # PT_DYNAMIC
        (0x6474E551, 6, 0, 0, 16),  # PT_GNU_STACK: not executable
    )
    names_of_sections = b"\0" + b"".join(each.encode() + b"\0" for each in _NAMES)
    placed = [*zip(places, bodies, strict=True), (dynamic, table), (dynamic + len(table), names_of_sections)]
    # Type, flags, link, info, alignment, size of an entry.
    kinds = (1, 6, 0, 0, 4, 0), (11, 2, 3, 1, 8, _SYMBOL), (3, 2, 0, 0, 1, 0), (5, 2, 2, 0, 4, 4), (6, 3, 3, 0, 8, 16)
    sections = [bytes(_SECTION)]
    for name, (place, body), kind in zip(_NAMES, placed, (*kinds, (3, 0, 0, 0, 1, 0)), strict=True):
        type_, flags, link, info, align, entry = kind
        at = names_of_sections.index(name.encode() + b"\0")
        fields = (at, type_, flags, place if flags else 0, place, len(body), link, info, align, entry)
        sections.append(struct.pack("<IIQQQQIIQQ", *fields))
    sections_at = _aligned(dynamic + len(table) + len(names_of_sections), 8)
    numbers = (3, machine, 1, 0, _HEADER, sections_at, 0, _HEADER, _PROGRAM, len(programs), _SECTION, len(sections))
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", *numbers, len(sections) - 1)
    for kind_, flags, place, size, align in programs:
        head += struct.pack("<IIQQQQQQ", kind_, flags, place, place, place, size, size, align)
    made = bytearray(sections_at)
    for place, body in ((0, head), *placed):
        made[place : place + len(body)] = body
    return bytes(made) + b"".join(sections)


def _aligned(place: int, to: int) -> int:
    return -(-place // to) * to
