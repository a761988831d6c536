"""What containers hold by name, and which of it the host registers: where some lack it, it decides what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.device_code import cubin, limits, payload
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.device_code.libraries import Absent
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cuwheel.device_code.fatbin import RawEntry, Walk
    from cuwheel.device_code.image import Section
    from cuwheel.device_code.libraries import DeviceCode, Symbols
    from cuwheel.support.buffer import Buffer

_LIMIT = 1 << 28  # decompressed for it, at most; of the objects behind that no name is known
_COMPARED = 1 << 25  # of code that no device link made: in a file with more of it the entries are not compared
_STRINGS = (".rodata", ".rdata")
_STRINGS_LIMIT = 1 << 28
_SHOWN = 8


class Host:
    """Which kernels and variables a file's host code registers with the runtime.

    It hands over their names, which stand as strings in its read-only data. Where there is no such data, as in a bare
    fat binary, everything that any entry holds is taken for registered.
    """

    def __init__(self, buffer: Buffer, sections: Sequence[Section]) -> None:
        self._buffer = buffer
        self._places = [(each.offset, each.size) for each in sections if each.name.startswith(_STRINGS) and each.size]
        if sum(size for _, size in self._places) > _STRINGS_LIMIT:
            self._places = []
        self._data: bytes | None = None

    def registers(self, name: str) -> bool:
        """Linkers let one string be the end of another: what stands before it tells nothing."""
        if not self._places:
            return True
        if self._data is None:
            self._data = b"".join(self._buffer.read(offset, size) for offset, size in self._places)
        return name.encode() + b"\0" in self._data

    def of(self, found: Symbols) -> Iterator[str]:
        yield from filter(self.registers, (*found.kernels, *found.variables))


def symbols(walk: Walk, rows: Sequence[DeviceCode], host: Host, device_linked: Collection[int]) -> dict[int, Symbols]:
    """By container. Nothing where all objects were compiled for the same, and so was what a device link made of them:
    then every one fits a GPU, or none does.
    """
    found: dict[int, Symbols] = {}
    objects = _relocatable(walk)
    linked = [walk.containers[index].entries for index in device_linked if walk.containers[index].entries]
    lists = {compiled_for(entries, rows) for entries in objects.values()}
    if len(lists) <= 1 and not any(_left_out(entries, linked, rows) for entries in objects.values()):
        return found
    budget = _LIMIT
    for index, entries in objects.items():
        smallest = least_to_read(entries, rows)
        if smallest is None:
            continue
        if smallest.real > budget:
            limits.met(f"{_LIMIT:,} bytes of relocatable objects", "the names in the rest were not read")
            continue
        budget -= smallest.real
        if read := names(walk, smallest, rows[smallest.row]):
            found[index] = replace(read, variables=tuple(filter(host.registers, read.variables)))
    return found


def _relocatable(walk: Walk) -> dict[int, tuple[RawEntry, ...]]:
    return {
        index: tuple(each.entries)
        for index, each in enumerate(walk.containers)
        if FATBIN_SECTIONS.get(each.section) is False
    }


def _left_out(entries: Sequence[RawEntry], linked: Sequence[Sequence[RawEntry]], rows: Sequence[DeviceCode]) -> bool:
    """Whether a device link may have had nothing to take from this object."""
    own = {rows[entry.row].arch for entry in entries}
    return any(rows[entry.row].arch not in own for each in linked for entry in each)


def absent(
    walk: Walk, rows: Sequence[DeviceCode], host: Host, device_linked: Collection[int], known: Mapping[int, Symbols]
) -> dict[int, tuple[Absent, ...]]:
    """By container. `known`: what the relocatable objects hold, where a device link may have left some out."""
    found: dict[int, tuple[Absent, ...]] = {}
    links = [index for index in device_linked if walk.containers[index].entries]
    if known and links:
        of_links = {index: _names_by_entry(walk, rows, index) for index in links}
        inside = {name for read in of_links.values() for each in read for name in each or ()}
        # A kernel that no link has belongs to any of them: the first will do.
        brought = [each for each in known.values() if not each.of_runtime]
        nowhere = [name for each in brought for name in host.of(each) if name not in inside]
        managed = {name for each in brought for name in each.managed}
        for index, read in of_links.items():
            lacks = _absent(read, host, nowhere if index == links[0] else ())
            found[index] = tuple(replace(each, managed=managed.issuperset(each.names)) for each in lacks)
    apart = [
        index
        for index, each in enumerate(walk.containers)
        if index not in found and FATBIN_SECTIONS.get(each.section, not each.section) and len(each.entries) > 1
    ]
    if sum(entry.real for index in apart for entry in walk.containers[index].entries) <= _COMPARED:
        for index in apart:
            found[index] = tuple(_absent(_names_by_entry(walk, rows, index), host))
    return {index: each for index, each in found.items() if each}


def _names_by_entry(walk: Walk, rows: Sequence[DeviceCode], index: int) -> list[dict[str, None] | None]:
    """The kernels and variables of each entry; None where they cannot be read."""
    read = [
        names(walk, entry, rows[entry.row]) if rows[entry.row].kind in ("cubin", "ptx") else None
        for entry in walk.containers[index].entries
    ]
    return [dict.fromkeys((*each.kernels, *each.variables)) if each else None for each in read]


def _absent(read: Sequence[Mapping[str, None] | None], host: Host, nowhere: Sequence[str] = ()) -> Iterator[Absent]:
    every = dict.fromkeys(name for each in read for name in each or ())
    for place, each in enumerate(read):
        if each is None:
            continue
        missing = [*nowhere, *(name for name in every if name not in each and host.registers(name))]
        if missing:
            everything = not any(map(host.registers, each))
            yield Absent(entry=place, names=tuple(missing[:_SHOWN]), everything=everything)


def least_to_read(entries: Sequence[RawEntry], rows: Sequence[DeviceCode]) -> RawEntry | None:
    """The smallest cubin, of which one table is read; else the smallest PTX, of which every line is."""
    readable = [entry for entry in entries if rows[entry.row].kind in ("cubin", "ptx")]
    return min(readable, key=lambda entry: (rows[entry.row].kind == "ptx", entry.real), default=None)


def compiled_for(entries: Sequence[RawEntry], rows: Sequence[DeviceCode]) -> frozenset[tuple[str, str | None]]:
    """What decides which GPUs and drivers can use the entries of a container."""
    return frozenset((rows[entry.row].arch, rows[entry.row].ptx_isa) for entry in entries)


def names(walk: Walk, entry: RawEntry, row: DeviceCode) -> Symbols | None:
    """Those in a cubin or in PTX; None where it cannot be read."""
    try:
        data = payload.read(walk.buffer, entry.payload_offset, entry.stored, entry.real, row.compression)
        if row.kind == "ptx":
            return cubin.ptx_symbols(data)
        found = cubin.read(walk.buffer.name, data)
        return found.symbols() if found.has_symbols else None
    except MalformedError:  # told where the toolkits are read
        return None
