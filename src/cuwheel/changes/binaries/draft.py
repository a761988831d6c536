"""A library's new bytes as they will be written, whatever its format, and what its containers are now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.fatbin_writer import Piece, pieces
from cuwheel.changes.binaries.geometry import Cut, without
from cuwheel.device_code import elf, fatbin, limits, pe, wrappers
from cuwheel.device_code.image import FATBIN_SECTIONS, WRAPPER_SECTIONS, disjoint
from cuwheel.device_code.pe import Pe
from cuwheel.device_code.relocations import ElfPointers
from cuwheel.errors import MalformedError
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cuwheel.changes.binaries.elf_writer import Patch
    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.changes.binaries.fatbin_writer import NewContainer, Packed, Replacement
    from cuwheel.changes.binaries.geometry import Shift
    from cuwheel.device_code.elf import Elf
    from cuwheel.device_code.libraries import Registration
    from cuwheel.support.buffer import Buffer


class Draft(NamedTuple):
    """`placed`: from the old offset of a container to the new. `patches` go over the pieces.

    `checksum_at`: where the sum over the finished file goes, in a format that has one.
    """

    old_size: int
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
    checksum_at: int | None = None


def opened(buffer: Buffer) -> Elf | Pe:
    """Raises MalformedError where it is neither."""
    return pe.read(buffer) if pe.is_pe(buffer) else elf.read(buffer)


def walked(file: Elf | Pe) -> tuple[fatbin.Walk, Registration]:
    """The containers in the sections made for them, and what names them. Raises MalformedError on any damage."""
    walk = fatbin.Walk(file.buffer)
    sections, _ = disjoint(file.sections if isinstance(file, Pe) else file.sections())
    with limits.collected() as met:
        for each in sections:
            if each.name in FATBIN_SECTIONS:
                walk.section(each.name, each.offset, each.offset + each.size, linked=FATBIN_SECTIONS[each.name])
        pointers = file if isinstance(file, Pe) else ElfPointers(file, tuple(WRAPPER_SECTIONS))
        found, problems = wrappers.read(file.buffer, sections, walk.containers, pointers)
    if problem := next(iter((*walk.findings, *problems, *met)), None):
        raise MalformedError(file.buffer.name, problem.message)
    return walk, found


def must_lead_to_containers(
    name: str,
    pointers: Sequence[int],
    offset_of: Callable[[int], int | None],
    containers: Sequence[NewContainer],
    moved: Mapping[int, int],
) -> None:
    """Raises MalformedError where a pointer leads elsewhere, or a container moves that no pointer leads to.

    `pointers`: the addresses in device code that something points at. `moved`: from old addresses to new ones.
    """
    still = [(each.old.offset, each.old.offset + each.old.size) for each in containers if each.pinned]
    for each in pointers:
        at = offset_of(each)
        if each not in moved and not any(at is not None and start <= at < end for start, end in still):
            raise MalformedError(name, f"something points into its device code at {each:#x}, not at a container")
    named = frozenset(pointers)
    if unknown := [old for old, new in moved.items() if old != new and old not in named]:
        raise MalformedError(name, f"the reference to the container at {unknown[0]:#x} is of an unknown kind")


class Section(NamedTuple):
    """A section whose containers are written anew: where it stands in the old file."""

    start: int
    end: int
    packed: Packed


class Kept(NamedTuple):
    """What stays of the old file: all but `gone`, moved by `shift`. `placed`: where a new place ends up."""

    size: int
    gone: Sequence[Cut]
    shift: Shift
    placed: Callable[[int], int]

    def pieces(self, start: int, end: int) -> Iterator[Piece]:
        for low, high in without(start, end, self.gone):
            yield Piece(self.shift.placed(low), high - low, low)


def rewritten(
    kept: Kept, sections: Sequence[Section], containers: Sequence[NewContainer], blank: Sequence[Emptied]
) -> Iterator[Piece]:
    """The file from its start to its end, with the containers where they are now."""
    position = 0
    for section in sorted(sections, key=lambda each: each.start):
        yield from kept.pieces(position, section.start)
        for each in containers:
            if each.old.offset in section.packed.places:
                yield from pieces(each, kept.placed(section.packed.places[each.old.offset]))
        position = section.end
    yield from kept.pieces(position, kept.size)
    for empty in blank:  # the headers stay
        if empty.header:
            yield Piece(kept.placed(empty.start - len(empty.header)), len(empty.header), data=empty.header)


def no_room(zeros: int, headers: str) -> Finding:
    return Finding(
        rule="file-keeps-its-size",
        severity="note",
        message=f"{size(zeros)} of the removed device code stay in the file as zeros: there is no room for the "
        f"{headers} needed to drop them",
    )
