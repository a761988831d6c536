"""A wheel with the device code of further ones, library by library: all are decided before the first is written."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.graft import deciding, note, writing
from cuwheel.changes.graft.deciding import Decision, Known
from cuwheel.changes.graft.naming import grafted_version
from cuwheel.changes.graft.note import Giver, Note
from cuwheel.changes.graft.outcome import GraftedLibrary, Outcome, WheelSize, nothing_new
from cuwheel.changes.graft.subject import Subject
from cuwheel.changes.stamp import restamp
from cuwheel.device_code import description
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import MalformedError, UsageError
from cuwheel.facts import versions
from cuwheel.support import codec, files, locking, system_calls
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few, file_name
from cuwheel.wheel import variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, output_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.device_code.libraries import Library

_SHOWN = 8


def graft(base: Path, donors: Sequence[Path], request: GraftRequest, donor_known: Known | None = None) -> Outcome:
    """`donor_known`: what is known of all of them, where they do not say it themselves."""
    with ExitStack() as stack:
        wheel, *givers = (stack.enter_context(opened(path)) for path in (base, *donors))
        there = device_libraries(wheel)
        given = [device_libraries(each) for each in givers]
        paired = [path for path in there if any(path in each for each in given)]
        if not paired:
            raise UsageError(
                f"{base.name} and the donors have no library with device code in common",
                hint=f"the base has {a_few(there) or 'none'}; a donor must be a build of the same package",
            )
        folder = stack.enter_context(_workplace(request, base))
        decisions = []
        for number, path in enumerate(paired):
            taking = [each for each, own in zip(givers, given, strict=True) if path in own]
            subjects = []
            for index, each in enumerate((wheel, *taking)):
                copy = _copied(each, path, folder / f"{number}-{index}")
                subject = stack.enter_context(Subject(copy, path, drop_signature=request.drop_signature))
                subjects.append((subject, donor_known or known(each)))
            decisions.append(deciding.decide(*subjects[0], subjects[1:], force=request.force))
        return _write(wheel, givers, decisions, folder, request)


def opened(path: Path) -> WheelFile:
    """Sound, and as its RECORD says: what goes in is what was published."""
    wheel = WheelFile(path)
    try:
        _must_be_intact(wheel)
    except BaseException:
        wheel.close()
        raise
    return wheel


def _must_be_intact(wheel: WheelFile) -> None:
    wheel.must_be_sound("grafted")
    if wrong := wheel.wrong_hashes():
        problem = f"not grafted: these files do not match RECORD: {a_few(wrong, 3)}"
        raise MalformedError(wheel.path, problem, hint="download the wheel again")


def device_libraries(wheel: WheelFile) -> list[str]:
    return [each.path for each in _with_device_code(wheel)]


def _with_device_code(wheel: WheelFile) -> list[Library]:
    """Those that can be rewritten."""
    found = survey_wheel(wheel, detail="rows").libraries
    return [each for each in found if each.device_code and each.format in ("elf", "pe")]


def known(wheel: WheelFile) -> Known:
    """What a wheel says of itself; what cannot be understood proves nothing."""
    about, _ = description.of_open(wheel)
    found = note.read(wheel)
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
        with locking.scratch(parent) as folder:
            yield folder
        if new:
            with suppress(OSError):  # refused: nothing is in it
                parent.rmdir()


def _copied(wheel: WheelFile, member: str, to: Path) -> Path:
    with to.open("wb") as file:
        wheel.copy_to(member, file)
    return to


def _write(
    wheel: WheelFile, givers: Sequence[WheelFile], decisions: Sequence[Decision], folder: Path, request: GraftRequest
) -> Outcome:
    """What was decided, unless it was refused; with `dry_run` its sizes alone."""
    findings = tuple(each for decision in decisions for each in decision.findings)
    outcome = Outcome(
        base=str(wheel.path),
        donors=tuple(str(each.path) for each in givers),
        findings=(*findings, *_unpaired(wheel, decisions)),
        refused=any(each.refused for each in decisions),
    )
    if outcome.refused:
        return outcome
    if not any(each.containers for each in decisions):
        return replace(outcome, findings=(*outcome.findings, nothing_new(wheel.path.name)))
    edit = WheelEdit(wheel)
    edit.rename(version=grafted_version(wheel, decisions, known(wheel).origin, request.version))
    edit.label(None)  # it was of what the base had
    edit.drop([wheel.info + variant.FILE])
    output = output_of(request.output or Path(), str(edit.name), [each.path for each in (wheel, *givers)])
    if request.dry_run:
        libraries = tuple(each.library(writing.expected_size(each)) for each in decisions)
        return replace(outcome, libraries=libraries, outputs=(str(output),))
    libraries = tuple(_written(each, edit, folder / f"made-{index}") for index, each in enumerate(decisions))
    earlier = note.read(wheel) or Note()  # what was forced then still is
    about = Note(
        base=_giver(wheel),
        donors=(*earlier.donors, *map(_giver, givers)),
        libraries=(*earlier.libraries, *libraries),
        forced=(*earlier.forced, *(each for each in findings if each.severity == "warning")),
    )
    edit.add(wheel.info + note.NAME, codec.indented(about))
    edit.write(folder / "wheel")
    made = restamp.restamp(folder / "wheel", output.name, added=[row.arch for each in libraries for row in each.added])
    size = WheelSize(bytes_before=wheel.size, bytes_after=made.stat().st_size)
    system_calls.rename_over(made, output)
    files.sync_folder(output.parent)
    return replace(outcome, libraries=libraries, outputs=(str(output),), written=True, wheel=size)


def _written(decision: Decision, edit: WheelEdit, place: Path) -> GraftedLibrary:
    if not decision.containers:
        return decision.library(decision.base.buffer.size)
    size = writing.write(decision, place)
    edit.replace(decision.base.name, place)
    return decision.library(size)


def _giver(wheel: WheelFile) -> Giver:
    return Giver(file=wheel.path.name, version=wheel.distribution.version, sha256=files.sha256(wheel.path))


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
    yield Finding(
        rule="graft-library-unchanged",
        severity="note",
        message=f"no donor has {a_few(names, _SHOWN)}: {stay}",
        fix=f"with --add: --cuda {','.join(_cudas(every))}" if of_others else "",
    )


def _cudas(libraries: Sequence[Library]) -> list[str]:
    return sorted({version for each in libraries for version in each.toolkits[-1:]}, key=versions.key)
