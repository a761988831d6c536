"""A plan applied to the bytes of a file: where everything goes in the new one. Nothing is written here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.changes.binaries import elf_draft, emptied, pe_draft
from cuwheel.changes.binaries.draft import opened, walked
from cuwheel.changes.binaries.fatbin_writer import rebuilt
from cuwheel.device_code.image import FATBIN_SECTIONS
from cuwheel.device_code.pe import Pe
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.changes.binaries.decisions import LibraryPlan
    from cuwheel.changes.binaries.draft import Draft
    from cuwheel.changes.binaries.emptied import Emptied
    from cuwheel.changes.binaries.fatbin_writer import NewContainer, Replacement
    from cuwheel.device_code import fatbin
    from cuwheel.device_code.elf import Elf
    from cuwheel.device_code.libraries import Registration
    from cuwheel.support.buffer import Buffer


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
