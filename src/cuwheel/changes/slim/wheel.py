"""A wheel without what its machines never load: decided, then written beside and given its name at the end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.slim import in_place, licence, note, proposal, workers
from cuwheel.changes.slim.in_place import signature_dropped
from cuwheel.changes.slim.outcome import FileChange, Outcome, Size
from cuwheel.changes.stamp import restamp
from cuwheel.device_code.survey import survey_wheel
from cuwheel.errors import MalformedError, UsageError
from cuwheel.support import locking, system_calls
from cuwheel.support.files import errors_of, must_have_room, sync_folder
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few
from cuwheel.wheel import variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, output_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.binaries.decisions import FileResult, LibraryPlan
    from cuwheel.changes.slim.proposal import Proposal
    from cuwheel.changes.slim.task import Task

_LABEL = "slim"
_NUMBERED = re.compile(rf"(?P<rest>.*[+.]{_LABEL})(?:\.(?P<number>\d+))?")


def slim(path: Path, task: Task) -> Outcome:
    """Into `output`, a folder or the file itself. Without a `level` what is unchanged is copied as it is compressed."""
    with WheelFile(path) as wheel:
        wheel.must_be_sound("slimmed")
        return _slim(wheel, task)


def _slim(wheel: WheelFile, task: Task) -> Outcome:
    found = survey_wheel(wheel, detail="entries")
    edit = WheelEdit(wheel, level=task.request.level)
    edit.rename(version=new_version(wheel, task.request.version))
    edit.label(None)  # it would promise code that is gone
    edit.drop([wheel.info + variant.FILE])
    output = output_of(task.request.output or Path(), str(edit.name), [wheel.path])
    distribution = wheel.distribution
    owner = proposal.Owning(distribution.name, found.loads_as or distribution.version)
    plan = proposal.propose(found.libraries, task.options, cuda=task.cuda, package_of=lambda _: owner)
    findings = (*found.findings, *plan.findings, *_no_variant(wheel))
    if plan.to_write:
        findings += licence.finding({distribution.name: wheel.metadata or ""})
    if plan.refused or task.request.dry_run:
        files = proposal.expected(plan)
        size = Size(bytes_before=found.size, bytes_after=_expected_size(wheel, files))
        return _outcome(plan, files, findings, wheel=size, output=str(output))
    if not plan.to_write and not plan.removed:
        files = proposal.in_order(workers.unchanged(each) for each in plan.plans.values())
        return _outcome(plan, files, (*findings, _nothing(wheel.path)))
    with errors_of(output, f"{output} was not written"):
        return _act(edit, output, task, plan, findings)


def _act(edit: WheelEdit, output: Path, task: Task, plan: Proposal, findings: tuple[Finding, ...]) -> Outcome:
    wheel = edit.wheel
    if wrong := wheel.wrong_hashes():
        raise MalformedError(
            wheel.path,
            f"not slimmed: these files are not what RECORD says of them: {a_few(wrong)}",
            hint="download the wheel again from its publisher",
        )
    with locking.scratch(output.parent) as folder:
        largest = max((each.bytes_before for each in plan.to_write), default=0)
        must_have_room(folder, 2 * largest + sum(each.bytes_after_estimate for each in plan.to_write) + wheel.size)
        results = _slim_libraries(wheel, folder, plan.to_write)
        files = workers.files_of(plan, results)
        findings += proposal.met(plan, results)
        written = {result.path: folder / f"out-{number}" for number, result in enumerate(results) if result.written}
        if not written and not plan.removed:
            return _outcome(plan, files, (*findings, _nothing(wheel.path)))
        for member, place in written.items():
            edit.replace(member, place)
        edit.drop(each.path for each in files if each.fate == "removed")
        edit.add(wheel.info + note.SLIM_NOTE, _note(wheel, task, files))
        made = folder / "wheel"
        edit.write(made)
        findings += (*map(signature_dropped, wheel.signatures), *_incomplete_record(wheel))
        made = restamp.restamp(made, output.name)
        size = Size(bytes_before=wheel.size, bytes_after=made.stat().st_size)
        system_calls.rename_over(made, output)
        sync_folder(output.parent)
    return _outcome(plan, files, findings, wheel=size, output=str(output), written=True)


def _note(wheel: WheelFile, task: Task, files: Sequence[FileChange]) -> bytes:
    before = wheel.info + note.SLIM_NOTE
    return note.text(
        targets=note.names_of(task.options.targets),
        cuda=task.cuda,
        version=wheel.distribution.version,
        files=files,
        before=wheel.read(before) if before in wheel.members else None,
    )


def _slim_libraries(wheel: WheelFile, folder: Path, plans: Sequence[LibraryPlan]) -> list[FileResult]:
    numbers = {plan.path: number for number, plan in enumerate(plans)}

    def act(plan: LibraryPlan) -> FileResult:
        number = numbers[plan.path]
        whole = folder / f"in-{number}"
        with whole.open("wb") as file:
            wheel.copy_to(plan.path, file)
        result = rewrite.slim_library(whole, folder / f"out-{number}", plan)
        whole.unlink()
        return replace(result, path=plan.path)

    return workers.each_of(plans, act)


def _no_variant(wheel: WheelFile) -> Iterator[Finding]:
    if wheel.info + variant.FILE in wheel.members or (wheel.name and wheel.name.variant):
        yield Finding(
            rule="variant-dropped",
            severity="note",
            message=f"the slimmed wheel is no variant any more: without its label, and without {variant.FILE}",
        )


def _incomplete_record(wheel: WheelFile) -> Iterator[Finding]:
    if wheel.unlisted:
        yield Finding(
            rule="record-incomplete",
            severity="warning",
            message="RECORD and the files of the original do not match, so neither do those of the new wheel",
            evidence=tuple(sorted(wheel.unlisted)[:3]),
        )


def _expected_size(wheel: WheelFile, files: Sequence[FileChange]) -> int:
    """As if what remains compressed as well as all of it."""
    saved = 0.0
    for each in files:
        member = wheel.members[each.path]
        saved += member.stored * (each.bytes_before - each.bytes_after) / max(member.size, 1)
    return round(wheel.size - saved)


def new_version(wheel: WheelFile, asked: str | None) -> str:
    """The one asked for, else the wheel's own with a local label."""
    version = wheel.distribution.version
    try:
        return str(Version(asked or labelled(version)))
    except InvalidVersion as error:
        if asked:
            raise UsageError(f"--version {asked}: {error}", hint="such as --version 2.11.0+h100") from error
        raise MalformedError(
            wheel.path, f"not slimmed: {version!r} is not a version", hint="download the wheel again from its publisher"
        ) from error


def labelled(version: str) -> str:
    """`2.11.0+cu130` → `2.11.0+cu130.slim`, and `.slim.2` where it was slimmed before."""
    if match := _NUMBERED.fullmatch(version):
        return f"{match['rest']}.{int(match['number'] or 1) + 1}"
    return f"{version}{'.' if '+' in version else '+'}{_LABEL}"


def _outcome(
    plan: Proposal,
    files: tuple[FileChange, ...],
    findings: tuple[Finding, ...],
    *,
    wheel: Size | None = None,
    output: str | None = None,
    written: bool = False,
) -> Outcome:
    found = in_place.outcome(plan, files, findings, written=written)
    return replace(found, written=written, output=output, wheel=wheel)


def _nothing(path: Path) -> Finding:
    return Finding(
        rule="nothing-to-slim",
        severity="note",
        message=f"{path.name} contains nothing to remove: nothing was written",
    )
