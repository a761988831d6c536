"""Device code that the library finds by itself, outside the sections made for it: it goes where it stands.

Whatever finds it (an address in the library's data, a place computed by its code) still finds the same address. A
container keeps its header and says that it holds nothing; the rest becomes zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import elf as elf_file
from cuwheel.device_code.fatbin import CONTAINER, MAGIC
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.device_code.payload import ZSTD_MAGIC
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.binaries.decisions import EntryDecision, LibraryPlan
    from cuwheel.changes.binaries.fatbin_writer import NewContainer
    from cuwheel.support.buffer import Buffer

_SMALL = 1 << 16


class Emptied(NamedTuple):
    """Of the file, [start, end) becomes zeros. `header`: what is then before it, of a container."""

    start: int
    end: int
    header: bytes = b""


def find(buffer: Buffer, plan: LibraryPlan, stay: Sequence[NewContainer] = ()) -> tuple[Emptied, ...]:
    """`stay`: containers that nothing names, in the sections made for them, of which nothing is kept.

    Raises MalformedError where the file is not the one that was planned for.
    """
    containers: dict[int, list[EntryDecision]] = {}
    found = []
    for each in plan.entries:
        if each.entry.container is None:
            found += [] if each.keep else [_cubin(buffer, each)]
        elif each.entry.section not in FATBIN_SECTIONS:
            containers.setdefault(each.entry.container, []).append(each)
    found += [_container(buffer, each) for each in containers.values() if not all(one.keep for one in each)]
    if plan.options.workload:
        found = [_whole(each) for each in found]
    found += [
        Emptied(each.old.offset + len(each.header), each.old.offset + each.old.size, each.header) for each in stay
    ]
    return tuple(sorted(found))


def _cubin(buffer: Buffer, each: EntryDecision) -> Emptied:
    start = each.entry.offset
    if buffer.read(start, 4) not in (elf_file.MAGIC, ZSTD_MAGIC):
        raise _other_file(buffer)
    return Emptied(start, start + each.bytes)


def _container(buffer: Buffer, entries: Sequence[EntryDecision]) -> Emptied:
    start = entries[0].entry.offset
    head = buffer.read(start - CONTAINER.size, CONTAINER.size) if start >= CONTAINER.size else bytes(CONTAINER.size)
    magic, version, header, size = CONTAINER.unpack(head)
    if any(each.keep for each in entries):
        raise MalformedError(buffer.name, f"a part of the container at {start:#x} was to go, which only whole ones can")
    if head[:4] != MAGIC or header != CONTAINER.size or size != sum(each.bytes for each in entries):
        raise _other_file(buffer)
    return Emptied(start, start + size, CONTAINER.pack(magic, version, header, 0))


def _whole(container: Emptied) -> Emptied:
    """Without its header. Thousands of small containers, which only their neighbours make worth a page, go so."""
    small = container.end - container.start < _SMALL
    return Emptied(container.start - len(container.header), container.end) if small else container


def _other_file(buffer: Buffer) -> MalformedError:
    return MalformedError(buffer.name, "it is not the file that was planned for")
