"""Torch's C++ interface as binaries have it: what a library takes from torch, and what an installed torch exports.

An extension and a torch fit only if torch exports every symbol that the extension leaves undefined. Both are read from
the tables of the dynamic loader; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.device_code.contents import TorchExports
from cuwheel.facts import packages
from cuwheel.support import log
from cuwheel_core.device_code import dynamic, elf, limits
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import file_name

if TYPE_CHECKING:
    from cuwheel_core.device_code.elf import Elf
    from cuwheel_core.device_code.libraries import Library

# Names in its namespaces, also of their vtables and type information; its Python objects; its stable C interface.
_OF_TORCH = lazy_pattern(
    rb"_Z(?:T[VTIS]|G[VR])?N[rVKRO]*(?:3c10|2at|5torch|6caffe2)\d|_Z\d+THP|THP[A-Z]|aoti_torch_|torch_[a-z]+_"
)
_TELLING = ("3c10", "aoti_torch_")  # one of them is in the names of everything that uses torch
_WEAK = 2
_LARGEST_TABLE = 1 << 28  # libtorch_cpu's names take about 30 MB
_LONGEST = 1 << 14
_MOST = 20_000
_LIBRARIES = ("lib", "bin")  # of the package torch


def imported(file: Elf, soname: str | None) -> tuple[str, ...]:
    """What the loader must find in torch: mangled names, in order. Torch has its own by itself."""
    if not any(dynamic.mentions(file, each) for each in _TELLING):
        return ()
    if soname and packages.framework_of(soname) == "torch":
        return ()
    return tuple(sorted(_read(file, defined=False)))


def defined(file: Elf) -> frozenset[str]:
    """Symbols in torch's namespaces that a library has itself, for others beside it."""
    return frozenset(_read(file, defined=True))


def exported_names(file: Elf) -> frozenset[str]:
    """All that a library of torch itself gives extensions."""
    return frozenset(_names(file, defined=True))


def from_outside(libraries: Sequence[Library], inside: Iterable[str]) -> list[Library]:
    """Without what the libraries of one target give each other; nothing is left of torch's own."""
    if any(is_torch(each) for each in libraries):
        return [replace(each, torch_symbols=()) for each in libraries]
    given = frozenset(inside)
    return [
        replace(each, torch_symbols=tuple(name for name in each.torch_symbols if name not in given))
        if each.torch_symbols
        else each
        for each in libraries
    ]


def is_torch(library: Library) -> bool:
    return packages.framework_of(library.soname or file_name(library.path)) == "torch"


def exported(torch: Path, version: str, wanted: Collection[str]) -> TorchExports | None:
    """Which of `wanted` the torch in a folder exports; None where it has no library that can be read."""
    asked = frozenset(wanted)
    found: set[str] = set()
    places = [path for folder in _LIBRARIES for path in sorted((torch / folder).glob("*.so*"))]
    read = [_exports(path, asked, found) for path in places if packages.framework_of(path.name) == "torch"]
    return TorchExports(version, asked, frozenset(found)) if any(read) else None


def _exports(path: Path, asked: frozenset[str], found: set[str]) -> bool:
    try:
        with closing(FileBuffer(path)) as buffer:
            found.update(asked & exported_names(elf.read_elf(buffer)))
    except CuwheelError as error:
        log.debug("%s is not read: %s", path, error)
        return False
    return True


def _read(file: Elf, *, defined: bool) -> set[str]:
    found: set[str] = set()
    for name in _names(file, defined=defined):
        found.add(name)
        if len(found) == _MOST:
            limits.met(f"{_MOST:,} symbols of torch", "the rest of what it takes from torch is not listed")
            break
    return found


def _names(file: Elf, *, defined: bool) -> Iterator[str]:
    """A weak symbol that is undefined may stay so: the loader does not mind."""
    tables = dynamic.symbol_table(file)
    if tables is None:
        return
    symbols, strings = (file.data(each, _LARGEST_TABLE) for each in tables)
    whole = len(symbols) - len(symbols) % dynamic.SYMBOL.size
    for start, info, _, section, _, _ in dynamic.SYMBOL.iter_unpack(symbols[:whole]):
        if bool(section) != defined or (not defined and info >> 4 == _WEAK) or not _OF_TORCH.match(strings, start):
            continue
        end = strings.find(b"\0", start, start + _LONGEST)
        if end >= 0:
            yield strings[start:end].decode("ascii", "replace")
