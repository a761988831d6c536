"""LLVM bitcode with device code, of which a package has one file for each architecture, as NVSHMEM does.

A compiler (Triton's, Numba's) links such a file into the kernels that it makes. It takes the one for its GPU by the
architecture in the file's name (nvshmem4py 0.4: `libnvshmem_device_sm_90.bc` for 9.0), or the highest that is lower.
What a file was compiled for is read from what is in it: the attribute `target-cpu` of its functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from cuwheel.device_code.contents import Bitcode
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts.arch import Arch, known_arch

if TYPE_CHECKING:
    from cuwheel_core.device_code.items import Item

SUFFIX = ".bc"
_MAGIC = b"BC\xc0\xde"
_START = 1 << 16  # attributes of functions stand behind the types: within 4 kB in NVSHMEM 3.7
_ATTRIBUTE = "target-cpu\0"
_CHUNK = 6  # bits: five of a number and one that says that more of it follow


def bitcode_for_one_architecture(items: Iterable[Item]) -> Iterator[Bitcode]:
    """Those that say in their names what they say inside, where there are several that differ in that alone."""
    families: dict[str, list[Bitcode]] = {}
    for item in items:
        if not item.path.endswith(SUFFIX):
            continue
        try:
            arch = architecture(item.head(_START))
        except CuwheelError:
            continue  # it is left as it is
        if arch and item.path.endswith(_end(arch)):
            found = Bitcode(path=item.path, arch=arch, bytes=item.size)
            families.setdefault(family_of(found), []).append(found)
    for alike in families.values():
        if len(alike) > 1:
            yield from sorted(alike, key=lambda each: each.arch)


def family_of(file: Bitcode) -> str:
    """The path without the architecture, which those have in common that a compiler chooses among."""
    return file.path.removesuffix(_end(file.arch)) + SUFFIX


def _end(arch: Arch) -> str:
    return f"_{arch}{SUFFIX}"


def architecture(start: bytes) -> Arch | None:
    """What all functions of a bitcode file were compiled for, by its first bytes; None where nothing or more is said.

    Records are packed without regard to bytes, so the attribute is looked for from every bit on.
    """
    if start[:4] != _MAGIC:
        return None
    bits = f"{int.from_bytes(start, 'little'):0{8 * len(start)}b}"[::-1]
    wanted = _as_bits(_ATTRIBUTE)
    found: set[str] = set()
    at = bits.find(wanted)
    while at >= 0:
        at += len(wanted)
        found.add(_text_at(bits, at))
        at = bits.find(wanted, at)
    return known_arch(found.pop()) if len(found) == 1 else None


@cache
def _as_bits(text: str) -> str:
    """A text as attributes are written: each character a number in chunks of six bits, the lowest first."""
    chunks = []
    for character in text:
        number = ord(character)
        while number >> (_CHUNK - 1):
            chunks.append(number & 31 | 32)
            number >>= _CHUNK - 1
        chunks.append(number)
    return "".join(f"{each:06b}"[::-1] for each in chunks)


def _text_at(bits: str, at: int) -> str:
    text = ""
    number = shift = 0
    while at + _CHUNK <= len(bits):
        chunk = int(bits[at : at + _CHUNK][::-1], 2)
        at += _CHUNK
        number |= (chunk & 31) << shift
        shift += _CHUNK - 1
        if chunk & 32:
            if shift > _CHUNK:  # no letter is as large
                return ""
            continue
        if not number:
            return text
        if number > ord("z"):
            return ""
        text += chr(number)
        number = shift = 0
    return ""
