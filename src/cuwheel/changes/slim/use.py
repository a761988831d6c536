"""Cutting by use: of each library only what a traced workload loaded. Asked for in so many words, never the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.slim import unchanged
from cuwheel.device_code import fatbin
from cuwheel.device_code.sections import FATBIN_SECTIONS
from cuwheel.errors import CuwheelError
from cuwheel.support import log
from cuwheel.support.buffer import FileBuffer
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few, file_name
from cuwheel.verdicts.choice import loadable_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.changes.binaries.decisions import LibraryPlan
    from cuwheel.device_code.libraries import Entry, Library
    from cuwheel.machine.fleet import Machine
    from cuwheel.tracing.traced import Use, Workload

_HASHED = 1 << 16  # of an image in memory, which the trace has the hash of
_FNV, _FNV_PRIME, _WORD = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
NOT_LOADED = "the traced workload does not load it"


class Kept(Struct, frozen=True, kw_only=True):
    """What is left of a library after cutting by use: pieces are containers, and cubins that stand in none.

    `loaded` is false where the workload never loaded anything of it: whatever needs it will no longer work.
    """

    path: str
    pieces: int
    kept: int
    loaded: bool


def unloaded(library: Library, workload: Workload) -> Iterator[int]:
    """The entries that the workload does not load, as far as that can be told.

    It can of every container that the runtime registers, and of code that the library hands to the driver itself. Not
    of LTO-IR, which linkers take, nor of relocatable code in a library that the workload uses.
    """
    if library.build_id is None:
        return
    use = workload.use_of(library.build_id, library.size)
    known = unchanged.named(library)
    doubtful = {
        each.container
        for each in library.entries
        if each.section not in FATBIN_SECTIONS and loadable_code(each) is None
    }
    for index, entry in enumerate(library.entries):
        outside = entry.section not in FATBIN_SECTIONS and entry.container not in doubtful
        if (entry.container in known or outside) and not _is_loaded(entry, library, use):
            yield index


def _is_loaded(entry: Entry, library: Library, use: Use | None) -> bool:
    if use is None:
        return False
    if entry.container is None:
        return use.unclear or entry.offset in use.offsets
    return not entry.linked or library.containers[entry.container].offset in use.offsets


def located(workload: Workload, root: Path, libraries: Sequence[Library]) -> Workload:
    """With the places of what libraries unpack in memory before they load it: found again by its hash."""
    by_build = {(each.build_id, each.size): each for each in libraries}
    uses = tuple(
        _located(use, root, by_build[use.build_id, use.size]) if (use.build_id, use.size) in by_build else use
        for use in workload.uses
    )
    return replace(workload, uses=uses)


def _located(use: Use, root: Path, library: Library) -> Use:
    loose = [each for each in library.entries if each.container is None]
    if not loose or not use.images:
        return use
    try:
        places = _by_hash(root / library.path, loose)
    except CuwheelError as error:
        log.debug("%s", error.message)
        return replace(use, unclear=True)
    found = frozenset(places[each] for each in use.images if each in places)
    return replace(use, offsets=use.offsets | found, unclear=len(found) < len(use.images))


def _by_hash(path: Path, loose: Sequence[Entry]) -> dict[str, int]:
    buffer = FileBuffer(path)
    try:
        return {
            _hash(fatbin.read_payload(buffer, each.offset, each.bytes, each.real_bytes, each.compression)): each.offset
            for each in loose
        }
    finally:
        buffer.close()


def _hash(data: bytes) -> str:
    """As the preloaded library does: FNV-1a of the first bytes."""
    value = _FNV
    for byte in data[:_HASHED]:
        value = (value ^ byte) * _FNV_PRIME & _WORD
    return f"{value:016x}"


def refusals(libraries: Sequence[Library], targets: Sequence[Machine] | None, workload: Workload) -> Iterator[Finding]:
    """Why nothing may be cut by these traces."""
    if libraries and all(each.format == "pe" for each in libraries):
        yield Finding(
            rule="trace-is-of-linux",
            severity="error",
            message="these are Windows binaries, and programs are traced on Linux alone: no trace tells what a "
            "workload loads of them",
            fix="cut them by GPU: cuwheel slim TARGET --for GPU",
        )
        return
    for problem in workload.problems:
        yield _refused("trace-incomplete", f"what the trace lists may not be all that the workload loads: {problem}")
    known = {(each.build_id, each.size) for each in libraries if each.build_id}
    names = {file_name(each.path) for each in libraries}
    if not any((use.build_id, use.size) in known for use in workload.uses):
        yield _refused("trace-of-another-build", "nothing here is of the builds that were traced")
    else:
        others = [use.name for use in workload.uses if use.name in names and (use.build_id, use.size) not in known]
        if others:
            words = "have another build id or size here than when they were traced"
            yield _refused("trace-of-another-build", f"{a_few(sorted(set(others)))} {words}")
    traced = set(workload.gpus)
    if missing := [each.name for each in targets or () if each.capability not in traced]:
        gpus = a_few(sorted(traced))
        words = f"the workload was traced on {gpus}, which tells nothing of what {a_few(missing)} would load"
        yield _refused("trace-of-another-gpu", words)


def _refused(rule: str, message: str) -> Finding:
    return Finding(
        rule=rule,
        severity="error",
        message=message,
        fix="trace the workload with exactly these files and GPUs: cuwheel trace -o trace.json -- COMMAND "
        "(where they were slimmed before: cuwheel slim --undo first)",
    )


def kept(plan: LibraryPlan, library: Library) -> Kept:
    pieces: dict[tuple[int | None, int], bool] = {}
    for each in plan.entries:
        key = (each.entry.container, each.index if each.entry.container is None else -1)
        pieces[key] = pieces.get(key, False) or each.keep
    workload = plan.options.workload
    use = workload.use_of(library.build_id, library.size) if workload else None
    return Kept(path=plan.path, pieces=len(pieces), kept=sum(pieces.values()), loaded=use is not None)
