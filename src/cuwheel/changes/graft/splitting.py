"""One wheel per architecture: the opposite of grafting, which puts them together again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.binaries.decisions import EntryDecision, LibraryPlan, SlimOptions
from cuwheel.changes.graft import note
from cuwheel.changes.graft.naming import labelled
from cuwheel.changes.graft.note import Note, Origin
from cuwheel.changes.graft.outcome import GraftedLibrary, Outcome, WheelSize
from cuwheel.changes.graft.wheels import opened
from cuwheel.changes.stamp import restamp
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import MalformedError, UsageError
from cuwheel.support import codec, files, locking, system_calls
from cuwheel.wheel import variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import output_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.device_code.libraries import Entry, Library
    from cuwheel.wheel.file import WheelFile


class Part(Struct, frozen=True, kw_only=True):
    """`archs`: what it holds: machine code of one, and PTX of the same number."""

    name: str
    archs: tuple[str, ...]


def split(path: Path, request: GraftRequest) -> Outcome:
    """A wheel for each architecture, each with a note of the whole, by which they can be put together again."""
    if request.version:
        raise UsageError("--version is not for --split: each part is named after its architecture")
    with opened(path) as wheel:
        found = [each for each in survey_wheel(wheel, detail="entries").libraries if each.device_code]
        parts = tuple(_parts(found))
        if len(parts) < 2:  # noqa: PLR2004 - one is the wheel itself
            have = ", ".join(parts[0].archs) if parts else "no device code"
            raise UsageError(f"{path.name} has {have}: there is nothing to split")
        origin = Origin(
            sha256=files.sha256(path),
            version=wheel.distribution.version,
            archs=tuple(dict.fromkeys(arch for part in parts for arch in part.archs)),
            orders=tuple(dict.fromkeys(_orders(found))),
        )
        folder = request.output or Path()
        names = [str(_edit(wheel, part).name) for part in parts]
        outputs = [output_of(folder, name, [path]) for name in names]
        outcome = Outcome(base=str(path), outputs=tuple(map(str, outputs)))
        if request.dry_run:
            return outcome
        with files.errors_of(folder, f"{path.name} was not split"), locking.scratch(folder) as scratch:
            made = [
                _written(wheel, part, found, origin, scratch, drop_signature=request.drop_signature) for part in parts
            ]
            for place, output in zip(made, outputs, strict=True):
                system_calls.rename_over(place, output)
            files.sync_folder(folder)
        after = sum(each.stat().st_size for each in outputs)
        libraries = tuple(
            GraftedLibrary(
                path=each.path, bytes_before=each.size, bytes_after=each.size, containers=0, added=(), proof=None
            )
            for each in found
        )
        return replace(
            outcome, libraries=libraries, written=True, wheel=WheelSize(bytes_before=wheel.size, bytes_after=after)
        )


def _parts(libraries: Sequence[Library]) -> Iterator[Part]:
    """By linked code: a device linker's own library brings relocatable code for every architecture."""
    every = [each for library in libraries for each in library.entries]
    linked = [each for each in every if each.linked] or every
    machine_code = dict.fromkeys(each.arch for each in linked if each.kind == "cubin")
    others = dict.fromkeys(each.arch for each in linked if each.kind != "cubin")
    taken = set()
    for arch in sorted(machine_code, key=lambda each: (each.capability, each.suffix)):
        same = [each for each in others if (each.capability, each.suffix) == (arch.capability, arch.suffix)]
        taken.update(same)
        yield Part(name=str(arch), archs=(str(arch), *map(str, same)))
    for arch in others:
        if arch not in taken:
            yield Part(name=str(arch), archs=(str(arch),))


def _orders(libraries: Sequence[Library]) -> Iterator[tuple[str, ...]]:
    for each in libraries:
        rows: dict[int | None, list[str]] = {}
        for entry in each.entries:
            rows.setdefault(entry.container, []).append(str(entry.arch))
        yield from map(tuple, rows.values())


def _edit(wheel: WheelFile, part: Part) -> WheelEdit:
    edit = WheelEdit(wheel)
    edit.rename(version=labelled(wheel, [part.name]))
    edit.label(None)
    edit.drop([wheel.info + variant.FILE])
    return edit


def _written(
    wheel: WheelFile, part: Part, found: Sequence[Library], origin: Origin, folder: Path, *, drop_signature: bool
) -> Path:
    edit = _edit(wheel, part)
    for number, each in enumerate(found):
        whole, place = folder / "whole", folder / f"{part.name}-{number}"
        with whole.open("wb") as file:
            wheel.copy_to(each.path, file)
        plan = _plan(each, part, origin, SlimOptions(targets=None, drop_signature=drop_signature))
        result = rewrite.slim_library(whole, place, plan)
        if not result.written and plan.changes:
            raise MalformedError(each.path, f"cannot be split: {result.findings[-1].message}")
        if result.written:
            edit.replace(each.path, place)
    edit.add(wheel.info + note.NAME, codec.indented(Note(part_of=origin)))
    made = folder / f"{part.name}.made"
    edit.write(made)
    stamped = restamp.restamp(made, str(edit.name))
    return stamped.rename(folder / f"{part.name}.wheel")


def _plan(found: Library, part: Part, origin: Origin, options: SlimOptions) -> LibraryPlan:
    """Without the code of the other parts; what belongs to none, and what nothing refers to, is in each of them."""
    others = set(origin.archs) - set(part.archs)
    fixed = set(found.registration.unnamed) if found.registration.wrappers else None

    def keep(entry: Entry) -> bool:
        return str(entry.arch) not in others or fixed is None or entry.container in fixed or entry.container is None

    return LibraryPlan(
        path=found.path,
        options=options,
        entries=tuple(
            EntryDecision(index=index, entry=entry, keep=keep(entry), recompress_to=None, reason="split")
            for index, entry in enumerate(found.entries)
        ),
        untouched=(),
        refused=(),
        bytes_before=found.size,
        bytes_after_estimate=found.size,
    )
