"""One library with less or more device code: drafted, written beside, read again, and then given its name."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import draft, elf_writer, payloads, pe_writer, read_back
from cuwheel.changes.binaries.decisions import Dropped, FileResult, Recompressed
from cuwheel.changes.binaries.draft import Addition, open_library, rebuild_container, walk_containers
from cuwheel.device_code.fatbin import RawEntry
from cuwheel.device_code.pe import Pe
from cuwheel.device_code.sections import FATBIN_SECTIONS
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import system_calls
from cuwheel.support.buffer import FileBuffer
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cuwheel.changes.binaries.decisions import LibraryPlan
    from cuwheel.changes.binaries.draft import Draft, Emptied, NewContainer, Replacement
    from cuwheel.changes.binaries.payloads import Spool
    from cuwheel.device_code import fatbin
    from cuwheel.device_code.elf import Elf
    from cuwheel.device_code.libraries import Compression, Kind, Registration
    from cuwheel.facts.arch import Arch
    from cuwheel.support.buffer import Buffer


def draft_slimmed(buffer: Buffer, plan: LibraryPlan, replacements: Mapping[int, Replacement]) -> Draft:
    """Of a library with less: raises MalformedError, with what it is about the file that forbids changing it."""
    file = open_changeable(buffer, drop_signature=plan.options.drop_signature)
    walk, registration = walk_containers(file)
    containers = _slimmed_containers(buffer, walk, registration, plan, replacements)
    stay = [each for each in containers if each.pinned and not each.entries and each.old.entries]
    blank = draft.find_emptied(buffer, plan, stay)
    return draft_library(file, containers, registration, blank)._replace(replacements=replacements)


def open_changeable(buffer: Buffer, *, drop_signature: bool) -> Elf | Pe:
    """A library that can be rewritten at all; raises as `draft` does."""
    file = open_library(buffer)
    if isinstance(file, Pe):
        pe_writer.check_pe(file, drop_signature=drop_signature)
    else:
        elf_writer.check_elf(file)
    return file


def draft_library(
    file: Elf | Pe, containers: tuple[NewContainer, ...], registration: Registration, blank: tuple[Emptied, ...] = ()
) -> Draft:
    """The file with these containers, smaller or larger than before. Raises as `draft` does."""
    if isinstance(file, Pe):
        return pe_writer.draft_pe(file, containers, registration, blank)
    return elf_writer.draft_elf(file, containers, registration, blank)


def _slimmed_containers(
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
        made.append(rebuild_container(old, head, keep, replaced, pinned=index in unnamed))
    return tuple(made)


# One library, rewritten as its plan says, and read again before it takes its name.


def slim_library(source: Path, target: Path, plan: LibraryPlan) -> FileResult:
    """Write the library that `plan` describes to `target`: beside it first, then renamed. `source` is only read.

    Where the plan changes nothing, or the file is such that it cannot be changed safely, nothing is written,
    `written` is false and the findings say why. Raises MalformedError where what was written is not what was
    planned, and UnreadableError where the disk does not do its part: `target` is then what it was.
    """
    if not plan.changes:
        return _untouched(source, plan, ())
    with ExitStack() as stack:
        with closing(FileBuffer(source)) as buffer:  # Windows replaces no open file, and `target` may be `source`
            spool = stack.enter_context(payloads.spool(target.parent, buffer, plan))
            try:
                made = draft_slimmed(buffer, plan, spool.replacements)
            except MalformedError as error:
                return _untouched(source, plan, (_cannot(error),))
        return _write_slimmed(source, target, plan, made, spool)


def _write_slimmed(source: Path, target: Path, plan: LibraryPlan, made: Draft, spool: Spool) -> FileResult:
    write_draft(
        source,
        target,
        made,
        spool.fileno,
        lambda beside: read_back.same_as_planned(source, beside, plan, made, spool.fileno),
    )
    return FileResult(
        path=plan.path,
        written=True,
        bytes_before=made.old_size,
        bytes_after=made.size,
        dropped=dropped_rows(plan),
        recompressed=recompressed_rows(plan, made),
        findings=(*plan.untouched, *made.findings, *spool.findings),
    )


def write_draft(
    source: Path, target: Path, made: Draft, spool: int | None, must_hold: Callable[[Path], object]
) -> None:
    """Beside `target`, then renamed, if `must_hold` does not raise for what was written. `spool`: open, or None."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".cuwheel", dir=target.parent)
    except OSError as error:
        raise UnreadableError.from_os(error, target.parent) from error
    beside = Path(name)
    try:
        _fill(handle, source, made, spool)
        must_hold(beside)
        system_calls.rename_over(beside, target)
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def _fill(handle: int, source: Path, made: Draft, spool: int | None) -> None:
    with os.fdopen(handle, "r+b", buffering=0) as file, source.open("rb", buffering=0) as original:
        system_calls.set_mode(file.fileno(), os.fstat(original.fileno()).st_mode & 0o7777)
        os.ftruncate(file.fileno(), made.size)
        payloads.write_pieces(original.fileno(), spool, file.fileno(), made.pieces, made.patches)
        if made.checksum_at is not None:
            payloads.write_checksum(file.fileno(), made.checksum_at, made.size)


def _untouched(source: Path, plan: LibraryPlan, findings: tuple[Finding, ...]) -> FileResult:
    size = source.stat().st_size
    return FileResult(
        path=plan.path,
        written=False,
        bytes_before=size,
        bytes_after=size,
        dropped=(),
        recompressed=(),
        findings=(*plan.untouched, *findings),
    )


def _cannot(error: MalformedError) -> Finding:
    return Finding(
        rule="cannot-rewrite",
        severity="warning",
        message=f"left unchanged: {error.problem}",
    )


def dropped_rows(plan: LibraryPlan) -> tuple[Dropped, ...]:
    """Rows of what a plan drops, in the order of the file."""
    sums: dict[tuple[Kind, Arch, str], tuple[int, int]] = {}
    for each in plan.entries:
        if not each.keep:
            key = (each.entry.kind, each.entry.arch, each.entry.section)
            count, size = sums.get(key, (0, 0))
            sums[key] = count + 1, size + each.bytes
    return tuple(
        Dropped(kind=kind, arch=arch, section=section, count=count, bytes=size)
        for (kind, arch, section), (count, size) in sums.items()
    )


def recompressed_rows(plan: LibraryPlan, made: Draft) -> tuple[Recompressed, ...]:
    """Rows of what was compressed anew: entries that it would not have made smaller are left as they were."""
    sums: dict[tuple[Kind, Arch, str, Compression, Compression], tuple[int, int, int]] = {}
    for each in plan.entries:
        new = made.replacements.get(each.entry.offset)
        if new and each.recompress_to:
            key = (each.entry.kind, each.entry.arch, each.entry.section, each.entry.compression, each.recompress_to)
            count, before, after = sums.get(key, (0, 0, 0))
            sums[key] = count + 1, before + each.bytes, after + len(new.header) + new.size
    return tuple(
        Recompressed(
            kind=kind,
            arch=arch,
            section=section,
            before=old,
            after=new_kind,
            count=count,
            bytes_before=before,
            bytes_after=after,
        )
        for (kind, arch, section, old, new_kind), (count, before, after) in sums.items()
    )


# One library with more device code in its containers: written beside, read again, then given its name.

_CHUNK = 1 << 20


class Foreign:
    """An entry of another file: the buffer that it is in, and what its header says."""

    __slots__ = ("buffer", "entry")

    def __init__(self, buffer: Buffer, entry: RawEntry) -> None:
        self.buffer, self.entry = buffer, entry


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
    unnamed = set(registration.unnamed) if registration.wrappers else set(range(len(walk.containers)))
    made, at = [], 0
    for index, old in enumerate(walk.containers):
        wanted: list[RawEntry | Addition] = []
        for each in contents.get(index, old.entries):
            if isinstance(each, RawEntry):
                wanted.append(each)
                continue
            size = each.entry.header_size + each.entry.payload
            if spool is not None:
                _copy_entry(each, size, spool, at)
            wanted.append(Addition(at, each.entry.header_size, each.entry.payload))
            at += size
        if index in contents and index in unnamed:
            raise MalformedError(base.name, f"nothing refers to the container at {old.offset:#x}, which was to change")
        start = old.entries[0].offset if old.entries else old.offset + old.size
        made.append(
            rebuild_container(old, base.read(old.offset, start - old.offset), wanted, {}, pinned=index in unnamed)
        )
    return draft_library(file, tuple(made), registration)


def _copy_entry(each: Foreign, size: int, spool: int, at: int) -> None:
    for start in range(0, size, _CHUNK):
        data = each.buffer.read(each.entry.offset + start, min(_CHUNK, size - start))
        written = 0
        while written < len(data):
            written += system_calls.write_at(spool, data[written:], at + start + written)


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
                read_back.same_as_drafted(source, beside, base.name, made, file.fileno())
                must_hold(beside)

            write_draft(source, target, made, file.fileno(), check)
            return made.size
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error
