"""A plan applied to the bytes of a file: where everything goes in the new one. Nothing is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.binary import elf_draft, emptied, pe_draft
from cuwheel.binary.draft import opened, walked
from cuwheel.binary.fatbin_writer import rebuilt
from cuwheel.errors import MalformedError
from cuwheel.inspection.image import FATBIN_SECTIONS
from cuwheel.inspection.pe import Pe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.binary.decisions import LibraryPlan
    from cuwheel.binary.draft import Draft
    from cuwheel.binary.emptied import Emptied
    from cuwheel.binary.fatbin_writer import NewContainer, Replacement
    from cuwheel.buffer import Buffer
    from cuwheel.inspection import fatbin
    from cuwheel.inspection.elf import Elf
    from cuwheel.inspection.libraries import Registration


def draft(buffer: Buffer, plan: LibraryPlan, replacements: Mapping[int, Replacement]) -> Draft:
    """Of a library with less: raises MalformedError, with what it is about the file that forbids changing it."""
    file = checked(buffer, drop_signature=plan.options.drop_signature)
    walk, registration = walked(file)
    containers = _containers(buffer, walk, registration, plan, replacements)
    stay = [each for each in containers if each.pinned and not each.entries and each.old.entries]
    blank = emptied.find(buffer, plan, stay)
    return drafted(file, containers, registration, blank)._replace(replacements=replacements)


def checked(buffer: Buffer, *, drop_signature: bool) -> Elf | Pe:
    """A library that can be rewritten at all; raises as `draft` does."""
    file = opened(buffer)
    if isinstance(file, Pe):
        pe_draft.check(file, drop_signature=drop_signature)
    else:
        elf_draft.check(file)
    return file


def drafted(
    file: Elf | Pe, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises as `draft` does."""
    if isinstance(file, Pe):
        return pe_draft.drafted(file, containers, registration, blank)
    return elf_draft.drafted(file, containers, registration, blank)


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
