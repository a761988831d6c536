"""A PE file with other device code: which bytes can go, where everything goes, and its tables. Nothing is written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import elf_references, pe_references
from cuwheel.changes.binaries.draft import (
    Cut,
    Draft,
    Kept,
    Section,
    Shift,
    must_lead_to_containers,
    no_room,
    pack_behind,
    pack_containers,
    rewritten_pieces,
    round_down,
    round_up,
    uncut_parts,
)
from cuwheel.changes.binaries.pe_references import MOST_SECTIONS, Fields, Pointer
from cuwheel.changes.binaries.plan import WINDOWS_MACHINES
from cuwheel_core.device_code.pe import (
    CERTIFICATES,
    COFF,
    DEBUG,
    DIRECTORIES_AT,
    EXECUTABLE,
    RELOCATIONS,
    SECTION,
    Pe,
    Row,
)
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel.changes.binaries.draft import Emptied, NewContainer, Packed, Patch, Piece
    from cuwheel_core.device_code.libraries import Registration


_FORCE_INTEGRITY = 0x80
_LEAST_ALIGNMENT, _MOST_ALIGNMENT = 8, 64


def check_pe(file: Pe, *, drop_signature: bool) -> None:
    """Raises MalformedError, with what it is about the file that forbids changing it."""
    name = file.buffer.name
    if file.machine not in WINDOWS_MACHINES:
        words = f"only Windows binaries for {' and '.join(WINDOWS_MACHINES)} can be rewritten, not for {file.machine}"
        raise MalformedError(name, words)
    if file.file_type not in ("shared", "executable"):
        raise MalformedError(name, "it is not linked yet: leave device code out when building it instead")
    if not file.directory(RELOCATIONS)[1]:
        raise MalformedError(name, "it has no base relocations, so what points at its device code is not known")
    if file.signed and pe_references.read_fields(file).traits & _FORCE_INTEGRITY:
        raise MalformedError(name, "Windows loads it with a valid signature only, and no change leaves that valid")
    if file.signed and not drop_signature:
        raise MalformedError(name, "it is signed, and no change leaves the signature valid")
    pe_references.rules_must_hold(file)
    if pe_references.read_load_config(file).hybrid:
        raise MalformedError(name, "it has code for two kinds of processors (ARM64EC, ARM64X)")


def draft_pe(
    file: Pe, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before.

    Raises MalformedError, with what it is about the file that forbids changing it.
    """
    head = pe_references.read_fields(file)
    packed = _packed(file, head, containers)
    # What the loader relocates is no device code, whatever it looks like.
    ranges = [
        (row.address + each.start - row.offset, row.address + each.end - row.offset)
        for each in blank
        for row in file.rows
        if row.offset <= each.start < row.offset + row.stored
    ]
    if ranges and (address := pe_references.first_written(file, ranges)) is not None:
        raise MalformedError(file.buffer.name, f"its loader writes into what seems to be device code, at {address:#x}")
    made = plan_layout(file, head, packed, blank)
    moved, placed = {}, {}
    for number, each in packed.items():
        row = file.rows[number]
        for old, new in each.places.items():
            moved[row.address + old - row.offset] = made.address(number, new)
            placed[old] = made.placed(new)
    changed = [(file.rows[number].address, file.rows[number].end) for number in packed]
    pointers = tuple(pe_references.pointers_into(file, changed)) if changed else ()
    name = file.buffer.name
    must_lead_to_containers(name, [each.target for each in pointers], file.addresses.offset_of, containers, moved)
    _check_others(file, changed, [old for old, new in moved.items() if old != new])
    try:
        patches = tuple(table_patches(file, head, made, moved, pointers))
    except struct.error as error:
        raise MalformedError(name, "its tables contain invalid numbers") from error
    return Draft(
        old_size=file.buffer.size,
        containers=containers,
        registration=registration,
        emptied=blank,
        replacements={},
        placed=placed,
        pieces=tuple(_pieces(file, made, containers, blank)),
        patches=patches,
        shift=made.shift,
        size=new_size(file, made),
        findings=(no_room(made.zeros, "section headers"),) if made.zeros else (),
        checksum_at=file.header_at + COFF.size + pe_references.CHECKSUM_AT if head.checksum else None,
    )


def _packed(file: Pe, head: Fields, containers: Sequence[NewContainer]) -> dict[int, Packed]:
    """Each section that something changes in, by its number."""
    packed: dict[int, Packed] = {}
    annex = annex_start(file, head)
    for section in file.sections:
        end = section.offset + section.size
        inside = [each for each in containers if section.offset <= each.old.offset < end]
        if section.name not in FATBIN_SECTIONS or not any(each.size != each.old.size for each in inside):
            continue
        # What all of them follow: an image does not tell.
        step = _MOST_ALIGNMENT
        while step > _LEAST_ALIGNMENT and any((each.old.offset - section.offset) % step for each in inside):
            step //= 2
        alignment = step
        if sum(each.size for each in inside) > sum(each.old.size for each in inside):
            found = pack_behind(inside, annex, alignment)
            annex = round_up((found.annexed or (0, annex))[1], head.section_alignment)
        elif (fitting := pack_containers(inside, section.offset, end, alignment)) is not None:
            found = fitting
        else:
            raise MalformedError(file.buffer.name, f"{section.name} has an alignment that its contents do not follow")
        packed[section.number] = found
    return packed


def _check_others(file: Pe, changed: Sequence[tuple[int, int]], moving: Sequence[int]) -> None:
    """Ways to device code that cannot be changed with it."""
    if (address := pe_references.first_exported(file, changed)) is not None:
        raise MalformedError(file.buffer.name, f"it exports a symbol in its device code, at {address:#x}")
    if (address := pe_references.loaded_by_code(file, moving)) is not None:
        raise MalformedError(file.buffer.name, f"its code takes the address of a container, at {address:#x}")


def _pieces(file: Pe, made: Layout, containers: Sequence[NewContainer], blank: Sequence[Emptied]) -> Iterator[Piece]:
    gone = [*made.cuts, *(Cut(each.start - len(each.header), each.end) for each in blank)]
    gone.append(Cut(made.old_headers_size, made.old_headers_size))  # where the headers grow, the rest moves away
    sections = [
        Section(file.rows[number].offset, file.rows[number].offset + file.rows[number].stored, packed)
        for number, packed in made.packed.items()
    ]
    yield from rewritten_pieces(Kept(file.buffer.size, gone, made.shift, made.placed), sections, containers, blank)


# Which bytes of a PE file can go once its device code is packed, and how the loader is told.
# Addresses stay. Behind its bytes a section may have more memory, which the loader fills with zeros: so what nobody
# needs at a section's end goes by itself, and in its middle by making two sections of it. The table of sections has
# room up to where the first section is loaded: the headers grow, and everything behind them moves in the file. Device
# code that has grown goes into a section more, behind all others in the file and in memory.

_SMALLEST_HOLE = 1 << 14  # worth a section of its own behind it
_PADDING = 64  # zeros between two pieces of code that go: nothing is lost with them


class Part(NamedTuple):
    """A section of the new file: what is left of the old one `number`, from and to in the old file."""

    number: int
    start: int
    end: int
    address: int
    memory: int


class Layout(NamedTuple):
    """`annexed`: from where on an offset is one of device code that has grown, and where that goes in the new file.

    `zeros`: bytes that stay for want of room in the table of sections.
    """

    packed: Mapping[int, Packed]
    parts: tuple[Part, ...]
    shift: Shift
    cuts: tuple[Cut, ...]
    old_headers_size: int
    headers_size: int
    annexed: tuple[int, int]
    zeros: int

    def placed(self, offset: int) -> int:
        """Where a place is in the new file."""
        if offset >= self.annexed[0]:
            return offset - self.annexed[0] + self.annexed[1]
        return self.shift.placed(offset)

    def address(self, number: int, offset: int) -> int:
        """Where a part of the old section `number` is loaded that stands at `offset`."""
        mine = (each for each in self.parts if each.number == number)
        home = next(each for each in mine if each.start <= offset < max(each.end, each.start + 1))
        return home.address + offset - home.start


def content_end(file: Pe) -> int:
    """Where a file ends without its signature. Raises MalformedError where something stands behind that."""
    place, size = file.directory(CERTIFICATES)
    if not size:
        return file.buffer.size
    if round_up(place + size, 8) < file.buffer.size:
        raise MalformedError(file.buffer.name, "something follows its signature")
    return place


def annex_start(file: Pe, head: Fields) -> int:
    """The first place behind every offset of the old file that suits all alignments."""
    return round_up(file.buffer.size, max(head.section_alignment, head.file_alignment))


def plan_layout(file: Pe, head: Fields, packed: Mapping[int, Packed], blank: Sequence[Emptied]) -> Layout:
    annexes = tuple(_annexes(file, head, packed))
    room = _room(file, head) - len(annexes)
    if room < 0:
        raise MalformedError(file.buffer.name, "there is no room for another section header")
    used = {number: _used(file, row, packed.get(number), blank) for number, row in enumerate(file.rows)}
    ends = [cut for number, row in enumerate(file.rows) for cut in _behind(row, head, used[number])]
    middle = [cut for number, row in enumerate(file.rows) for cut in _between(row, head, used[number])]
    middle.sort(key=lambda cut: -cut.size)
    chosen = middle[:room]
    parts = tuple(_parts(file, [*ends, *chosen])) + annexes
    headers = max(head.headers_size, round_up(head.table_at + len(parts) * SECTION.size, head.file_alignment))
    end = content_end(file)
    cuts = tuple(sorted([*ends, *chosen, Cut(end, file.buffer.size)] if end < file.buffer.size else [*ends, *chosen]))
    shift = Shift(cuts, inserted=(headers - head.headers_size, head.headers_size))
    return Layout(
        packed=packed,
        parts=parts,
        shift=shift,
        cuts=cuts,
        old_headers_size=head.headers_size,
        headers_size=headers,
        annexed=(annex_start(file, head), round_up(shift.placed(end), head.file_alignment)),
        zeros=sum(cut.size for cut in middle[room:]),
    )


def _annexes(file: Pe, head: Fields, packed: Mapping[int, Packed]) -> Iterator[Part]:
    address, start = head.image_size, annex_start(file, head)
    for number, each in sorted(packed.items()):
        if each.annexed:
            if _has_overlay(file):
                raise MalformedError(file.buffer.name, "something follows its sections, which would have to stay last")
            end = each.annexed[1]
            yield Part(number, start, round_up(end, head.file_alignment), address, end - start)
            address, start = (
                address + round_up(end - start, head.section_alignment),
                round_up(end, head.section_alignment),
            )


def _has_overlay(file: Pe) -> bool:
    """Whether others put something behind the sections: installers do, and look for it at the file's end."""
    end = max(row.offset + row.stored for row in file.rows)
    return content_end(file) > end and not file.symbols_at


def _room(file: Pe, head: Fields) -> int:
    """How many rows more the table of sections can have."""
    end = head.table_at + len(file.rows) * SECTION.size
    if not elf_references.is_blank(file.buffer, end, head.headers_size):  # such as bound imports
        return 0
    return min((file.rows[0].address - end) // SECTION.size, MOST_SECTIONS - len(file.rows))


def _used(file: Pe, row: Row, packed: Packed | None, blank: Sequence[Emptied]) -> list[tuple[int, int]]:
    """The parts of a section's bytes that are needed."""
    whole = packed.islands if packed else ((row.offset, row.offset + row.stored),) if row.stored else ()
    gone = [Cut(each.start, each.end) for each in blank] if not row.traits & EXECUTABLE else []
    found = [part for start, end in whole for part in uncut_parts(start, end, gone)]
    return [
        (start, end)
        for start, end in found
        if end - start >= _PADDING or (start, end) in whole or not elf_references.is_blank(file.buffer, start, end)
    ]


def _behind(row: Row, head: Fields, used: Sequence[tuple[int, int]]) -> Iterator[Cut]:
    """What follows the last byte needed."""
    end = used[-1][1] if used else row.offset
    cut = Cut(row.offset + round_up(end - row.offset, head.file_alignment), row.offset + row.stored)
    if cut.size > 0:
        yield cut


def _between(row: Row, head: Fields, used: Sequence[tuple[int, int]]) -> Iterator[Cut]:
    """What follows must begin where a section can."""
    end = row.offset
    for start, stop in used:
        low = row.offset + round_up(end - row.offset, head.file_alignment)
        high = row.offset + round_down(start - row.offset, head.section_alignment)
        if high - low >= _SMALLEST_HOLE:
            yield Cut(low, high)
        end = stop


def _parts(file: Pe, cuts: Sequence[Cut]) -> Iterator[Part]:
    for number, row in enumerate(file.rows):
        end = row.offset + row.stored
        inside = sorted(cut for cut in cuts if row.offset <= cut.start and cut.end <= end and row.stored)
        start, memory_end = row.offset, row.end
        for cut in inside:
            if cut.end < end:
                yield Part(number, start, cut.start, row.address + start - row.offset, cut.end - start)
                start = cut.end
            else:
                end = cut.start
        address = row.address + start - row.offset
        yield Part(number, start, end, address, memory_end - address)


_WORD = struct.Struct("<Q")
_DEBUG = struct.Struct("<IIHHIIII")
_MOST_DEBUG = 1 << 10
_SYMBOL = struct.Struct("<8sIhHBB")
_SYMBOLS_AT_ONCE = 1 << 12
_INITIALIZED = 0x40
_COUNT_AT, _SYMBOLS_AT = 6, 12  # in the COFF header


def table_patches(
    file: Pe, head: Fields, layout: Layout, moved: Mapping[int, int], pointers: Sequence[Pointer]
) -> Iterator[Patch]:
    """`moved`: from the old address of a container to its new one."""
    yield file.header_at + _COUNT_AT, struct.pack("<H", len(layout.parts))
    if file.symbols_at:
        yield file.header_at + _SYMBOLS_AT, struct.pack("<I", layout.shift.placed(file.symbols_at))
    yield file.header_at + COFF.size, _optional(file, head, layout)
    yield head.table_at, b"".join(SECTION.pack(*each) for each in _rows(file, layout))
    for each in pointers:
        if (new := moved.get(each.target, each.target)) != each.target:
            yield layout.placed(each.slot), _WORD.pack(file.image_base + new)
    yield from _debug(file, layout)
    numbers = _Numbers(file, layout)
    found = pe_references.read_load_config(file)
    if numbers.known(found.table_section):
        address = file.rows[found.table_section - 1].address + found.table_offset
        section, offset = numbers.of(found.table_section, address)
        yield layout.placed(found.table_at), pe_references.LOAD_CONFIG_TABLE.pack(offset, section)
    yield from _symbols(file, layout, moved, numbers)


def new_size(file: Pe, layout: Layout) -> int:
    last = max((layout.placed(part.start) + part.end - part.start for part in layout.parts), default=0)
    return max(last, layout.shift.placed(file.buffer.size))


def _optional(file: Pe, head: Fields, layout: Layout) -> bytes:
    new = bytearray(file.optional)
    before = sum(row.stored for row in file.rows if row.traits & _INITIALIZED)
    after = sum(part.end - part.start for part in layout.parts if file.rows[part.number].traits & _INITIALIZED)
    (data,) = struct.unpack_from("<I", new, pe_references.INITIALIZED_SIZE_AT)
    struct.pack_into("<I", new, pe_references.INITIALIZED_SIZE_AT, max(data + after - before, 0))
    last = layout.parts[-1]
    struct.pack_into(
        "<II",
        new,
        pe_references.IMAGE_SIZE_AT,
        round_up(last.address + last.memory, head.section_alignment),
        layout.headers_size,
    )
    if file.signed:
        struct.pack_into("<II", new, DIRECTORIES_AT + 8 * CERTIFICATES, 0, 0)
    return bytes(new)


def _rows(file: Pe, layout: Layout) -> Iterator[tuple[bytes, int, int, int, int, int, int, int, int, int]]:
    for part in layout.parts:
        row = file.rows[part.number]
        stored = part.end - part.start
        place = layout.placed(part.start) if stored else 0
        yield (
            row.name,
            part.memory,
            part.address,
            stored,
            place,
            layout.shift.placed(row.relocations_at) if row.relocations_at else 0,
            layout.shift.placed(row.lines_at) if row.lines_at else 0,
            row.relocations,
            row.lines,
            row.traits,
        )


def _debug(file: Pe, layout: Layout) -> Iterator[Patch]:
    """Debug directories say where their data is in the file, too."""
    place, length = file.directory(DEBUG)
    at = file.addresses.offset_of(place) if length else None
    if at is None:
        return
    if length > _MOST_DEBUG * _DEBUG.size:
        raise MalformedError(file.buffer.name, f"its debug directory claims {length:,} bytes")
    for index in range(length // _DEBUG.size):
        here = at + index * _DEBUG.size
        *others, offset = _DEBUG.unpack(file.buffer.read(here, _DEBUG.size))
        if offset:
            yield layout.placed(here), _DEBUG.pack(*others, layout.shift.placed(offset))


class _Numbers:
    """Sections have other numbers where one became two. Numbers begin with 1."""

    def __init__(self, file: Pe, layout: Layout) -> None:
        self._file = file
        self._parts: dict[int, list[tuple[int, Part]]] = {}
        for number, part in enumerate(layout.parts, start=1):
            self._parts.setdefault(part.number, []).append((number, part))

    def of(self, number: int, address: int) -> tuple[int, int]:
        """Returns which section now has what was at `address` of the old section `number`, and the offset in it."""
        parts = self._parts[number - 1]
        inside = [each for each in parts if each[1].address <= address]
        new, part = inside[-1] if inside else parts[0]
        return new, max(address - part.address, 0)

    def known(self, number: int) -> bool:
        return 0 < number <= len(self._file.rows)


def _symbols(file: Pe, layout: Layout, moved: Mapping[int, int], numbers: _Numbers) -> Iterator[Patch]:
    """Local names of containers follow them."""
    skip = 0
    for index in range(0, file.symbols if file.symbols_at else 0, _SYMBOLS_AT_ONCE):
        at = file.symbols_at + index * _SYMBOL.size
        count = min(_SYMBOLS_AT_ONCE, file.symbols - index)
        for row, fields in enumerate(_SYMBOL.iter_unpack(file.buffer.read(at, count * _SYMBOL.size))):
            if skip:  # what follows a symbol to tell more of it
                skip -= 1
                continue
            name, value, number, *rest, skip = fields
            if numbers.known(number):
                address = file.rows[number - 1].address + value
                new_number, new_value = numbers.of(number, moved.get(address, address))
                if (new_number, new_value) != (number, value):
                    new = _SYMBOL.pack(name, new_value, new_number, *rest, skip)
                    yield layout.placed(at + row * _SYMBOL.size), new
