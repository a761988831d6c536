"""Whether what was written is what was planned: the new file is read again as if somebody else had made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import payloads, pe_references
from cuwheel.changes.binaries.draft import Addition, open_library, walk_containers
from cuwheel.device_code.pe import Pe
from cuwheel.device_code.sections import FATBIN_SECTIONS
from cuwheel.errors import CuwheelError, MalformedError
from cuwheel.support.buffer import FileBuffer
from cuwheel.verdicts.choice import chosen_entry, device_of_machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.changes.binaries.decisions import LibraryPlan
    from cuwheel.changes.binaries.draft import Draft, NewContainer
    from cuwheel.device_code.fatbin import Walk
    from cuwheel.device_code.libraries import Entry, Registration
    from cuwheel.verdicts.choice import Device, HasCode

_HINT = (
    "nothing was changed: either the original is damaged, or this is a bug in cuwheel "
    "(then please report it with the name of the package)"
)


class _Found(NamedTuple):
    """What the new file holds."""

    walk: Walk
    entries: tuple[Entry, ...]
    registration: Registration


def same_as_planned(source: Path, written: Path, plan: LibraryPlan, made: Draft, spool: int | None) -> None:
    """Raises MalformedError where it is not."""
    _choices(same_as_drafted(source, written, plan.path, made, spool), made, plan)
    _kept_in_place(source, written, plan, made)


def same_as_drafted(source: Path, written: Path, name: str, made: Draft, spool: int | None) -> _Found:
    """Raises MalformedError where it is not. `spool`: the file, open, with what is not from `source`."""
    buffer = FileBuffer(written, name)
    try:
        file = open_library(buffer)
        if isinstance(file, Pe):
            pe_references.rules_must_hold(file)
        walk, registration = walk_containers(file)
        found = _Found(walk, walk.entries(), registration)
    except CuwheelError as error:
        raise MalformedError(name, f"the new file cannot be read: {error}", _HINT) from error
    finally:
        buffer.close()
    _entries(found, made, name)
    _registration(found, made, name)
    _bytes(source, written, name, made, spool)
    return found


def _entries(found: _Found, made: Draft, name: str) -> None:
    """Every container stands where it should, with the entries that it was to have, in their order."""
    inside = {
        each.offset: [(entry.header_size, entry.payload) for entry in each.entries] for each in found.walk.containers
    }
    wanted = {_place(each, made): _expected(each) for each in made.containers}
    if inside != wanted:
        raise MalformedError(name, "the new file does not contain what was planned", _HINT)


def _place(container: NewContainer, made: Draft) -> int:
    return made.placed.get(container.old.offset, made.shift(container.old.offset))


def _expected(container: NewContainer) -> list[tuple[int, int]]:
    replaced = container.replaced
    return [
        (
            entry.header_size,
            replaced[entry.offset].size
            if not isinstance(entry, Addition) and entry.offset in replaced
            else entry.payload,
        )
        for entry in container.entries
    ]


def _registration(found: _Found, made: Draft, name: str) -> None:
    """Every wrapper names the container that it named."""
    after = [
        (each.version, None if each.container is None else found.walk.containers[each.container].offset)
        for each in found.registration.wrappers
    ]
    before = [
        (each.version, None if each.container is None else _place(made.containers[each.container], made))
        for each in made.registration.wrappers
    ]
    if after != before or found.registration.module_ids != made.registration.module_ids:
        raise MalformedError(name, "the new file registers other code than the original", _HINT)


def _choices(found: _Found, made: Draft, plan: LibraryPlan) -> None:
    """For each target the driver takes the same entry of each container as before."""
    if plan.options.targets is None:
        return
    by_place: dict[int, list[Entry]] = {}
    for each in found.entries:
        if each.container is not None:
            by_place.setdefault(found.walk.containers[each.container].offset, []).append(each)
    decided = {each.entry.offset: each.entry for each in plan.entries}
    seen: set[tuple[tuple[tuple[str, str], ...], ...]] = set()
    for container in made.containers:
        before = [decided[entry.offset] for entry in container.old.entries]
        after = by_place.get(_place(container, made), [])
        if plan.options.drop_relocatable and not all(each.linked for each in before):
            continue
        if plan.options.workload and not after:
            continue
        lists = (tuple(_code(each) for each in before), tuple(_code(each) for each in after))
        if lists in seen:  # thousands of containers share a few
            continue
        seen.add(lists)
        for machine in plan.options.targets:
            if (on := device_of_machine(machine)) and _taken(before, on) != _taken(after, on):
                raise MalformedError(plan.path, f"{machine.name} would load other code than before", _HINT)


def _taken(entries: Sequence[HasCode], on: Device) -> tuple[str, str] | None:
    index = chosen_entry(entries, on)
    return None if index is None else _code(entries[index])


def _code(entry: HasCode) -> tuple[str, str]:
    return entry.kind, entry.arch


def _bytes(source: Path, written: Path, name: str, made: Draft, spool: int | None) -> None:
    """Kept entries are the same bytes, header and all; others are what the spool holds."""
    try:
        with source.open("rb", buffering=0) as old, written.open("rb", buffering=0) as new:
            for piece in made.pieces:
                if piece.data:
                    continue
                original = spool if piece.spool and spool is not None else old.fileno()
                if piece.device and not payloads.same_bytes(
                    original, piece.offset, new.fileno(), piece.place, piece.size
                ):
                    raise MalformedError(name, f"device code at {piece.offset:#x} is not the same", _HINT)
    except OSError as error:
        raise MalformedError(name, f"the new file cannot be read: {error}", _HINT) from error


def _kept_in_place(source: Path, written: Path, plan: LibraryPlan, made: Draft) -> None:
    """Where code was emptied in place, what is kept beside it is the same bytes."""
    try:
        with source.open("rb", buffering=0) as old, written.open("rb", buffering=0) as new:
            for each in plan.entries if made.emptied else ():
                at = each.entry.offset
                if not each.keep or (each.entry.section in FATBIN_SECTIONS and each.entry.container is not None):
                    continue
                if not payloads.same_bytes(old.fileno(), at, new.fileno(), made.shift.placed(at), each.bytes):
                    raise MalformedError(plan.path, f"device code at {at:#x} is not the same", _HINT)
    except OSError as error:
        raise MalformedError(plan.path, f"the new file cannot be read: {error}", _HINT) from error
