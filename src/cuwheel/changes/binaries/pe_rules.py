"""What Windows' loader demands of a file before it maps it, and what every linker does: a file that breaks one stays.

Sections must follow one another in memory without a gap, and stand at multiples of the alignments that the header
tells; wine and other readers are less strict, so nothing but these rules shows a mistake before Windows does.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.geometry import up
from cuwheel.device_code.pe import CERTIFICATES, COFF, DIRECTORIES_AT, RELOCATIONS, SECTION
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.pe import Pe

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
    """Of the optional header, what a change of the sections has to do with."""

    section_alignment: int
    file_alignment: int
    image_size: int
    headers_size: int
    checksum: int
    traits: int
    table_at: int  # the section table


def fields(file: Pe) -> Fields:
    section, stored = struct.unpack_from("<II", file.optional, SECTION_ALIGNMENT_AT)
    image, headers, checksum = struct.unpack_from("<III", file.optional, IMAGE_SIZE_AT)
    (traits,) = struct.unpack_from("<H", file.optional, TRAITS_AT)
    return Fields(section, stored, image, headers, checksum, traits, file.header_at + COFF.size + len(file.optional))


def must_hold(file: Pe) -> None:
    """Raises MalformedError with the first rule that is broken."""
    if (problem := next(problems(file), None)) is not None:
        raise MalformedError(file.buffer.name, f"Windows would not load it: {problem}")


def problems(file: Pe) -> Iterator[str]:
    head = fields(file)
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
    expected = up(head.headers_size, head.section_alignment)
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
        expected = up(row.end, head.section_alignment)
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
