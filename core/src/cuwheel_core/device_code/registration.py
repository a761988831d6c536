"""What the host registers of a file's device code: the names in containers, containers without any, and wrappers."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from cuwheel_core.device_code import cubin, fatbin, limits
from cuwheel_core.device_code.libraries import VERSION_LINKED, Absent, DeviceCode, Registration, Symbols, Wrapper
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, MODULE_ID_SECTIONS, WRAPPER_SECTIONS, Section
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.finding import Finding, finding
from cuwheel_core.support.patterns import lazy_pattern

if TYPE_CHECKING:
    from cuwheel_core.device_code.fatbin import RawContainer, RawEntry, Walk
    from cuwheel_core.support.buffer import Buffer


# What containers hold by name, and which of it the host registers: where some lack it, it decides what runs.

_OBJECTS_LIMIT = 1 << 28  # decompressed for it, at most; of the objects behind that no name is known
_COMPARED = 1 << 25  # of code that no device link made: in a file with more of it the entries are not compared
_STRINGS = (".rodata", ".rdata")
_STRINGS_LIMIT = 1 << 28
_SHOWN = 8


class HostStrings:
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


def symbols_by_container(
    walk: Walk, rows: Sequence[DeviceCode], host: HostStrings, device_linked: Collection[int]
) -> dict[int, Symbols]:
    """By container. Nothing where all objects were compiled for the same, and so was what a device link made of them:
    then every one fits a GPU, or none does.
    """
    found: dict[int, Symbols] = {}
    objects = {
        index: tuple(each.entries)
        for index, each in enumerate(walk.containers)
        if FATBIN_SECTIONS.get(each.section) is False
    }
    linked = [walk.containers[index].entries for index in device_linked if walk.containers[index].entries]
    lists = {compiled_for(entries, rows) for entries in objects.values()}
    if len(lists) <= 1 and not any(_left_out(entries, linked, rows) for entries in objects.values()):
        return found
    budget = _OBJECTS_LIMIT
    for index, entries in objects.items():
        smallest = least_to_read(entries, rows)
        if smallest is None:
            continue
        if smallest.real > budget:
            limits.met(f"{_OBJECTS_LIMIT:,} bytes of relocatable objects", "the names in the rest were not read")
            continue
        budget -= smallest.real
        if read := names_in_entry(walk, smallest, rows[smallest.row]):
            found[index] = replace(read, variables=tuple(filter(host.registers, read.variables)))
    return found


def _left_out(entries: Sequence[RawEntry], linked: Sequence[Sequence[RawEntry]], rows: Sequence[DeviceCode]) -> bool:
    """Whether a device link may have had nothing to take from this object."""
    own = {rows[entry.row].arch for entry in entries}
    return any(rows[entry.row].arch not in own for each in linked for entry in each)


def absent_by_container(
    walk: Walk,
    rows: Sequence[DeviceCode],
    host: HostStrings,
    device_linked: Collection[int],
    known: Mapping[int, Symbols],
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
        names_in_entry(walk, entry, rows[entry.row]) if rows[entry.row].kind in ("cubin", "ptx") else None
        for entry in walk.containers[index].entries
    ]
    return [dict.fromkeys((*each.kernels, *each.variables)) if each else None for each in read]


def _absent(
    read: Sequence[Mapping[str, None] | None], host: HostStrings, nowhere: Sequence[str] = ()
) -> Iterator[Absent]:
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


def names_in_entry(walk: Walk, entry: RawEntry, row: DeviceCode) -> Symbols | None:
    """Those in a cubin or in PTX; None where it cannot be read."""
    try:
        data = fatbin.read_payload(walk.buffer, entry.payload_offset, entry.stored, entry.real, row.compression)
        if row.kind == "ptx":
            return cubin.ptx_symbols(data)
        found = cubin.read_cubin(walk.buffer.name, data)
        return found.symbols() if found.has_symbols else None
    except MalformedError:  # told where the toolkits are read
        return None


# Which containers hold nothing that the host registers, neither kernel nor variable, so that they decide nothing.
# nvcc links one for its default architecture into plain executables and libraries, and makes one for every source file
# that has no kernel.

_LARGE_ENTRY = 1 << 20  # an entry of this size has kernels, for all that is looked
_BYTES_SEARCHED, _ENTRIES_SEARCHED = 1 << 25, 40_000  # read for it, at most


def containers_without_kernels(
    walk: Walk, rows: Sequence[DeviceCode], host: HostStrings, device_linked: Collection[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Their places in the file's list, and those that hold variables in managed memory alone. `device_linked`: the
    containers that a device link made.

    Containers of one architecture list serve the same GPUs. So the largest of a list is read first, and where that one
    has a kernel the others change no answer and are left unread.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for index, container in enumerate(walk.containers):
        if container.entries:
            served = compiled_for(container.entries, rows)
            alike.setdefault((served, container.section, index in device_linked), []).append(index)
    reader = _KernelSearch(walk, rows, host)
    found: set[int] = set()
    managed: set[int] = set()
    for group in alike.values():
        sizes = {index: sum(entry.real for entry in walk.containers[index].entries) for index in group}
        for index in sorted(group, key=lambda each: -sizes[each]):
            if not reader.without_kernels(walk.containers[index].entries):
                managed.update((index,) if reader.managed else ())
                break
            found.add(index)
    return frozenset(found), frozenset(managed)


class _KernelSearch:
    """Reads entries until it has read enough; of the others it is taken that they hold kernels."""

    def __init__(self, walk: Walk, rows: Sequence[DeviceCode], host: HostStrings) -> None:
        self._walk, self._rows, self._host = walk, rows, host
        self._bytes, self._entries = _BYTES_SEARCHED, _ENTRIES_SEARCHED
        self.managed = False  # of the container read last: nothing but variables in managed memory

    def without_kernels(self, entries: Sequence[RawEntry]) -> bool:
        self.managed = False
        if any(entry.real >= _LARGE_ENTRY or self._rows[entry.row].kind not in ("cubin", "ptx") for entry in entries):
            return False
        self.managed = True
        return all(map(self._without_kernel, sorted(entries, key=lambda entry: entry.real)))

    def _without_kernel(self, entry: RawEntry) -> bool:
        self._bytes -= entry.real
        self._entries -= 1
        if self._bytes < 0 or self._entries < 0:
            read = (
                f"{_ENTRIES_SEARCHED:,} entries or {_BYTES_SEARCHED >> 20} MiB of device code were searched for kernels"
            )
            limits.met(read, "the rest of the containers are assumed to hold kernels")
            return False
        names = names_in_entry(self._walk, entry, self._rows[entry.row])
        if names is None or names.kernels:
            self.managed = False
            return False
        registered = [*filter(self._host.registers, names.variables)]
        self.managed = self.managed and set(registered) <= set(names.managed)
        return not registered


# Registration data: the wrappers handed to the CUDA runtime, what each names, and module ids.

WRAPPER_MAGIC = 0x466243B1
WRAPPER_LAYOUT = struct.Struct("<IIQQ")
_POINTER_AT = 8
_STEP = 8  # wrappers hold pointers, and are aligned for them
_CONTENT = lazy_pattern(rb"[^\0]")
_MOST_WRAPPERS = 1 << 20
_MODULE_IDS_LIMIT = 1 << 22


class Pointers(Protocol):
    """How a file's pointers are found: relocations in ELF, addresses in place in PE."""

    def target(self, slot: int, value: int) -> int | None:
        """The file offset that the pointer at file offset `slot`, now holding `value`, will point at."""


def read_registration(
    buffer: Buffer, sections: Sequence[Section], containers: Sequence[RawContainer], pointers: Pointers
) -> tuple[Registration, tuple[Finding, ...]]:
    """What the CUDA runtime is handed at start-up: which wrapper names which container."""
    places = {container.offset: index for index, container in enumerate(containers)}
    found: list[Wrapper] = []
    named: set[int] = set()
    findings: list[Finding] = []
    arrays: set[int] = set()
    for section in sections:
        if section.name not in WRAPPER_SECTIONS:
            continue
        for slot, version, container, array in _wrappers(buffer, section):
            if version is None:
                findings.append(_damaged(section.name, slot))
                break
            at = pointers.target(slot + _POINTER_AT, container)
            index = places.get(at) if at is not None else None
            found.append(Wrapper(version=version, container=index))
            named.update(() if index is None else (index,))
            if version == VERSION_LINKED and array:
                named.update(_prelinked(buffer, pointers.target(slot + 16, array), pointers, places, arrays))
    registration = Registration(
        wrappers=tuple(found),
        module_ids=tuple(_module_ids(buffer, sections)),
        containers=len(containers),
        unnamed=tuple(index for index in range(len(containers)) if index not in named) if found else (),
    )
    return registration, tuple(findings)


def _wrappers(buffer: Buffer, section: Section) -> Iterator[tuple[int, int | None, int, int]]:
    """Zeros between and behind them are padding: incremental linking rounds each up to 32 bytes."""
    size = min(section.size, _MOST_WRAPPERS * WRAPPER_LAYOUT.size)
    if size < section.size:
        limits.met(f"{_MOST_WRAPPERS:,} wrappers in {section.name}", "what the rest register is not known")
    data = buffer.read(section.offset, size)
    at = 0
    while (found := _CONTENT.search(data, at)) and (at := found.start() // _STEP * _STEP) + WRAPPER_LAYOUT.size <= size:
        magic, version, container, array = WRAPPER_LAYOUT.unpack_from(data, at)
        if magic != WRAPPER_MAGIC:
            yield section.offset + at, None, 0, 0
            return
        yield section.offset + at, version, container, array
        at += WRAPPER_LAYOUT.size


def _prelinked(
    buffer: Buffer, at: int | None, pointers: Pointers, places: dict[int, int], seen: set[int]
) -> Iterator[int]:
    """Containers in the array that a device-linked wrapper names, where that array is in the file at all.

    Wrappers may share an array: each of its places is looked at once.
    """
    if at is None:
        return
    for place in range(at, buffer.size - 7, 8):
        if place in seen:
            return
        seen.add(place)
        (pointer,) = struct.unpack("<Q", buffer.read(place, 8))
        target = pointers.target(place, pointer)
        if target not in places:
            return
        yield places[target]


def _module_ids(buffer: Buffer, sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        if section.name in MODULE_ID_SECTIONS:
            if section.size > _MODULE_IDS_LIMIT:
                limits.met(f"{_MODULE_IDS_LIMIT:,} bytes of {section.name}", "the rest of the module ids were not read")
            for text in buffer.read(section.offset, min(section.size, _MODULE_IDS_LIMIT)).split(b"\0"):
                if text:
                    yield text.decode("utf-8", "replace")


def _damaged(section: str, slot: int) -> Finding:
    return finding(
        "registration-damaged",
        f"the registration data in {section} is damaged, so what it names is not known",
        evidence=(f"no wrapper at offset {slot:#x}",),
    )
