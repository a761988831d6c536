"""A plan applied to the bytes of a file: where everything goes in the new one. Nothing is written here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.binary import elf_writer, emptied, layout, loader, references, zones
from cuwheel.binary.fatbin_writer import NewContainer, Piece, behind, pack, pieces, rebuilt
from cuwheel.binary.geometry import PAGES, Cut, Shift, without
from cuwheel.errors import MalformedError
from cuwheel.finding import Finding
from cuwheel.inspection import elf, fatbin, limits, wrappers
from cuwheel.inspection.image import FATBIN_SECTIONS, WRAPPER_SECTIONS, disjoint
from cuwheel.inspection.relocations import ElfPointers
from cuwheel.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.binary.decisions import LibraryPlan
    from cuwheel.binary.elf_writer import Patch
    from cuwheel.binary.emptied import Emptied
    from cuwheel.binary.fatbin_writer import Packed, Replacement
    from cuwheel.binary.layout import Annex, Layout
    from cuwheel.binary.references import Reference, SymbolAt
    from cuwheel.buffer import Buffer
    from cuwheel.inspection.elf import Elf, Header
    from cuwheel.inspection.libraries import Registration

_TYPES = (2, 3)  # executables and shared objects; an object file has yet to be linked
_LEAST_ALIGNMENT, _MOST_ALIGNMENT = 8, 4096
_TRAILING = 16  # zeros that some tools leave behind the last table


class Draft(NamedTuple):
    """`placed`: from the old offset of a container to the new. `patches` go over the pieces."""

    elf: Elf
    containers: tuple[NewContainer, ...]
    registration: Registration
    emptied: tuple[Emptied, ...]
    replacements: Mapping[int, Replacement]
    placed: Mapping[int, int]
    pieces: tuple[Piece, ...]
    patches: tuple[Patch, ...]
    shift: Shift
    size: int
    findings: tuple[Finding, ...]


def draft(buffer: Buffer, plan: LibraryPlan, replacements: Mapping[int, Replacement]) -> Draft:
    """Of a library with less: raises MalformedError, with what it is about the file that forbids changing it."""
    file = elf.read(buffer)
    check_file(file)
    walk, registration = walked(file)
    containers = _containers(buffer, walk, registration, plan, replacements)
    stay = [each for each in containers if each.pinned and not each.entries and each.old.entries]
    blank = emptied.find(file, plan, stay)
    return drafted(file, containers, registration, blank)._replace(replacements=replacements)


def drafted(
    file: Elf, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises as `draft` does."""
    packed, annex = _packed(file, containers)
    changed = [(header.address, header.address + header.size) for header in (file.headers[each] for each in packed)]
    loader.must_agree(file, [file.headers[each] for each in packed])
    pointers = tuple(references.pointers(file, changed))
    tables = elf_writer.read(file)
    made = layout.plan(file, tables.programs, tables.places, packed, blank, annex)
    shift = Shift(made.cuts, made.block)
    moved, placed = _moves(file, made, shift)
    _check_pointers(file, pointers, containers, moved)
    split = [(each.address, each.address + each.size) for each in (file.headers[number] for number in made.emptied)]
    moving = [*changed, *split, *_block_addresses(file, made)]
    symbols = tuple(references.symbols(file, moving))
    _check_symbols(file.buffer.name, symbols, changed)
    try:
        patches = tuple(elf_writer.patches(file, tables, made, moved, pointers, symbols))
    except struct.error as error:
        raise MalformedError(file.buffer.name, "its tables contain invalid numbers") from error
    return Draft(
        elf=file,
        containers=containers,
        registration=registration,
        emptied=blank,
        replacements={},
        placed=placed,
        pieces=tuple(_pieces(file, made, containers, blank, shift)),
        patches=patches,
        shift=shift,
        size=elf_writer.size(file, tables, made),
        findings=(_no_room(made.zeros),) if made.zeros else (),
    )


def check_file(file: Elf) -> None:
    name = file.buffer.name
    if file.machine_name not in PAGES:
        raise MalformedError(
            name, f"only binaries for {' and '.join(PAGES)} can be rewritten, and this one is for {file.machine_name}"
        )
    if file.type not in _TYPES or not file.segments:
        raise MalformedError(name, "it is not linked yet: leave device code out when building it instead")
    end = elf.extent(file)
    behind = file.buffer.size - end
    if behind > _TRAILING or any(file.buffer.read(end, behind)):
        raise MalformedError(name, f"{behind:,} bytes follow the end of the file, which may be a signature")
    if disjoint(file.sections())[1]:
        raise MalformedError(name, "its sections overlap")


def walked(file: Elf) -> tuple[fatbin.Walk, Registration]:
    """The containers in the sections made for them, and what names them. Raises MalformedError on any damage."""
    walk = fatbin.Walk(file.buffer)
    sections, _ = disjoint(file.sections())
    with limits.collected() as met:
        for each in sections:
            if each.name in FATBIN_SECTIONS:
                walk.section(each.name, each.offset, each.offset + each.size, linked=FATBIN_SECTIONS[each.name])
        pointers = ElfPointers(file, tuple(WRAPPER_SECTIONS))
        found, problems = wrappers.read(file.buffer, sections, walk.containers, pointers)
    if problem := next(iter((*walk.findings, *problems, *met)), None):
        raise MalformedError(file.buffer.name, problem.message)
    return walk, found


def _containers(
    buffer: Buffer,
    walk: fatbin.Walk,
    registration: Registration,
    plan: LibraryPlan,
    replacements: Mapping[int, Replacement],
) -> tuple[NewContainer, ...]:
    decisions = {each.entry.offset: each for each in plan.entries if each.entry.section in FATBIN_SECTIONS}
    found = {entry.offset: entry.header_size + entry.payload for each in walk.containers for entry in each.entries}
    if found != {offset: each.bytes for offset, each in decisions.items()}:
        raise MalformedError(buffer.name, "it is not the file that was planned for")
    unnamed = set(registration.unnamed) if registration.wrappers else set(range(len(walk.containers)))
    made = []
    for index, old in enumerate(walk.containers):
        keep = [entry for entry in old.entries if decisions[entry.offset].keep]
        replaced = {entry.offset: new for entry in keep if (new := replacements.get(entry.offset))}
        changes = len(keep) != len(old.entries) or replaced
        if changes and keep and index in unnamed:
            raise MalformedError(
                buffer.name, f"nothing refers to the container at {old.offset:#x}, of which a part was to go"
            )
        start = old.entries[0].offset if old.entries else old.offset + old.size
        head = buffer.read(old.offset, start - old.offset)
        made.append(rebuilt(old, head, keep, replaced, pinned=index in unnamed))
    return tuple(made)


def _packed(file: Elf, containers: Sequence[NewContainer]) -> tuple[dict[int, Packed], Annex | None]:
    """Each section that something changes in; the annex where one has grown beyond its place."""
    packed, annex = {}, layout.annex_start(file)
    for header in file.headers:
        inside = [each for each in containers if header.offset <= each.old.offset < header.offset + header.size]
        if header.name not in FATBIN_SECTIONS or not any(each.size != each.old.size for each in inside):
            continue
        if zones.segment_of(file, header) is None:
            raise MalformedError(file.buffer.name, f"{header.name} is not loaded in one piece")
        alignment = _alignment(file, header)
        if sum(each.size for each in inside) > sum(each.old.size for each in inside):
            packed[header.number] = behind(inside, annex.end, alignment)
            annex = annex._replace(end=(packed[header.number].annexed or (0, annex.end))[1])
        elif found := pack(inside, header.offset, header.offset + header.size, alignment):
            packed[header.number] = found
        else:
            raise MalformedError(file.buffer.name, f"{header.name} has an alignment that its contents do not follow")
    return packed, annex if annex.end > annex.start else None


def _alignment(file: Elf, header: Header) -> int:
    wanted = elf_writer.read(file).sections[header.number][8]
    return min(max(wanted, _LEAST_ALIGNMENT), _MOST_ALIGNMENT)


def _moves(file: Elf, made: Layout, shift: Shift) -> tuple[dict[int, int], dict[int, int]]:
    """From the old address of a container to the new one, and from its old offset to the new one."""
    moved, placed = {}, {}
    for number, each in made.packed.items():
        header = file.headers[number]
        for old, new in each.places.items():
            moved[header.address + old - header.offset] = made.address(header, new)
            placed[old] = shift.placed(new)
    return moved, placed


def _check_pointers(
    file: Elf, pointers: Sequence[Reference], containers: Sequence[NewContainer], moved: Mapping[int, int]
) -> None:
    still = [(each.old.offset, each.old.offset + each.old.size) for each in containers if each.pinned]
    for each in pointers:
        at = file.addresses.offset_of(each.target)
        if each.target not in moved and not any(at is not None and start <= at < end for start, end in still):
            problem = f"something points into its device code at {each.target:#x}, not at a container"
            raise MalformedError(file.buffer.name, problem)
    named = {each.target for each in pointers}
    if unknown := [old for old, new in moved.items() if old != new and old not in named]:
        raise MalformedError(
            file.buffer.name, f"the reference to the container at {unknown[0]:#x} is of an unknown kind"
        )
    if file.type == references.TYPE_EXECUTABLE:
        moving = [old for old, new in moved.items() if old != new]
        if (word := next(references.words_like(file, moving), None)) is not None:
            raise MalformedError(file.buffer.name, f"its data seems to refer to a container too, at {word:#x}")


def _check_symbols(name: str, symbols: Sequence[SymbolAt], changed: Sequence[tuple[int, int]]) -> None:
    """A name that others can ask for may be how the library's own code finds a container: that must not move."""
    for each in symbols:
        if each.exported and any(start <= each.value < end for start, end in changed):
            raise MalformedError(name, f"it exports a symbol in its device code, at {each.value:#x}")


def _block_addresses(file: Elf, made: Layout) -> Iterator[tuple[int, int]]:
    if made.block:
        for header in file.headers:
            if header.address and made.block.holds(header.offset):
                yield header.address, header.address + max(header.size, 1)


def _pieces(
    file: Elf, made: Layout, containers: Sequence[NewContainer], blank: Sequence[Emptied], shift: Shift
) -> Iterator[Piece]:
    position = 0
    gone = [*made.cuts, *(Cut(each.start - len(each.header), each.end) for each in blank)]
    for number in sorted(made.packed, key=lambda each: file.headers[each].offset):
        header = file.headers[number]
        yield from _host(position, header.offset, gone, shift)
        for each in containers:
            if each.old.offset in made.packed[number].places:
                yield from pieces(each, shift.placed(made.packed[number].places[each.old.offset]))
        position = header.offset + header.size
    yield from _host(position, file.buffer.size, gone, shift)
    for empty in blank:  # the headers stay
        if empty.header:
            yield Piece(shift.placed(empty.start - len(empty.header)), len(empty.header), data=empty.header)
    if made.block:
        yield Piece(shift.placed(made.block.to), made.block.end - made.block.start, made.block.start)


def _host(start: int, end: int, gone: Sequence[Cut], shift: Shift) -> Iterator[Piece]:
    for low, high in without(start, end, gone):
        yield Piece(shift.placed(low), high - low, low)


def _no_room(zeros: int) -> Finding:
    return Finding(
        rule="file-keeps-its-size",
        severity="note",
        message=f"{size(zeros)} of the removed device code stay in the file as zeros: there is no room for the "
        f"program headers needed to drop them",
    )
