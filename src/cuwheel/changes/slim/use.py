"""Cutting by use: what traces of a workload say of the libraries here, and what is written beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.slim.answer import Kept
from cuwheel.support import log
from cuwheel.support.finding import finding
from cuwheel_core.device_code import fatbin
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts.choice import loadable_code

if TYPE_CHECKING:
    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel.machine.fleet import Machine
    from cuwheel.tracing.traced import Use, Workload
    from cuwheel_core.device_code.libraries import Entry, Library
    from cuwheel_core.support.finding import Finding

_HASHED = 1 << 16  # of an image in memory, which the trace has the hash of
_FNV, _FNV_PRIME, _WORD = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_GUARD = "_cuwheel_workload"


def trace_problems(
    libraries: Sequence[Library], machines: Sequence[Machine] | None, workload: Workload
) -> Iterator[Finding]:
    """Why nothing may be cut by these traces."""
    if libraries and all(each.format == "pe" for each in libraries):
        yield finding(
            "trace-is-of-linux",
            "these are Windows binaries, and programs are traced on Linux alone: no trace tells what a "
            "workload loads of them",
        )
        return
    found = [
        ("trace-incomplete", f"what the trace lists may not be all that the workload loads: {problem}")
        for problem in workload.problems
    ]
    known = {(each.build_id, each.size) for each in libraries if each.build_id}
    names = {file_name(each.path) for each in libraries}
    others = {use.name for use in workload.uses if use.name in names and (use.build_id, use.size) not in known}
    if not any((use.build_id, use.size) in known for use in workload.uses):
        found.append(("trace-of-another-build", "nothing here is of the builds that were traced"))
    elif others:
        words = f"{a_few(sorted(others))} have another build id or size here than when they were traced"
        found.append(("trace-of-another-build", words))
    traced = set(workload.gpus)
    if missing := [each.name for each in machines or () if each.capability not in traced]:
        gpus = a_few(sorted(traced))
        words = f"the workload was traced on {gpus}, which tells nothing of what {a_few(missing)} would load"
        found.append(("trace-of-another-gpu", words))
    for rule, message in found:
        yield finding(
            rule,
            message,
            fix="trace the workload with exactly these files and GPUs: cuwheel trace -o trace.json -- COMMAND "
            "(where they were slimmed before: cuwheel slim --undo first)",
        )


def unloaded_entries(library: Library, registered: Collection[int], workload: Workload) -> Iterator[int]:
    """The entries that the workload does not load, as far as that can be told.

    It can of the containers that the runtime registers, and of code that the library hands to the driver itself. Not of
    LTO-IR, which linkers take, nor of relocatable code in a library that the workload uses.
    """
    if library.build_id is None:
        return
    use = workload.use_of(library.build_id, library.size)
    doubtful = {
        each.container
        for each in library.entries
        if each.section not in FATBIN_SECTIONS and loadable_code(each) is None
    }
    for index, entry in enumerate(library.entries):
        outside = entry.section not in FATBIN_SECTIONS and entry.container not in doubtful
        if not (entry.container in registered or outside):
            continue
        if use is None:
            loaded = False
        elif entry.container is None:
            loaded = use.unclear or entry.offset in use.offsets
        else:
            loaded = not entry.linked or library.containers[entry.container].offset in use.offsets
        if not loaded:
            yield index


def kept_by_use(plan: LibraryPlan, library: Library, workload: Workload) -> Kept:
    """What is left of a library's pieces."""
    pieces: dict[tuple[int | None, int], bool] = {}
    for each in plan.entries:
        key = (each.entry.container, each.index if each.entry.container is None else -1)
        pieces[key] = pieces.get(key, False) or each.keep
    loaded = workload.use_of(library.build_id, library.size) is not None
    return Kept(path=plan.path, pieces=len(pieces), kept=sum(pieces.values()), loaded=loaded)


# Images that libraries unpack in memory: a trace knows them by their hash.


def with_places_of_images(workload: Workload, root: Path, libraries: Sequence[Library]) -> Workload:
    """Adds the places of what libraries unpack in memory before they load it: found again by its hash."""
    by_build = {(each.build_id, each.size): each for each in libraries}
    uses = tuple(
        _use_with_places(use, root, by_build[use.build_id, use.size]) if (use.build_id, use.size) in by_build else use
        for use in workload.uses
    )
    return replace(workload, uses=uses)


def _use_with_places(use: Use, root: Path, library: Library) -> Use:
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
    with closing(FileBuffer(path)) as buffer:
        return {
            _fnv_hash(
                fatbin.read_payload(buffer, each.offset, each.bytes, each.real_bytes, each.compression)
            ): each.offset
            for each in loose
        }


def _fnv_hash(data: bytes) -> str:
    """FNV-1a of the first bytes, as the preloaded library computes it."""
    value = _FNV
    for byte in data[:_HASHED]:
        value = (value ^ byte) * _FNV_PRIME & _WORD
    return f"{value:016x}"


def workload_guard(commands: tuple[str, ...], way_back: str) -> dict[str, bytes]:
    """In an environment that is cut to a workload, what says so when something fails: `workload_guard.py`, filled in.

    By the names of the files in site-packages.
    """
    template = Path(__file__).with_name("workload_guard.py").read_text(encoding="utf-8")
    head, _, rest = template.partition("# >>> data\n")
    data = f"COMMANDS = {'; '.join(commands)!a}\nWAY_BACK = {way_back!a}\n"
    source = head + data + rest.partition("# <<< data\n")[2]
    return {f"{_GUARD}.py": source.encode(), f"{_GUARD}.pth": f"import {_GUARD}; {_GUARD}.watch()\n".encode()}
