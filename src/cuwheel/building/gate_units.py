"""What the gate judges: every container of a wheel, with what is in it, who compiled it and where it came from."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.gate_archives import Archives, Origin, piece_of
from cuwheel.device_code import cubin, fatbin, objects, payload, source
from cuwheel.device_code.demangle import demangled
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.device_code.wrappers import VERSION_LINKED
from cuwheel.errors import MalformedError
from cuwheel.facts import toolkits
from cuwheel.facts.arch import Arch
from cuwheel.support.units import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.gate_values import Wanted
    from cuwheel.device_code.fatbin import RawEntry
    from cuwheel.device_code.libraries import Container, DeviceCode, Library, Survey, Symbols
    from cuwheel.support.buffer import Buffer

# Decompressed to see who compiled what, at most: a second's work. Of the containers behind it nobody is named.
_READ_LIMIT = 1 << 28
_NAMED = 2
# What libcudadevrt.a defines, and nobody else: names with this beginning are NVIDIA's.
_RUNTIME_BY_NAME = Origin("libcudadevrt.a (by the names of its functions)", of_toolkit=True)
_NAME_WIDTH = 60


class Code(Struct, frozen=True, kw_only=True):
    """One entry. `arch` as the plan names it: `sm_90a`, `compute_90`, `lto_90`."""

    arch: Arch
    bytes: int
    ptx_isa: str | None = None
    debug: bool = False


class Unit(Struct, frozen=True, kw_only=True):
    """One container. `place`: which of how many, where. `inert`: no kernel is in it, as in a device link of nothing.

    `device_linked`: nvlink made it. `toolkit`: that wrote its cubins, where it was read. `origin`: the archive that has
    the very same code; None: it was compiled from the sources.
    """

    library: str
    number: int
    place: str
    codes: tuple[Code, ...]
    linked: bool
    device_linked: bool = False
    registered: bool = True
    inert: bool = False
    toolkit: str | None = None
    kernels: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def archs(self) -> frozenset[str]:
        return frozenset(code.arch for code in self.codes)

    @property
    def from_toolkit(self) -> bool:
        return self.origin is not None and self.origin.of_toolkit

    @property
    def words(self) -> str:
        """`container 2 of 3 (.nv_fatbin at 0x39c0, add(float*), scale(float*) …)`."""
        readable = demangled(self.kernels[:_NAMED])
        names = [readable.get(name, name) for name in self.kernels[:_NAMED]]
        few = [name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…" for name in names]
        more = " …" if len(self.kernels) > _NAMED else ""
        named = f", {', '.join(few)}{more}" if few else ""
        return f"{self.place}{named})"


class Allowance:
    """The words of `allow`: an architecture, a glob of them, or `library-glob:architecture-glob`.

    `library-glob:*` lets a library through whatever is in it: one that the build took along and did not compile.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)

    def word(self, library: str, arch: str) -> str | None:
        """The first word that lets it stay."""
        for word in self._words:
            where, colon, what = word.rpartition(":")
            if fnmatchcase(arch, what.strip()) and (not colon or _is_named(library, where.strip())):
                return word
        return None

    def whole(self, library: str) -> str | None:
        """The word that takes the library out of the plan altogether."""
        for word in self._words:
            where, _, what = word.rpartition(":")
            if where and what.strip() == "*" and _is_named(library, where.strip()):
                return word
        return None


def _is_named(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(file_name(path), pattern)


def planned(wanted: Wanted) -> frozenset[Arch]:
    """All that may be there: the list, and LTO-IR of it, from which a device link makes machine code."""
    return frozenset((*wanted.archs, *wanted.ptx, *map(lto_of, wanted.archs)))


def lto_of(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "lto")


def missing_archs(unit: Unit, wanted: Wanted) -> tuple[str, ...]:
    """Planned machine code that is not in it; objects for link-time optimisation have LTO-IR instead."""
    there = unit.archs
    return tuple(arch for arch in wanted.archs if arch not in there and (unit.linked or lto_of(arch) not in there))


def missing_ptx(unit: Unit, wanted: Wanted) -> tuple[str, ...]:
    """A device link makes machine code alone: there the PTX is in the objects that it was made from."""
    return () if unit.device_linked else tuple(arch for arch in wanted.ptx if arch not in unit.archs)


def read(found: Survey, libraries: Sequence[Library], wanted: Wanted) -> tuple[Unit, ...]:
    """The containers of these libraries; those that are not as planned are looked for in archives."""
    opened = source.find(found.target)
    try:
        items = {item.path: item for item in opened.items}
        archives = Archives(wanted.toolkit_root, wanted.record)
        units: list[Unit] = []
        budget = _READ_LIMIT
        for library in libraries:
            buffer = items[library.path].open(lambda _: None)
            try:
                reader = _Reader(buffer, library, wanted, archives, budget)
                units += reader.units()
                budget = reader.budget
            finally:
                buffer.close()
        return tuple(units)
    finally:
        opened.close()


class _Reader:
    """The containers of one library, its bytes at hand."""

    def __init__(self, buffer: Buffer, library: Library, wanted: Wanted, archives: Archives, budget: int) -> None:
        self._buffer, self._library, self._wanted = buffer, library, wanted
        self._archives = archives
        self.budget = budget

    def units(self) -> Iterator[Unit]:
        wrappers = self._library.registration.wrappers
        linked = {each.container for each in wrappers if each.version == VERSION_LINKED}
        unnamed = set(self._library.registration.unnamed)
        for number, container in enumerate(self._library.containers):
            walk = fatbin.Walk(self._buffer)
            relocatable = FATBIN_SECTIONS.get(container.section) is False
            end = container.offset + container.size
            walk.section(container.section, container.offset, end, linked=not relocatable)
            entries = tuple(entry for each in walk.containers for entry in each.entries)
            rows = walk.device_code()
            unit = Unit(
                library=self._library.path,
                number=number,
                place=self._place(number, container),
                codes=_codes(rows, entries),
                linked=not relocatable,
                device_linked=number in linked,
                registered=bool(wrappers) and number not in unnamed,
                inert=container.without_kernels and not relocatable and number not in linked,
            )
            yield self._known(unit, rows, entries)

    def _place(self, number: int, container: Container) -> str:
        total = len(self._library.containers)
        return f"container {number + 1} of {total} ({container.section or 'the file'} at {container.offset:#x}"

    def _known(self, unit: Unit, rows: Sequence[DeviceCode], entries: Sequence[RawEntry]) -> Unit:
        toolkit, symbols = self._inside(rows, entries)
        unit = replace(unit, toolkit=toolkit, kernels=symbols.kernels if symbols else ())
        if unit.device_linked and (not entries or (symbols and not symbols.kernels and not symbols.functions)):
            return replace(unit, inert=not self._library.device_linked)
        if unit.inert or self._as_wanted(unit):
            return unit
        origin = self._archives.origin([piece_of(self._buffer, entry) for entry in entries])
        if origin is None and not self._wanted.toolkit_root and not unit.linked and symbols and symbols.of_runtime:
            origin = _RUNTIME_BY_NAME  # the toolkit is in a container: its archive cannot be compared
        return replace(unit, origin=origin)

    def _as_wanted(self, unit: Unit) -> bool:
        wanted = self._wanted
        if unit.archs - planned(wanted) or missing_archs(unit, wanted) or missing_ptx(unit, wanted):
            return False
        return unit.toolkit in (None, toolkits.find_toolkit(wanted.cuda).version)

    def _inside(self, rows: Sequence[DeviceCode], entries: Sequence[RawEntry]) -> tuple[str | None, Symbols | None]:
        """Who wrote it and what is in it, by the entry that takes the least to read."""
        smallest = objects.least_to_read(entries, rows)
        if smallest is None or smallest.real > self.budget:
            return None, None
        self.budget -= smallest.real
        row = rows[smallest.row]
        try:
            data = payload.read(self._buffer, smallest.payload_offset, smallest.stored, smallest.real, row.compression)
            if row.kind == "ptx":
                return None, cubin.ptx_symbols(data)
            return cubin.toolkit(data), cubin.read(self._library.path, data).symbols()
        except MalformedError:  # the survey says so
            return None, None


def _codes(rows: Sequence[DeviceCode], entries: Sequence[RawEntry]) -> tuple[Code, ...]:
    return tuple(
        Code(
            arch=rows[entry.row].arch,
            bytes=entry.header_size + entry.payload,
            ptx_isa=rows[entry.row].ptx_isa,
            debug=bool(entry.flags & fatbin.FLAG_DEBUG),
        )
        for entry in entries
    )
