"""One library, rewritten as its plan says, and read again before it takes its name."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import compress, copying
from cuwheel.changes.binaries import read_back as check
from cuwheel.changes.binaries.decisions import Dropped, FileResult, Recompressed
from cuwheel.changes.binaries.drafting import draft
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import system_calls
from cuwheel.support.buffer import FileBuffer
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.changes.binaries.compress import Spool
    from cuwheel.changes.binaries.decisions import LibraryPlan
    from cuwheel.changes.binaries.draft import Draft
    from cuwheel.device_code.libraries import Compression, Kind
    from cuwheel.facts.arch import Arch

__all__ = ["Dropped", "FileResult", "Recompressed", "slim_library", "write"]


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
            spool = stack.enter_context(compress.spool(target.parent, buffer, plan))
            try:
                made = draft(buffer, plan, spool.replacements)
            except MalformedError as error:
                return _untouched(source, plan, (_cannot(error),))
        return _write(source, target, plan, made, spool)


def _write(source: Path, target: Path, plan: LibraryPlan, made: Draft, spool: Spool) -> FileResult:
    write(
        source,
        target,
        made,
        spool.fileno,
        lambda beside: check.same_as_planned(source, beside, plan, made, spool.fileno),
    )
    return FileResult(
        path=plan.path,
        written=True,
        bytes_before=made.old_size,
        bytes_after=made.size,
        dropped=dropped(plan),
        recompressed=recompressed(plan, made),
        findings=(*plan.untouched, *made.findings, *spool.findings),
    )


def write(source: Path, target: Path, made: Draft, spool: int | None, must_hold: Callable[[Path], object]) -> None:
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
        copying.write(original.fileno(), spool, file.fileno(), made.pieces, made.patches)
        if made.checksum_at is not None:
            copying.write_checksum(file.fileno(), made.checksum_at, made.size)


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


def dropped(plan: LibraryPlan) -> tuple[Dropped, ...]:
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


def recompressed(plan: LibraryPlan, made: Draft) -> tuple[Recompressed, ...]:
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
