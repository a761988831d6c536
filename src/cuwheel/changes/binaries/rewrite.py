"""One library with less or more device code: drafted, written beside, read again, and then given its name."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cuwheel.changes.binaries import draft, elf_writer, host_debug, payloads, pe_references, pe_writer
from cuwheel.changes.binaries.draft import Addition, Piece, open_library, rebuild_container, walk_containers
from cuwheel.support import log
from cuwheel.support.finding import finding
from cuwheel_core.device_code.fatbin import RawContainer, RawEntry, Walk
from cuwheel_core.device_code.pe import Pe
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel_core.support.buffer import Buffer, FileBuffer
from cuwheel_core.verdicts.choice import HasCode, Loader, chosen_entry, loader_of

if TYPE_CHECKING:
    from cuwheel.changes.binaries.draft import Draft, Emptied, NewContainer, Replacement
    from cuwheel.changes.binaries.plan import EntryDecision, FileChange, LibraryPlan
    from cuwheel_core.device_code.elf import Elf
    from cuwheel_core.device_code.libraries import Entry, Registration
    from cuwheel_core.support.finding import Finding


class Rewritten(NamedTuple):
    """`change`: what became of the library. `findings`: what writing met that the plan had not told."""

    change: FileChange
    findings: tuple[Finding, ...]

    @property
    def written(self) -> bool:
        return self.change.fate != "unchanged"


def slim_library(source: Path, target: Path, plan: LibraryPlan) -> Rewritten:
    """Write the library that `plan` describes to `target`: beside it first, then renamed. `source` is only read.

    Where the plan changes nothing, or the file is such that it cannot be changed safely, nothing is written,
    `written` is false and the findings say why. Raises MalformedError where what was written is not what was
    planned, and UnreadableError where the disk does not do its part: `target` is then what it was.
    """
    done = _slim_code(source, target, plan) if plan.changes_code else Rewritten(plan.unchanged, ())
    if not plan.debug:
        return done
    size = host_debug.strip_host_debug(target if done.written else source, target, plan.path)
    if size is None:  # it lies where it cannot go
        return done._replace(change=replace(done.change, debug=0))
    before = done.change if done.written else plan.changed(plan.bytes_before, plan.bytes_before, lambda _: None)
    return done._replace(change=replace(before, bytes_after=size))


def _slim_code(source: Path, target: Path, plan: LibraryPlan) -> Rewritten:
    with ExitStack() as stack:
        with closing(FileBuffer(source)) as buffer:  # Windows replaces no open file, and `target` may be `source`
            spool = stack.enter_context(payloads.spool(target.parent, buffer, plan))
            try:
                made = draft_slimmed(buffer, plan, spool.replacements)
            except MalformedError as error:
                words = f"left unchanged: {error.problem}"
                return Rewritten(plan.unchanged, (finding("cannot-rewrite", words),))
        payloads.write_beside(
            source,
            target,
            made,
            spool.fileno,
            lambda beside: same_as_planned(source, beside, plan, made, spool.fileno),
        )

    def stored(each: EntryDecision) -> int | None:
        """None: compressing it would not have made it smaller."""
        new = made.replacements.get(each.entry.offset)
        return len(new.header) + new.size if new else None

    return Rewritten(plan.changed(made.old_size, made.size, stored), (*made.findings, *spool.findings))


def each_library(plans: Sequence[LibraryPlan], rewritten: Callable[[LibraryPlan], Rewritten]) -> list[Rewritten]:
    """`rewritten` of every plan, in the order given. The first error stops those that have not begun."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 20 ms, where there is work to do

    lock = threading.Lock()
    with log.progress("slimming", sum(plan.bytes_before for plan in plans)) as progress:

        def work(plan: LibraryPlan) -> Rewritten:
            result = rewritten(plan)
            with lock:
                progress.advance(plan.bytes_before)
            return result

        # Two at a time keep the disk and a core busy; the engine itself compresses with all cores.
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(work, plan) for plan in plans]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def draft_slimmed(buffer: Buffer, plan: LibraryPlan, replacements: Mapping[int, Replacement]) -> Draft:
    """Drafts a library with less in it. Raises MalformedError with what about the file forbids changing it."""
    file = open_changeable(buffer, drop_signature=plan.drop_signature)
    walk, registration = walk_containers(file)
    decisions = {each.entry.offset: each for each in plan.entries if each.entry.section in FATBIN_SECTIONS}
    found = {entry.offset: entry.header_size + entry.payload for each in walk.containers for entry in each.entries}
    if found != {offset: each.bytes for offset, each in decisions.items()}:
        raise MalformedError(buffer.name, "it is not the file that was planned for")
    unnamed = _unnamed(walk, registration)
    made = []
    for index, old in enumerate(walk.containers):
        keep = [entry for entry in old.entries if decisions[entry.offset].keep]
        replaced = {entry.offset: new for entry in keep if (new := replacements.get(entry.offset))}
        changes = len(keep) != len(old.entries) or replaced
        if changes and keep and index in unnamed:
            raise MalformedError(
                buffer.name, f"nothing refers to the container at {old.offset:#x}, of which a part was to go"
            )
        made.append(rebuild_container(old, _head(buffer, old), keep, replaced, pinned=index in unnamed))
    containers = tuple(made)
    stay = [each for each in containers if each.pinned and not each.entries and each.old.entries]
    blank = draft.find_emptied(buffer, plan, stay)
    return draft_library(file, containers, registration, blank)._replace(replacements=replacements)


# One library with more device code in its containers: written beside, read again, then given its name.

_CHUNK = 1 << 20


class Foreign(NamedTuple):
    """An entry of another file: the buffer that it is in, and what its header says."""

    buffer: Buffer
    entry: RawEntry


def draft_grown(
    base: Buffer,
    contents: Mapping[int, Sequence[RawEntry | Foreign]],
    spool: int | None,
    *,
    drop_signature: bool = False,
) -> Draft:
    """`contents`: what the containers hold that change, by their number. `spool`: where the others' entries go.

    Without a spool nothing is copied: the draft says what would be written. Raises MalformedError, with what it is
    about the file that forbids changing it.
    """
    file = open_changeable(base, drop_signature=drop_signature)
    walk, registration = walk_containers(file)
    unnamed = _unnamed(walk, registration)
    made, at = [], 0
    for index, old in enumerate(walk.containers):
        wanted: list[RawEntry | Addition] = []
        for each in contents.get(index, old.entries):
            if isinstance(each, RawEntry):
                wanted.append(each)
                continue
            size = each.entry.header_size + each.entry.payload
            if spool is not None:
                for start in range(0, size, _CHUNK):
                    data = each.buffer.read(each.entry.offset + start, min(_CHUNK, size - start))
                    payloads.write_all(spool, data, at + start)
            wanted.append(Addition(at, each.entry.header_size, each.entry.payload))
            at += size
        if index in contents and index in unnamed:
            raise MalformedError(base.name, f"nothing refers to the container at {old.offset:#x}, which was to change")
        made.append(rebuild_container(old, _head(base, old), wanted, {}, pinned=index in unnamed))
    return draft_library(file, tuple(made), registration)


def grow_library(
    source: Path,
    base: Buffer,
    target: Path,
    contents: Mapping[int, Sequence[RawEntry | Foreign]],
    must_hold: Callable[[Path], object],
    *,
    drop_signature: bool = False,
) -> int:
    """Write the library with these contents to `target`, and tell its size. `must_hold`: raises for a wrong file.

    `base`: the bytes of `source`. Raises MalformedError where it cannot be done safely, or what was written is not
    what was planned: `target` is then what it was.
    """
    try:
        with tempfile.TemporaryFile(dir=target.parent, buffering=0) as file:
            made = draft_grown(base, contents, file.fileno(), drop_signature=drop_signature)

            def check(beside: Path) -> None:
                same_as_drafted(source, beside, base.name, made, file.fileno())
                must_hold(beside)

            payloads.write_beside(source, target, made, file.fileno(), check)
            return made.size
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error


# What growing and slimming have in common.


def open_changeable(buffer: Buffer, *, drop_signature: bool) -> Elf | Pe:
    """A library that can be rewritten at all. Raises MalformedError, with what forbids it."""
    file = open_library(buffer)
    if isinstance(file, Pe):
        pe_writer.check_pe(file, drop_signature=drop_signature)
    else:
        elf_writer.check_elf(file)
    return file


def _unnamed(walk: Walk, registration: Registration) -> set[int]:
    """The containers that no wrapper names, so that they cannot move: all of them where there is no wrapper."""
    return set(registration.unnamed) if registration.wrappers else set(range(len(walk.containers)))


def _head(buffer: Buffer, container: RawContainer) -> bytes:
    """What stands before a container's first entry."""
    end = container.entries[0].offset if container.entries else container.offset + container.size
    return buffer.read(container.offset, end - container.offset)


def draft_library(
    file: Elf | Pe, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises MalformedError, with what forbids it."""
    if isinstance(file, Pe):
        return pe_writer.draft_pe(file, containers, registration, blank)
    return elf_writer.draft_elf(file, containers, registration, blank)


# Whether what was written is what was planned: the new file is read again as if somebody else had made it.

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
    _must_take_same_entries(same_as_drafted(source, written, plan.path, made, spool), made, plan)
    # What is kept beside code that was emptied in place.
    kept = (each for each in plan.entries if each.keep and made.emptied)
    outside = (each for each in kept if each.entry.section not in FATBIN_SECTIONS or each.entry.container is None)
    pieces = (Piece(made.shift.placed(each.entry.offset), each.bytes, each.entry.offset) for each in outside)
    _must_hold_same_bytes(source, written, plan.path, pieces)


def same_as_drafted(source: Path, written: Path, name: str, made: Draft, spool: int | None) -> _Found:
    """Raises MalformedError where it is not. `spool`: the file, open, with what is not from `source`."""
    try:
        with closing(FileBuffer(written, name)) as buffer:
            file = open_library(buffer)
            if isinstance(file, Pe):
                pe_references.rules_must_hold(file)
            walk, registration = walk_containers(file)
            found = _Found(walk, walk.entries(), registration)
    except CuwheelError as error:
        raise MalformedError(name, f"the new file cannot be read: {error}", _HINT) from error
    _must_hold_entries(found, made, name)
    # Every wrapper names the container that it named.
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
    # Kept entries are the same bytes, header and all; others are what the spool holds.
    _must_hold_same_bytes(source, written, name, (each for each in made.pieces if each.device), spool)
    return found


def _must_hold_entries(found: _Found, made: Draft, name: str) -> None:
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


def _must_take_same_entries(found: _Found, made: Draft, plan: LibraryPlan) -> None:
    """Raises unless the driver takes the same entry of each container as before, on each machine."""
    if plan.machines is None:
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
        if plan.drops_relocatable and not all(each.linked for each in before):
            continue
        if plan.by_use and not after:
            continue
        lists = (tuple(_code(each) for each in before), tuple(_code(each) for each in after))
        if lists in seen:  # thousands of containers share a few
            continue
        seen.add(lists)
        for machine in plan.machines:
            if (on := loader_of(machine)) and _taken_code(before, on) != _taken_code(after, on):
                raise MalformedError(plan.path, f"{machine.name} would load other code than before", _HINT)


def _taken_code(entries: Sequence[HasCode], on: Loader) -> tuple[str, str] | None:
    index = chosen_entry(entries, on)
    return None if index is None else _code(entries[index])


def _code(entry: HasCode) -> tuple[str, str]:
    return entry.kind, entry.arch


def _must_hold_same_bytes(
    source: Path, written: Path, name: str, pieces: Iterable[Piece], spool: int | None = None
) -> None:
    try:
        wrong = payloads.first_differing(source, written, pieces, spool)
    except OSError as error:
        raise MalformedError(name, f"the new file cannot be read: {error}", _HINT) from error
    if wrong:
        raise MalformedError(name, f"device code at {wrong.offset:#x} is not the same", _HINT)
