"""Where everything goes in a PE file with other device code. Nothing is written here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import pe_layout, pe_load_config, pe_references, pe_rules, pe_writer
from cuwheel.changes.binaries.draft import Draft, Kept, Section, must_lead_to_containers, no_room, rewritten
from cuwheel.changes.binaries.fatbin_writer import behind, pack
from cuwheel.changes.binaries.geometry import Cut, up
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.device_code.pe import COFF, RELOCATIONS
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.changes.binaries.fatbin_writer import NewContainer, Packed, Piece
    from cuwheel.changes.binaries.pe_layout import Layout
    from cuwheel.changes.binaries.pe_rules import Fields
    from cuwheel.device_code.libraries import Registration
    from cuwheel.device_code.pe import Pe

MACHINES = pe_references.MACHINES
_FORCE_INTEGRITY = 0x80
_LEAST_ALIGNMENT, _MOST_ALIGNMENT = 8, 64


def check(file: Pe, *, drop_signature: bool) -> None:
    """Raises MalformedError, with what it is about the file that forbids changing it."""
    name = file.buffer.name
    if file.machine not in MACHINES:
        words = f"only Windows binaries for {' and '.join(MACHINES)} can be rewritten, not for {file.machine}"
        raise MalformedError(name, words)
    if file.file_type not in ("shared", "executable"):
        raise MalformedError(name, "it is not linked yet: leave device code out when building it instead")
    if not file.directory(RELOCATIONS)[1]:
        raise MalformedError(name, "it has no base relocations, so what points at its device code is not known")
    if file.signed and pe_rules.fields(file).traits & _FORCE_INTEGRITY:
        raise MalformedError(name, "Windows loads it with a valid signature only, and no change leaves that valid")
    if file.signed and not drop_signature:
        raise MalformedError(name, "it is signed, and no change leaves the signature valid")
    pe_rules.must_hold(file)
    if pe_load_config.read(file).hybrid:
        raise MalformedError(name, "it has code for two kinds of processors (ARM64EC, ARM64X)")


def drafted(
    file: Pe, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises as `drafting.draft` does."""
    head = pe_rules.fields(file)
    packed = _packed(file, head, containers)
    _must_be_unwritten(file, blank)
    made = pe_layout.plan(file, head, packed, blank)
    moved, placed = {}, {}
    for number, each in packed.items():
        row = file.rows[number]
        for old, new in each.places.items():
            moved[row.address + old - row.offset] = made.address(number, new)
            placed[old] = made.placed(new)
    changed = [(file.rows[number].address, file.rows[number].end) for number in packed]
    pointers = tuple(pe_references.pointers(file, changed)) if changed else ()
    name = file.buffer.name
    must_lead_to_containers(name, [each.target for each in pointers], file.addresses.offset_of, containers, moved)
    _check_others(file, changed, [old for old, new in moved.items() if old != new])
    try:
        patches = tuple(pe_writer.patches(file, head, made, moved, pointers))
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
        size=pe_writer.size(file, made),
        findings=(no_room(made.zeros, "section headers"),) if made.zeros else (),
        checksum_at=file.header_at + COFF.size + pe_rules.CHECKSUM_AT if head.checksum else None,
    )


def _packed(file: Pe, head: Fields, containers: Sequence[NewContainer]) -> dict[int, Packed]:
    """Each section that something changes in, by its number."""
    packed: dict[int, Packed] = {}
    annex = pe_layout.annex_start(file, head)
    for section in file.sections:
        end = section.offset + section.size
        inside = [each for each in containers if section.offset <= each.old.offset < end]
        if section.name not in FATBIN_SECTIONS or not any(each.size != each.old.size for each in inside):
            continue
        alignment = _alignment(section.offset, inside)
        if sum(each.size for each in inside) > sum(each.old.size for each in inside):
            found = behind(inside, annex, alignment)
            annex = up((found.annexed or (0, annex))[1], head.section_alignment)
        elif (fitting := pack(inside, section.offset, end, alignment)) is not None:
            found = fitting
        else:
            raise MalformedError(file.buffer.name, f"{section.name} has an alignment that its contents do not follow")
        packed[section.number] = found
    return packed


def _alignment(start: int, containers: Sequence[NewContainer]) -> int:
    """What all of them follow: an image does not tell."""
    step = _MOST_ALIGNMENT
    while step > _LEAST_ALIGNMENT and any((each.old.offset - start) % step for each in containers):
        step //= 2
    return step


def _must_be_unwritten(file: Pe, blank: Sequence[Emptied]) -> None:
    """What the loader relocates is no device code, whatever it looks like."""
    ranges = [
        (row.address + each.start - row.offset, row.address + each.end - row.offset)
        for each in blank
        for row in file.rows
        if row.offset <= each.start < row.offset + row.stored
    ]
    if ranges and (address := pe_references.written(file, ranges)) is not None:
        raise MalformedError(file.buffer.name, f"its loader writes into what seems to be device code, at {address:#x}")


def _check_others(file: Pe, changed: Sequence[tuple[int, int]], moving: Sequence[int]) -> None:
    """Ways to device code that cannot be changed with it."""
    if (address := pe_references.exported(file, changed)) is not None:
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
    yield from rewritten(Kept(file.buffer.size, gone, made.shift, made.placed), sections, containers, blank)
