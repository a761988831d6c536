"""Everything in a PE file that leads into its device code: what must change when that moves, or forbids it."""

from __future__ import annotations

import bisect
import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import arm64
from cuwheel.changes.binaries.pe_rules import relocation_blocks
from cuwheel.device_code.pe import EXECUTABLE, EXPORTS
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cuwheel.device_code.pe import Pe

_WORD = struct.Struct("<Q")
_HALF = struct.Struct("<i")
_PAGE = 4096
_EXPORTS = struct.Struct("<20xI4xI8x")
_MOST_EXPORTS = 1 << 16  # ordinals have two bytes
# lea, of a register of 64 bits, with an address relative to the next instruction.
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
_ADR_OR_ADRP = re.compile(rb"[\x10\x30\x50\x70\x90\xb0\xd0\xf0]")  # its last byte
_ADDED_WITHIN = 16  # instructions: compilers put others between
_AT_ONCE = 1 << 20
_OVERLAP = 4 * (_ADDED_WITHIN + 1)


class Pointer(NamedTuple):
    """At `slot` in the file, to `target`, an address relative to the image."""

    slot: int
    target: int


def pointers(file: Pe, ranges: Sequence[tuple[int, int]]) -> Iterator[Pointer]:
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


def written(file: Pe, ranges: Sequence[tuple[int, int]]) -> int | None:
    """The first address in `ranges` (which do not overlap) that the loader writes to."""
    ordered = sorted(ranges)
    starts = [start for start, _ in ordered]
    for _, slots in relocation_blocks(file):
        for slot in slots:
            index = bisect.bisect_right(starts, slot + _WORD.size - 1) - 1
            if index >= 0 and slot < ordered[index][1]:
                return slot
    return None


def exported(file: Pe, ranges: Sequence[tuple[int, int]]) -> int | None:
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
    pages = {each // arm64.PAGE for each in wanted}
    words = memoryview(data[: len(data) // 4 * 4]).cast("I")
    for match in _ADR_OR_ADRP.finditer(data, 0, 4 * len(words)):
        index, byte = divmod(match.start(), 4)
        if byte != 3:  # noqa: PLR2004 - of an instruction the last
            continue
        word, place = words[index], here + 4 * index
        if arm64.is_near(word) and place + arm64.relative(word) in wanted:
            return place
        page = place // arm64.PAGE + arm64.relative(word)
        if arm64.is_page(word) and page in pages:
            for other in words[index + 1 : index + 1 + _ADDED_WITHIN]:
                low = arm64.completed(other, word)
                if low is not None and page * arm64.PAGE + low in wanted:
                    return place
    return None


_SEEKERS = {"x86_64": _by_lea, "aarch64": _by_page}
MACHINES = tuple(_SEEKERS)
