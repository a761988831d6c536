"""`cuwheel graft` from its request to its answer: libraries, wheels, or a wheel that is split.

All libraries are decided before the first is written. Each is written beside its place, read again, and held against
the plan and against the base."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.binaries.plan import EntryDecision, LibraryPlan
from cuwheel.changes.graft.answer import (
    GRAFT_NOTE,
    Graft,
    GraftedLibrary,
    Note,
    Origin,
    WheelSize,
    answer_of,
    read_note,
)
from cuwheel.changes.graft.decide import Decision, Known, decide
from cuwheel.changes.graft.subject import Subject
from cuwheel.changes.graft.writing import expected_size, labelled, must_be_intact, write_library, write_wheel
from cuwheel.changes.stamp import stamp
from cuwheel.device_code import description
from cuwheel.device_code.survey import survey_wheel
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import UsageError
from cuwheel.machine import fleet
from cuwheel.support import codec, files, system_calls
from cuwheel.support.finding import finding
from cuwheel.wheel import variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, output_of
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts import drivers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel_core.device_code.libraries import Entry, Library
    from cuwheel_core.facts.arch import Arch
    from cuwheel_core.support.finding import Finding

_SHOWN = 8


def graft(request: GraftRequest) -> Graft:
    """All of it; with `dry_run` all but the writing."""
    if request.compile:
        from cuwheel.changes.graft.compiled import compile_ahead  # noqa: PLC0415 - others need no compiler

        return compile_ahead(request)
    base, *donors = (Path(downloaded_if_pinned(each)) for each in (request.base, *request.named))
    for path in (base, *donors):
        if not path.is_file():
            raise UnreadableError(
                path, "is not a file", hint="give wheels, or libraries: cuwheel graft BASE DONOR -o OUT"
            )
    if request.output is None and not request.dry_run:
        raise UsageError("nothing is changed in place", hint="choose where the result goes: -o FOLDER")
    kinds = {path.suffix == ".whl" for path in (base, *donors)}
    if request.split:
        if kinds != {True}:
            raise UsageError(
                f"{base.name} is not a wheel: only wheels can be split", hint="cuwheel slim splits libraries"
            )
        return _split(base, request)
    if len(kinds) > 1:
        raise UsageError("wheels and libraries cannot be mixed", hint="give wheels only, or libraries only")
    return graft_wheels(base, donors, request) if kinds == {True} else _graft_libraries(base, donors, request)


def _graft_libraries(base: Path, donors: Sequence[Path], request: GraftRequest) -> Graft:
    if request.version:
        raise UsageError("--version is for wheels")
    target = files.output_of(base, request.output or Path())
    if request.output and target.exists() and any(target.samefile(each) for each in (base, *donors)):
        raise UsageError(f"{target} is one of the inputs", hint="choose another place with -o")
    with ExitStack() as stack:
        subject = stack.enter_context(Subject(base, str(base), drop_signature=request.drop_signature))
        givers = [(stack.enter_context(Subject(each, str(each))), Known()) for each in donors]
        made = decide(subject, Known(), givers, force=request.force)
        answer = partial(answer_of, request, base, donors, findings=made.findings)
        if made.refused:
            return answer(refused=True)
        if not made.containers:
            return answer(findings=(*made.findings, _nothing_new(base.name)))
        if request.dry_run:
            return answer(libraries=(made.library(expected_size(made)),), outputs=[target])
        with files.errors_of(target, f"{target} was not written"), files.scratch_beside(target.parent) as folder:
            size = write_library(made, folder / "library")
            shutil.copymode(base, folder / "library")
            system_calls.rename_over(folder / "library", target)
        return answer(libraries=(made.library(size),), outputs=[target], written=True)


def _nothing_new(name: str) -> Finding:
    return finding("graft-nothing-new", f"{name} already has every architecture of the donors: nothing was written")


# A wheel with the device code of further ones, library by library: all are decided before the first is written.


def graft_wheels(base: Path, donors: Sequence[Path], request: GraftRequest, donor_known: Known | None = None) -> Graft:
    """`donor_known`: what is known of all of them, where they do not say it themselves."""
    with ExitStack() as stack:
        wheel, *givers = opened = [stack.enter_context(WheelFile(path)) for path in (base, *donors)]
        for each in opened:
            must_be_intact(each)
        of_base, *of_donors = ([library.path for library in _with_device_code(each)] for each in opened)
        paired = [path for path in of_base if any(path in each for each in of_donors)]
        if not paired:
            raise UsageError(
                f"{base.name} and the donors have no library with device code in common",
                hint=f"the base has {a_few(of_base) or 'none'}; a donor must be a build of the same package",
            )
        folder = stack.enter_context(_workplace(request, base))
        decisions = []
        for number, path in enumerate(paired):
            taking = [each for each, own in zip(givers, of_donors, strict=True) if path in own]
            subjects = []
            for index, each in enumerate((wheel, *taking)):
                copy = folder / f"{number}-{index}"
                with copy.open("wb") as file:
                    each.copy_to(path, file)
                subject = stack.enter_context(Subject(copy, path, drop_signature=request.drop_signature))
                subjects.append((subject, donor_known or _known(each)))
            decisions.append(decide(*subjects[0], subjects[1:], force=request.force))
        told = (*(each for decision in decisions for each in decision.findings), *_unpaired(wheel, decisions))
        added = {each.base.name: {held.entry.arch for held in each.added} for each in decisions}
        told += tuple(not_for_jetson(_with_device_code(wheel), added))
        answer = partial(answer_of, request, wheel.path, [each.path for each in givers], findings=told)
        if any(each.refused for each in decisions):
            return answer(refused=True)
        if not any(each.containers for each in decisions):
            return answer(findings=(*told, _nothing_new(wheel.path.name)))
        origin = _known(wheel).origin
        return write_wheel(wheel, decisions, folder, request, answer, givers=givers, origin=origin)


def _with_device_code(wheel: WheelFile) -> list[Library]:
    """Those that can be rewritten."""
    found = survey_wheel(wheel, detail="rows").libraries
    return [each for each in found if each.device_code and each.format in ("elf", "pe")]


def _known(wheel: WheelFile) -> Known:
    """What a wheel says of itself; what cannot be understood proves nothing."""
    about, _ = description.read_or_finding(lambda: description.of_wheel(wheel))
    found = read_note(wheel)
    return Known(about, found.part_of if found else None)


@contextmanager
def _workplace(request: GraftRequest, base: Path) -> Iterator[Path]:
    if request.dry_run or request.output is None:
        with tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as name:
            yield Path(name)
        return
    parent = request.output.parent if request.output.suffix == ".whl" else request.output
    new = not parent.exists()
    with files.errors_of(parent, f"{base.name} was not grafted"):
        with files.scratch_beside(parent) as folder:
            yield folder
        if new:
            with suppress(OSError):  # refused: nothing is in it
                parent.rmdir()


def _unpaired(wheel: WheelFile, decisions: Sequence[Decision]) -> Iterator[Finding]:
    """Libraries that stay as they are, and what they were built with: often one for each CUDA version."""
    paired = {each.base.name for each in decisions}
    every = _with_device_code(wheel)
    others = [each for each in every if each.path not in paired]
    if not others:
        return
    names = [f"{file_name(each.path)} (CUDA {', '.join(each.toolkits) or 'unknown'})" for each in others]
    stay = "it stays as it is" if len(others) == 1 else "they stay as they are"
    grown = {version for each in every if each.path in paired for version in each.toolkits}
    of_others = all(each.toolkits and grown.isdisjoint(each.toolkits) for each in others)
    cudas = sorted({version for each in every for version in each.toolkits[-1:]}, key=versions.key)
    yield finding(
        "graft-library-unchanged",
        f"no donor has {a_few(names, _SHOWN)}: {stay}",
        fix=f"with --add: --cuda {','.join(cudas)}" if of_others else "",
    )


def not_for_jetson(libraries: Iterable[Library], added: Mapping[str, Collection[Arch]]) -> Iterator[Finding]:
    """Code of its own architecture does not make a build for servers run on L4T. `added`: by the library's path."""
    names: dict[str, list[str]] = {}
    for each in libraries:
        for arch in added.get(each.path, ()):
            jetson = fleet.from_gpu(str(arch.capability))
            if not gpus.is_tegra(arch.capability):
                continue
            joined = toolkits.joined_arm64(arch.capability)
            if drivers.wrong_distribution(each, jetson):
                since = toolkits.one_arm64_since()
                told = f"built for servers by a CUDA before {since}, so that it fails on a Jetson with {arch} too"
            elif joined and (built := drivers.before_joining(each, jetson)):
                told = (
                    f"built for servers by CUDA {built}, which nobody has confirmed to run on a Jetson with {arch}: "
                    f"that one shares CUDA with servers from {joined.cuda} on"
                )
            else:
                continue
            names.setdefault(told, []).append(file_name(each.path))
    for told, found in names.items():
        yield finding("graft-not-for-l4t", f"{told}: {a_few(found, _SHOWN)}")


# One wheel per architecture: the opposite of grafting, which puts them together again.


class _Part(Struct, frozen=True, kw_only=True):
    """`archs`: what it holds: machine code of one, and PTX of the same number."""

    name: str
    archs: tuple[str, ...]


def _split(path: Path, request: GraftRequest) -> Graft:
    """A wheel for each architecture, each with a note of the whole, by which they can be put together again."""
    if request.version:
        raise UsageError("--version is not for --split: each part is named after its architecture")
    with WheelFile(path) as wheel:
        must_be_intact(wheel)
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
        names = [str(_part_edit(wheel, part).name) for part in parts]
        outputs = [output_of(folder, name, [path]) for name in names]
        if request.dry_run:
            return answer_of(request, path, outputs=outputs)
        with files.errors_of(folder, f"{path.name} was not split"), files.scratch_beside(folder) as scratch:
            made = [
                _write_part(wheel, part, found, origin, scratch, drop_signature=request.drop_signature)
                for part in parts
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
        sizes = WheelSize(bytes_before=wheel.size, bytes_after=after)
        return answer_of(request, path, libraries=libraries, outputs=outputs, written=True, wheel=sizes)


def _parts(libraries: Sequence[Library]) -> Iterator[_Part]:
    """Splits by linked code: a device linker's own library brings relocatable code for every architecture."""
    every = [each for library in libraries for each in library.entries]
    linked = [each for each in every if each.linked] or every
    machine_code = dict.fromkeys(each.arch for each in linked if each.kind == "cubin")
    others = dict.fromkeys(each.arch for each in linked if each.kind != "cubin")
    taken = set()
    for arch in sorted(machine_code, key=lambda each: (each.capability, each.suffix)):
        same = [each for each in others if (each.capability, each.suffix) == (arch.capability, arch.suffix)]
        taken.update(same)
        yield _Part(name=str(arch), archs=(str(arch), *map(str, same)))
    for arch in others:
        if arch not in taken:
            yield _Part(name=str(arch), archs=(str(arch),))


def _orders(libraries: Sequence[Library]) -> Iterator[tuple[str, ...]]:
    for each in libraries:
        rows: dict[int | None, list[str]] = {}
        for entry in each.entries:
            rows.setdefault(entry.container, []).append(str(entry.arch))
        yield from map(tuple, rows.values())


def _part_edit(wheel: WheelFile, part: _Part) -> WheelEdit:
    edit = WheelEdit(wheel)
    edit.rename(version=labelled(wheel, [part.name]))
    edit.label(None)
    edit.drop([wheel.info + variant.FILE])
    return edit


def _write_part(
    wheel: WheelFile, part: _Part, found: Sequence[Library], origin: Origin, folder: Path, *, drop_signature: bool
) -> Path:
    edit = _part_edit(wheel, part)
    for number, each in enumerate(found):
        whole, place = folder / "whole", folder / f"{part.name}-{number}"
        with whole.open("wb") as file:
            wheel.copy_to(each.path, file)
        plan = _part_plan(each, part, origin, drop_signature=drop_signature)
        result = rewrite.slim_library(whole, place, plan)
        if not result.written and plan.changes:
            raise MalformedError(each.path, f"cannot be split: {result.findings[-1].message}")
        if result.written:
            edit.replace(each.path, place)
    edit.add(wheel.info + GRAFT_NOTE, codec.indented(Note(part_of=origin)))
    made = folder / f"{part.name}.made"
    edit.write(made)
    stamped = stamp.restamp(made, str(edit.name))
    return stamped.rename(folder / f"{part.name}.wheel")


def _part_plan(found: Library, part: _Part, origin: Origin, *, drop_signature: bool) -> LibraryPlan:
    """Without the code of the other parts; what belongs to none, and what nothing refers to, is in each of them."""
    others = set(origin.archs) - set(part.archs)
    fixed = set(found.registration.unnamed) if found.registration.wrappers else None

    def keep(entry: Entry) -> bool:
        return str(entry.arch) not in others or fixed is None or entry.container in fixed or entry.container is None

    return LibraryPlan(
        path=found.path,
        entries=tuple(
            EntryDecision(index=index, entry=entry, keep=keep(entry), recompress_to=None, reason="split")
            for index, entry in enumerate(found.entries)
        ),
        bytes_before=found.size,
        drop_signature=drop_signature,
    )
