"""What Windows' loader demands of a PE file, and everything in the file that leads into its device code."""

from __future__ import annotations

import bisect
import itertools
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.draft import round_up
from cuwheel_core.device_code.pe import (
    CERTIFICATES,
    COFF,
    DIRECTORIES_AT,
    EXECUTABLE,
    EXPORTS,
    LOAD_CONFIG,
    RELOCATIONS,
    SECTION,
)
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from cuwheel_core.device_code.pe import Pe


# What Windows' loader demands of a file before it maps it, and what every linker does: a file that breaks one stays.
# Sections must follow one another in memory without a gap, and stand at multiples of the alignments that the header
# tells; wine and other readers are less strict, so nothing but these rules shows a mistake before Windows does.

SECTION_ALIGNMENT_AT, IMAGE_SIZE_AT, HEADERS_SIZE_AT, CHECKSUM_AT, TRAITS_AT = 32, 56, 60, 64, 70
INITIALIZED_SIZE_AT = 8
MOST_SECTIONS = 96
_PAGE = 4096
_SECTOR, _LARGEST_SECTOR = 512, 1 << 16
_DIRECTORIES = 16
_BLOCK = struct.Struct("<II")
_LONGEST_BLOCK = _BLOCK.size + 2 * _PAGE + 4  # an entry a byte of the page, and padding
_NO_RELOCATION, _ADDRESS_64 = 0, 10


class Fields(NamedTuple):
    """The fields of the optional header that a change of the sections touches."""

    section_alignment: int
    file_alignment: int
    image_size: int
    headers_size: int
    checksum: int
    traits: int
    table_at: int  # the section table


def read_fields(file: Pe) -> Fields:
    section, stored = struct.unpack_from("<II", file.optional, SECTION_ALIGNMENT_AT)
    image, headers, checksum = struct.unpack_from("<III", file.optional, IMAGE_SIZE_AT)
    (traits,) = struct.unpack_from("<H", file.optional, TRAITS_AT)
    return Fields(section, stored, image, headers, checksum, traits, file.header_at + COFF.size + len(file.optional))


def rules_must_hold(file: Pe) -> None:
    """Raises MalformedError with the first rule that is broken."""
    if (problem := next(broken_rules(file), None)) is not None:
        raise MalformedError(file.buffer.name, f"Windows would not load it: {problem}")


def broken_rules(file: Pe) -> Iterator[str]:
    head = read_fields(file)
    wrong = list(_header(file, head))
    yield from wrong
    if wrong:  # the others reckon with the alignments
        return
    yield from _sections(file, head)
    yield from _directories(file, head)
    try:
        for _ in relocation_blocks(file):
            pass
    except MalformedError as error:
        yield error.problem


def _header(file: Pe, head: Fields) -> Iterator[str]:
    stored, section = head.file_alignment, head.section_alignment
    if stored & (stored - 1) or not _SECTOR <= stored <= _LARGEST_SECTOR:
        yield f"a file alignment of {stored:,}"
    elif section & (section - 1) or section < max(stored, _PAGE):
        yield f"a section alignment of {section:,}"
    elif head.headers_size % stored or head.headers_size < head.table_at + len(file.rows) * SECTION.size:
        yield f"headers of {head.headers_size:,} bytes"
    if not 0 < len(file.rows) <= MOST_SECTIONS:
        yield f"{len(file.rows)} sections"
    if file.header_at % 4:
        yield "a header at an odd place"
    (count,) = struct.unpack_from("<I", file.optional, DIRECTORIES_AT - 4)
    if count > _DIRECTORIES or DIRECTORIES_AT + 8 * count > len(file.optional):
        yield f"{count} directories"


def _sections(file: Pe, head: Fields) -> Iterator[str]:
    expected = round_up(head.headers_size, head.section_alignment)
    for row in file.rows:
        name = row.name.rstrip(b"\0").decode("ascii", "replace")
        if row.address != expected:
            yield f"section {name} at {row.address:#x}, where {expected:#x} follows the one before"
        if row.stored and (row.offset % head.file_alignment or row.stored % head.file_alignment):
            yield f"section {name} is not aligned in the file"
        if row.stored and (row.offset < head.headers_size or row.offset + row.stored > file.buffer.size):
            yield f"section {name} is outside the file"
        if not row.end > row.address:
            yield f"section {name} is empty"
        expected = round_up(row.end, head.section_alignment)
    if head.image_size != expected:
        yield f"an image of {head.image_size:#x} bytes, which ends at {expected:#x}"
    stored = sorted((row.offset, row.offset + row.stored) for row in file.rows if row.stored)
    if any(two[0] < one[1] for one, two in itertools.pairwise(stored)):
        yield "sections that share bytes"


def _directories(file: Pe, head: Fields) -> Iterator[str]:
    for number in range(_DIRECTORIES):
        place, size = file.directory(number)
        limit = file.buffer.size if number == CERTIFICATES else head.image_size
        if place + size > limit:
            yield f"directory {number} ends behind the file"
    entry = struct.unpack_from("<I", file.optional, 16)[0]
    if entry >= head.image_size:
        yield "an entry point outside the image"


def relocation_blocks(file: Pe) -> Iterator[tuple[int, list[int]]]:
    """Each page with the addresses in it that are relocated. Raises MalformedError for what no linker writes.

    Pages ascend, so that there is a block for each at most, whatever a file claims.
    """
    place, size = file.directory(RELOCATIONS)
    at = file.addresses.offset_of(place) if size else None
    if at is None:
        return
    end, last = at + size, -1
    while at + _BLOCK.size <= end:
        page, length = _BLOCK.unpack(file.buffer.read(at, _BLOCK.size))
        if page <= last or page % _PAGE or length < _BLOCK.size or length % 2 or length > _LONGEST_BLOCK:
            raise MalformedError(file.buffer.name, f"its base relocations are damaged at {at:#x}")
        words = memoryview(file.buffer.read(at + _BLOCK.size, length - _BLOCK.size)).cast("H").tolist()
        kinds = {word >> 12 for word in words}
        if not kinds <= {_NO_RELOCATION, _ADDRESS_64}:
            raise MalformedError(file.buffer.name, f"its base relocations are of an unknown kind at {at:#x}")
        yield page, [page + (word & 0xFFF) for word in words if word >> 12 == _ADDRESS_64]
        at, last = at + length, page


# Of a PE file's load configuration: what names sections by their numbers, and code for two processors in one file.

# Where the dynamic relocations are: an offset in a section, and its number from 1.
LOAD_CONFIG_TABLE = struct.Struct("<IH")
_HYBRID_AT, _TABLE_AT = 0xC8, 0xE0
_HYBRID = struct.Struct("<Q")


class LoadConfig(NamedTuple):
    """`hybrid`: it has code for x86-64 and arm64 (ARM64EC, ARM64X). `table_at`: in the file, its
    `LOAD_CONFIG_TABLE`.
    """

    hybrid: bool = False
    table_at: int = 0
    table_offset: int = 0
    table_section: int = 0


def read_load_config(file: Pe) -> LoadConfig:
    """Linkers write as much of it as they know, and its size first."""
    place, directory_size = file.directory(LOAD_CONFIG)
    at = file.addresses.offset_of(place) if directory_size else None
    if at is None or at + 4 > file.buffer.size:
        return LoadConfig()
    (size,) = struct.unpack("<I", file.buffer.read(at, 4))
    known = file.buffer.read(at, min(size, _TABLE_AT + LOAD_CONFIG_TABLE.size, file.buffer.size - at))
    hybrid = len(known) >= _HYBRID_AT + _HYBRID.size and any(_HYBRID.unpack_from(known, _HYBRID_AT))
    if len(known) < _TABLE_AT + LOAD_CONFIG_TABLE.size:
        return LoadConfig(hybrid)
    offset, section = LOAD_CONFIG_TABLE.unpack_from(known, _TABLE_AT)
    return LoadConfig(hybrid, at + _TABLE_AT, offset, section)


_WORD = struct.Struct("<Q")
_HALF = struct.Struct("<i")
_EXPORTS = struct.Struct("<20xI4xI8x")
_MOST_EXPORTS = 1 << 16  # ordinals have two bytes
# lea, of a register of 64 bits, with an address relative to the next instruction.
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
_ADR_OR_ADRP = re.compile(rb"[\x10\x30\x50\x70\x90\xb0\xd0\xf0]")  # its last byte
_ADDED_WITHIN = 16  # instructions: compilers put others between
_AT_ONCE = 1 << 20
_OVERLAP = 4 * (_ADDED_WITHIN + 1)


class Pointer(NamedTuple):
    """A pointer at `slot` in the file, to `target`, an address relative to the image."""

    slot: int
    target: int


def pointers_into(file: Pe, ranges: Sequence[tuple[int, int]]) -> Iterator[Pointer]:
    """Those into `ranges`, of all that the loader relocates."""
    low, high = min(start for start, _ in ranges), max(end for _, end in ranges)
    for page, slots in relocation_blocks(file):
        base = file.addresses.offset_of(page)
        if base is None or not slots:
            continue
        data = file.buffer.read(base, min(_PAGE + _WORD.size, file.buffer.size - base))
        for slot in slots:
            if file.addresses.offset_of(slot) != base + slot - page:
                continue  # in memory that the file has no bytes for
            if slot - page + _WORD.size > len(data):
                raise MalformedError(file.buffer.name, f"a relocation at {slot:#x}, where nothing is loaded")
            target = _WORD.unpack_from(data, slot - page)[0] - file.image_base
            if low <= target < high and any(start <= target < end for start, end in ranges):
                yield Pointer(base + slot - page, target)


def first_written(file: Pe, ranges: Sequence[tuple[int, int]]) -> int | None:
    """The first address in `ranges` (which do not overlap) that the loader writes to."""
    ordered = sorted(ranges)
    starts = [start for start, _ in ordered]
    for _, slots in relocation_blocks(file):
        for slot in slots:
            index = bisect.bisect_right(starts, slot + _WORD.size - 1) - 1
            if index >= 0 and slot < ordered[index][1]:
                return slot
    return None


def first_exported(file: Pe, ranges: Sequence[tuple[int, int]]) -> int | None:
    """The first address in `ranges` that the file exports: it may be how its own code finds a container."""
    place, size = file.directory(EXPORTS)
    at = file.addresses.offset_of(place) if size else None
    if at is None:
        return None
    count, table = _EXPORTS.unpack(file.buffer.read(at, _EXPORTS.size))
    functions = file.addresses.offset_of(table)
    if functions is None or not count:
        return None
    if count > _MOST_EXPORTS:
        raise MalformedError(file.buffer.name, f"it claims to export {count:,} functions")
    addresses = memoryview(file.buffer.read(functions, 4 * count)).cast("I").tolist()
    return next((each for each in addresses if any(start <= each < end for start, end in ranges)), None)


def loaded_by_code(file: Pe, starts: Collection[int]) -> int | None:
    """The place of an instruction that takes the address of one of `starts`.

    Only of their exact starts: bytes that look like such an instruction are common, and refer to anywhere.
    """
    wanted, seeker = frozenset(starts), _SEEKERS[file.machine]
    for row in file.rows if wanted else ():
        if not row.traits & EXECUTABLE:
            continue
        end = min(row.stored, max(file.buffer.size - row.offset, 0))
        for start in range(0, end, _AT_ONCE):
            data = file.buffer.read(row.offset + start, min(_AT_ONCE + _OVERLAP, end - start))
            if (found := seeker(data, row.address + start, wanted)) is not None:
                return found
    return None


def _by_lea(data: bytes, here: int, wanted: Collection[int]) -> int | None:
    for match in _LEA.finditer(data, 0, len(data) - _HALF.size):
        behind = match.end() + _HALF.size
        if here + behind + _HALF.unpack_from(data, match.end())[0] in wanted:
            return here + match.start()
    return None


def _by_page(data: bytes, here: int, wanted: Collection[int]) -> int | None:
    """adrp takes the page, and one of the next instructions adds the rest to it; adr takes both."""
    pages = {each // ARM64_PAGE for each in wanted}
    words = memoryview(data[: len(data) // 4 * 4]).cast("I")
    for match in _ADR_OR_ADRP.finditer(data, 0, 4 * len(words)):
        index, byte = divmod(match.start(), 4)
        if byte != 3:  # noqa: PLR2004 - of an instruction the last
            continue
        word, place = words[index], here + 4 * index
        if is_adr(word) and place + adr_offset(word) in wanted:
            return place
        page = place // ARM64_PAGE + adr_offset(word)
        if is_adrp(word) and page in pages:
            for other in words[index + 1 : index + 1 + _ADDED_WITHIN]:
                low = added_low_bits(other, word)
                if low is not None and page * ARM64_PAGE + low in wanted:
                    return place
    return None


_SEEKERS = {"x86_64": _by_lea, "aarch64": _by_page}


# AArch64 instructions that hold part of an address: what they hold.

ARM64_PAGE = 1 << 12
_RELATIVE_MASK, _ADRP, _ADR = 0x9F000000, 0x90000000, 0x10000000
ADR_FIELDS = 0x60FFFFE0
_ADD_MASK, _ADD = 0x7FC00000, 0x11000000
_WIDE = 0x80000000
_LOAD_MASK, _LOAD = 0x3B000000, 0x39000000
LOW_BITS = 0x003FFC00
_BRANCH_MASK, _BRANCH = 0x7C000000, 0x14000000
BRANCH_FIELD = 0x03FFFFFF
_REGISTER_BITS = 0x1F


def is_adrp(word: int) -> bool:
    """adrp: the page of an address, relative to its own."""
    return word & _RELATIVE_MASK == _ADRP


def is_adr(word: int) -> bool:
    """adr: a whole address, relative to its own."""
    return word & _RELATIVE_MASK == _ADR


def is_branch(word: int) -> bool:
    return word & _BRANCH_MASK == _BRANCH


def adr_offset(word: int) -> int:
    """The offset that an instruction holds: of adr in bytes, of adrp in pages."""
    return _extended((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)


def branch_offset(word: int) -> int:
    return 4 * _extended(word & BRANCH_FIELD, 26)


def low_bits_scale(word: int) -> int | None:
    """The power of two by which the low twelve bits of an address are divided; None where the word holds none."""
    if word & _ADD_MASK == _ADD:
        return 0
    if word & _LOAD_MASK == _LOAD:
        size = word >> 30
        vector = word >> 26 & 1 and word >> 23 & 1
        return 4 if vector and not size else size
    return None


def added_low_bits(word: int, page: int) -> int | None:
    """What an add behind the adrp `page` adds to its register; None where it is no such instruction."""
    if word & (_ADD_MASK | _WIDE) != _ADD | _WIDE or word >> 5 & _REGISTER_BITS != page & _REGISTER_BITS:
        return None
    return (word & LOW_BITS) >> 10


def _extended(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
