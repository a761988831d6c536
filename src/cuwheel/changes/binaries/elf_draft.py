"""Where everything goes in an ELF file with other device code. Nothing is written here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import elf_writer, layout, loader, references, zones
from cuwheel.changes.binaries.draft import Draft, Kept, Section, must_lead_to_containers, no_room, rewritten
from cuwheel.changes.binaries.fatbin_writer import Piece, behind, pack
from cuwheel.changes.binaries.geometry import PAGES, Cut, Shift
from cuwheel.device_code import elf
from cuwheel.device_code.image import FATBIN_SECTIONS, disjoint
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.changes.binaries.fatbin_writer import NewContainer, Packed
    from cuwheel.changes.binaries.layout import Annex, Layout
    from cuwheel.changes.binaries.references import Reference, SymbolAt
    from cuwheel.device_code.elf import Elf, Header
    from cuwheel.device_code.libraries import Registration

_TYPES = (2, 3)  # executables and shared objects; an object file has yet to be linked
_LEAST_ALIGNMENT, _MOST_ALIGNMENT = 8, 4096
_TRAILING = 16  # zeros that some tools leave behind the last table


def drafted(
    file: Elf, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises as `drafting.draft` does."""
    _must_be_unwritten(file, blank)
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
        old_size=file.buffer.size,
        containers=containers,
        registration=registration,
        emptied=blank,
        replacements={},
        placed=placed,
        pieces=tuple(_pieces(file, made, containers, blank, shift)),
        patches=patches,
        shift=shift,
        size=elf_writer.size(file, tables, made),
        findings=(no_room(made.zeros, "program headers"),) if made.zeros else (),
    )


def check(file: Elf) -> None:
    name = file.buffer.name
    if file.machine_name not in PAGES:
        raise MalformedError(
            name, f"only binaries for {' and '.join(PAGES)} can be rewritten, and this one is for {file.machine_name}"
        )
    if file.type not in _TYPES or not any(each.type == elf.PT_LOAD for each in file.segments):
        raise MalformedError(name, "it is not linked yet: leave device code out when building it instead")
    end = elf.extent(file)
    behind = file.buffer.size - end
    if behind > _TRAILING or any(file.buffer.read(end, behind)):
        raise MalformedError(name, f"{behind:,} bytes follow the end of the file, which may be a signature")
    if disjoint(file.sections())[1]:
        raise MalformedError(name, "its sections overlap")
    programs = elf_writer.read(file).programs
    loader.must_have_all_segments(file, programs.offset, programs.end)


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
    must_lead_to_containers(
        file.buffer.name, [each.target for each in pointers], file.addresses.offset_of, containers, moved
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
    gone = [*made.cuts, *(Cut(each.start - len(each.header), each.end) for each in blank)]
    headers = [(file.headers[number], packed) for number, packed in made.packed.items()]
    sections = [Section(header.offset, header.offset + header.size, packed) for header, packed in headers]
    yield from rewritten(Kept(file.buffer.size, gone, shift, shift.placed), sections, containers, blank)
    if made.block:
        yield Piece(shift.placed(made.block.to), made.block.end - made.block.start, made.block.start)


def _must_be_unwritten(file: Elf, blank: Sequence[Emptied]) -> None:
    """What the loader relocates is no device code, whatever it looks like."""
    if (address := next(references.written(file, list(_addresses(file, blank))), None)) is not None:
        raise MalformedError(file.buffer.name, f"its loader writes into what seems to be device code, at {address:#x}")


def _addresses(file: Elf, blank: Sequence[Emptied]) -> Iterator[tuple[int, int]]:
    for each in blank:
        if (address := loader.loaded_at(file, each.start)) is not None:
            yield address, address + each.end - each.start
