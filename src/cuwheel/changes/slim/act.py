"""`cuwheel slim` from its request to its answer: a new wheel, copies, or in place; and undoing, or committing, that.

Everything is written beside its place, read back (`binaries/rewrite.py`) and only then renamed. Where a disk fills up
or a process is killed, the target is what it was.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from packaging.version import InvalidVersion

from cuwheel.changes.binaries.plan import FileChange, LibraryPlan
from cuwheel.changes.graft.answer import GRAFT_NOTE, CompiledCode
from cuwheel.changes.in_place import (
    TOOL,
    Layout,
    Owner,
    changed_copy,
    earlier_note,
    layout_of_environment,
    layout_of_folder,
    licence_findings,
    must_be_new,
    must_be_replaceable,
    of_distributions,
    owners_of,
    read_libraries,
    read_text,
    signature_dropped,
    stage_bytes,
    stage_records,
)
from cuwheel.changes.slim.answer import Size, Slim, SlimPlan, answer_of, note_of, total_of
from cuwheel.changes.slim.decide import (
    PackageRelease,
    findings_of_writing,
    make_plan,
    release_in_folder,
)
from cuwheel.changes.slim.request import SlimRequest, SlimTask, resolve
from cuwheel.device_code.survey import survey, survey_wheel
from cuwheel.errors import UsageError
from cuwheel.support import files, limited, quoting, system_calls
from cuwheel.support.files import must_have_room
from cuwheel.support.finding import finding
from cuwheel.wheel import journal, journal_file, record, variant
from cuwheel.wheel.edit import WheelEdit
from cuwheel.wheel.file import WheelFile, output_of
from cuwheel.wheel.journal_file import Header
from cuwheel.wheel.slim_note import SLIM_NOTE
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded
from cuwheel_core.support.wording import a_few, counted, size

if TYPE_CHECKING:
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.slim.ahead import Ahead
    from cuwheel.wheel.journal import Changes
    from cuwheel.wheel.record import Digest
    from cuwheel_core.support.finding import Finding

_LABEL = "slim"
_NUMBERED = re.compile(rf"(?P<rest>.*[+.]{_LABEL})(?:\.(?P<number>\d+))?")


def slim(request: SlimRequest) -> Slim:
    task = resolve(request)
    if task.kind == "environment" and request.env:
        return _slim_in_place(layout_of_environment(request.env), task, only=tuple(map(str, task.named)))
    paths = [Path(each) for each in task.named]
    if task.kind == "wheel":
        return _slim_wheel(paths[0], task)
    if task.kind == "libraries":
        return _slim_libraries(paths, task)
    if request.output:
        return _slim_folder_copy(paths[0], request.output, task)
    return _slim_in_place(layout_of_folder(paths[0]), task)


def undo(root: Path) -> Slim:
    """Every original in its place again."""
    return _end_journal(root, "undo")


def commit(root: Path) -> Slim:
    """The originals given up, and their space free."""
    return _end_journal(root, "commit")


def _end_journal(root: Path, action: Literal["undo", "commit"]) -> Slim:
    at = root.resolve()
    if not os.path.lexists(journal_file.folder_of(at)):
        raise UnreadableError(
            at, "was not slimmed by cuwheel (no journal found)", hint="perhaps it was already committed or undone"
        )
    with journal_file.locked(at):
        steps, findings = journal.undo(at) if action == "undo" else journal.commit(at)
    changes = []
    for step in steps:
        before, after = (step.after, step.before) if action == "undo" else (step.before, step.after)
        changes.append(
            FileChange(
                path=step.path,
                fate="removed" if after is None else "restored" if action == "undo" else "slimmed",
                bytes_before=before.size if before else 0,
                bytes_after=after.size if after else 0,
            )
        )
    if action == "undo":
        done = finding("undone", f"{counted(len(steps), 'change')} {'was' if len(steps) == 1 else 'were'} undone")
    else:
        originals = [step.before.size for step in steps if step.before]
        words = f"the originals of {counted(len(originals), 'file')} ({size(sum(originals))}) were deleted"
        done = finding("committed", words)
    return Slim(
        target=str(root),
        kind="environment",
        action=action,
        targets=(),
        dry_run=False,
        written=True,
        refused=False,
        output=str(at),
        files=tuple(changes),
        total=total_of(changes),
        wheel=None,
        remaining=(),
        heavy=(),
        undo=None,
        container=None,
        findings=(done, *findings),
    )


# A new wheel.


def _slim_wheel(path: Path, task: SlimTask) -> Slim:
    """Into `output`, a folder or the file itself. What is unchanged is copied as it is compressed."""
    with WheelFile(path) as wheel:
        wheel.must_be_sound("slimmed")
        found = survey_wheel(wheel, detail="entries")
        name = wheel.distribution.name
        owner = PackageRelease(name, found.loads_as or wheel.distribution.version)
        plan = make_plan(found.libraries, task, lambda _: owner, found.bitcode)
        edit = WheelEdit(wheel)
        edit.label(None)  # it would promise code that is gone
        edit.drop([wheel.info + variant.FILE])
        output = _named(edit, task.request, plan.ahead.rows() if plan.ahead else ())
        findings = [*found.findings, *plan.findings]
        if wheel.info + variant.FILE in wheel.members or (wheel.name and wheel.name.variant):
            words = f"the slimmed wheel is no variant any more: without its label, and without {variant.FILE}"
            findings.append(finding("variant-dropped", words))
        if plan.to_write or plan.removed:
            findings += licence_findings({name: wheel.metadata or ""})
        if plan.refused or task.request.dry_run:
            after = float(wheel.size)
            for each in plan.expected:  # as if what remains compressed as well as all of it
                member = wheel.members[each.path]
                after -= member.stored * (each.bytes_before - each.bytes_after) / max(member.size, 1)
            expected = Size(bytes_before=found.size, bytes_after=round(after))
            return answer_of(plan, plan.expected, findings, wheel=expected, output=str(output))
        if not plan.to_write and not plan.removed:
            return answer_of(plan, plan.files(()), [*findings, _nothing_to_slim(wheel.path)])
        with files.errors_of(output, f"{output} was not written"):
            return _write_wheel(edit, output, plan, findings)


def _write_wheel(edit: WheelEdit, output: Path, plan: SlimPlan, findings: list[Finding]) -> Slim:
    from cuwheel.changes.binaries import rewrite  # noqa: PLC0415 - not for a dry run
    from cuwheel.changes.slim.ahead import compiled_first  # noqa: PLC0415
    from cuwheel.changes.stamp import stamp  # noqa: PLC0415

    wheel = edit.wheel
    if wrong := wheel.wrong_hashes():
        raise MalformedError(
            wheel.path,
            f"not slimmed: these files are not what RECORD says of them: {a_few(wrong)}",
            hint="download the wheel again from its publisher",
        )
    with ExitStack() as stack:
        folder = stack.enter_context(files.scratch_beside(output.parent))
        largest = max((each.bytes_before for each in plan.to_write), default=0)
        room = 2 * largest + sum(each.bytes_after_estimate + 2 * each.room_to_grow for each in plan.to_write)
        must_have_room(output.parent, room + wheel.size)
        places = {each.path: folder / f"out-{number}" for number, each in enumerate(plan.to_write)}

        def copied(path: str) -> Path:
            whole = places[path].with_suffix(".in")
            if not whole.exists():
                with whole.open("wb") as file:
                    wheel.copy_to(path, file)
            return whole

        ahead = stack.enter_context(compiled_first(plan, copied))

        def rewritten(library: LibraryPlan) -> Rewritten:
            place, whole = places[library.path], copied(library.path)
            result = ahead.slim_library(whole, place, library, place.with_suffix(".grown"))
            if not library.made:  # or it is still open
                whole.unlink()
            return result

        results = rewrite.each_library(plan.to_write, rewritten)
        changed = plan.files(results)
        findings += [*ahead.findings, *findings_of_writing(results)]
        if all(each.fate == "unchanged" for each in changed):
            return answer_of(plan, changed, [*findings, _nothing_to_slim(wheel.path)], made=ahead.made)
        for each in changed:
            if each.fate == "slimmed":
                edit.replace(each.path, places[each.path])
        edit.drop(each.path for each in changed if each.fate == "removed")
        earlier = {
            name: wheel.read(wheel.info + name)
            for name in (SLIM_NOTE, GRAFT_NOTE)
            if wheel.info + name in wheel.members
        }
        names = {each.path: each.path for each in changed}
        notes = {SLIM_NOTE: note_of(plan.task, wheel.distribution.version, changed, earlier.get(SLIM_NOTE))}
        if ahead.rows:
            from cuwheel.changes.graft.writing import giver_of  # noqa: PLC0415 - few compile

            notes |= ahead.note(earlier.get(GRAFT_NOTE), names, giver_of(wheel))
        for name, note in notes.items():
            edit.add(wheel.info + name, note)
        output = _named(edit, plan.task.request, ahead.rows)
        edit.write(folder / "wheel")
        findings += map(signature_dropped, wheel.signatures)
        if wheel.unlisted:
            findings.append(
                finding(
                    "record-incomplete",
                    "RECORD and the files of the original do not match, so neither do those of the new wheel",
                    evidence=tuple(sorted(wheel.unlisted)[:3]),
                )
            )
        made = stamp.restamp(folder / "wheel", output.name, added=list(dict.fromkeys(each.arch for each in ahead.rows)))
        sizes = Size(bytes_before=wheel.size, bytes_after=made.stat().st_size)
        system_calls.rename_over(made, output)
        files.sync_folder(output.parent)
    return answer_of(plan, changed, findings, wheel=sizes, output=str(output), written=True, made=ahead.made)


def _nothing_to_slim(path: Path) -> Finding:
    words = f"{path.name} contains nothing to remove: nothing was written"
    return finding("nothing-to-slim", words)


def _named(edit: WheelEdit, request: SlimRequest, made: Sequence[CompiledCode]) -> Path:
    """Where the new wheel goes, with its new version: the one asked for, else its own with local labels."""
    wheel, asked = edit.wheel, request.version
    version = wheel.distribution.version
    if made and not asked:
        from cuwheel.changes.graft.writing import labelled as with_architectures  # noqa: PLC0415 - few compile

        version = with_architectures(wheel, dict.fromkeys(each.arch for each in made))
    try:
        edit.rename(version=str(limited.version(asked or labelled(version))))
    except InvalidVersion as error:
        if asked:
            raise UsageError(f"--version {asked}: {error}", hint="such as --version 2.11.0+h100") from error
        raise MalformedError(
            wheel.path, f"not slimmed: {version!r} is not a version", hint="download the wheel again from its publisher"
        ) from error
    return output_of(request.output or Path(), str(edit.name), [wheel.path])


def labelled(version: str) -> str:
    """`2.11.0+cu130` → `2.11.0+cu130.slim`, and `.slim.2` where it was slimmed before."""
    if match := _NUMBERED.fullmatch(version):
        return f"{match['rest']}.{bounded.digits(match['number'] or '1') + 1}"
    return f"{version}{'.' if '+' in version else '+'}{_LABEL}"


# An environment or a folder where it is, with its RECORDs, by the journal that undoes it.


def _slim_in_place(layout: Layout, task: SlimTask, only: Sequence[str] = ()) -> Slim:
    """`only`: the distributions, by any spelling of their names; all without one."""
    root, dry_run = layout.root, task.request.dry_run
    with nullcontext() if dry_run else journal_file.locked(root):
        findings = [] if dry_run else list(journal.recover(root))
        libraries, bitcode, unread = read_libraries(layout)
        owners = owners_of(layout, [*(each.path for each in libraries), *(each.path for each in bitcode)])
        if only:
            libraries = of_distributions(libraries, owners, only)
            bitcode = of_distributions(bitcode, owners, only)
        if task.workload:
            from cuwheel.changes.slim import use  # noqa: PLC0415 - few cut by use

            task = replace(task, workload=use.with_places_of_images(task.workload, root, libraries))

        def package(path: str) -> PackageRelease | None:
            """The package of a file by its RECORD; where none lists it, by the folder it is in."""
            owner, folder = owners.get(path), Path(path).parent
            name = owner.name if owner else folder.name
            return release_in_folder(name, owner.version if owner else None, root / folder) if name else None

        plan = make_plan(libraries, task, package, bitcode)
        touched = [*(each.path for each in plan.to_write), *plan.removed]
        infos = {owners[each].info: owners[each].name for each in touched if each in owners}
        licences = {name: read_text(info / "METADATA") for info, name in infos.items() if (info / "METADATA").is_file()}
        findings += [*unread, *plan.findings, *licence_findings(licences)]
        if plan.refused or dry_run:
            return answer_of(plan, plan.expected, findings, output=str(root))
        return _write_in_place(layout, plan, owners, findings)


def _write_in_place(layout: Layout, plan: SlimPlan, owners: dict[str, Owner], findings: list[Finding]) -> Slim:
    """Every new file is staged first; the journal then renames them, and can undo that.

    Too little room is known before any work, by the estimates. Where they were wrong and the disk fills up while files
    are staged, the journal drops what was staged: nothing was changed.
    """
    root, task = layout.root, plan.task
    must_be_replaceable(root, [*plan.removed, *(each.path for each in plan.to_write)])
    must_have_room(root, sum(each.bytes_after_estimate + each.room_to_grow for each in plan.to_write))
    from cuwheel.changes.slim.ahead import compiled_first  # noqa: PLC0415 - not for a dry run

    with (
        compiled_first(plan, root.joinpath) as ahead,
        journal.begin(root, Header(tool=TOOL, targets=task.machine_names)) as changes,
    ):
        results, digests = _stage_libraries(changes, plan.to_write, ahead)
        for path in plan.removed:
            changes.remove(root / path, owners[path].info / "RECORD" if path in owners else None)
        became = plan.files(results)
        changed = [each for each in became if each.fate != "unchanged"]

        def notes_of(owner: Owner, names: Mapping[str, str]) -> dict[str, bytes]:
            own = [replace(each, path=names[each.path]) for each in changed if each.path in names]
            note = note_of(task, owner.version, own, earlier_note(owner, SLIM_NOTE))
            return {SLIM_NOTE: note, **ahead.note(earlier_note(owner, GRAFT_NOTE), names)}

        if changed:
            findings += stage_records(changes, owners, digests, notes_of, plan.removed)
            if task.workload:
                from cuwheel.changes.slim import use  # noqa: PLC0415

                way_back = "install its packages again" if task.request.commit else f"undo: {_undo_command(task, root)}"
                for name, data in use.workload_guard(task.workload.commands, way_back).items():
                    for site in layout.sites:
                        stage_bytes(changes, site / name, data)
            changes.apply()
    if task.request.commit:
        journal.commit(root)
    findings += [*ahead.findings, *findings_of_writing(results)]
    undo = _undo_command(task, *task.named) if changed and not task.request.commit else None
    return answer_of(plan, became, findings, written=bool(changed), output=str(root), undo=undo, made=ahead.made)


def _undo_command(task: SlimTask, *folder: str | Path) -> str:
    """The command that takes it back."""
    where = ["--env", task.request.env] if task.request.env else folder
    return quoting.here(["cuwheel", "slim", "--undo", *map(str, where)])


def _stage_libraries(
    changes: Changes, plans: Sequence[LibraryPlan], ahead: Ahead
) -> tuple[list[Rewritten], dict[str, Digest]]:
    from cuwheel.changes.binaries import rewrite  # noqa: PLC0415 - not for a dry run

    digests: dict[str, Digest] = {}

    def rewritten(plan: LibraryPlan) -> Rewritten:
        path, staged = changes.root / plan.path, changes.stage()
        result = ahead.slim_library(path, staged, plan, changes.stage())
        change = result.change
        if result.written and not change.added and change.bytes_after >= change.bytes_before:
            staged.unlink()  # code was cut and no page with it: not worth a file that differs from its package's
            return result._replace(change=plan.unchanged)
        if result.written:
            digests[plan.path] = record.digest_of(staged)
            changes.replace(path, staged, digests[plan.path])
        return result

    return rewrite.each_library(plans, rewritten), digests


# Libraries and folders slimmed to another place: the originals are only read.


def _slim_libraries(paths: Sequence[Path], task: SlimTask) -> Slim:
    """Each to `output`: a folder, or for one library the file itself. What cannot shrink is copied as it is."""
    output = task.request.output or Path()
    places = {str(path): files.output_of(path, output, alone=len(paths) == 1) for path in paths}
    if len(set(places.values())) < len(paths):
        raise UsageError("two of the libraries have the same name", hint="slim them to two folders")
    for path in paths:
        place = places[str(path)]
        if place.exists() and path.exists() and place.samefile(path):
            raise UsageError(f"{path} would overwrite itself", hint="choose another folder with -o")
    found = [survey(path, detail="entries") for path in paths]
    libraries = [replace(each.libraries[0], path=str(path)) for each, path in zip(found, paths, strict=True)]

    def owner(path: str) -> PackageRelease | None:
        """The package of a library on its own, by the folder that it is in."""
        folder = Path(path).parent
        return release_in_folder(folder.name, None, folder) if folder.name else None

    plan = make_plan(libraries, task, owner)
    findings = [*(each for one in found for each in one.findings), *plan.findings]
    if plan.refused or task.request.dry_run:
        return answer_of(plan, plan.expected, findings)

    from cuwheel.changes.binaries import rewrite  # noqa: PLC0415 - not for a dry run
    from cuwheel.changes.slim.ahead import compiled_first  # noqa: PLC0415

    def rewritten(library: LibraryPlan) -> Rewritten:
        place = places[library.path]
        with files.scratch_beside(place.parent) as folder:
            result = ahead.slim_library(Path(library.path), place, library, folder / "grown")
        if result.written:
            shutil.copymode(library.path, place)
        return result

    with (
        files.errors_of(output, "the files already written are complete, the rest were not written"),
        compiled_first(plan, Path) as ahead,
    ):
        for place in places.values():
            place.parent.mkdir(parents=True, exist_ok=True)
        results = rewrite.each_library(plan.to_write, rewritten)
        done = {result.change.path for result in results if result.written}
        for path in paths:
            if str(path) not in done and str(path) not in plan.removed:
                place = places[str(path)]
                with files.scratch_beside(place.parent) as folder:
                    shutil.copy2(path, folder / "copy")
                    system_calls.rename_over(folder / "copy", place)
    findings += [*ahead.findings, *findings_of_writing(results)]
    return answer_of(plan, plan.files(results), findings, written=True, output=str(output), made=ahead.made)


def _slim_folder_copy(folder: Path, output: Path, task: SlimTask) -> Slim:
    """A copy of the folder, slimmed before it takes its name."""
    must_be_new(folder, output)
    layout = layout_of_folder(folder)
    planned = _slim_in_place(layout, _with_request(task, dry_run=True))
    if task.request.dry_run or planned.refused:
        return replace(planned, output=str(output), dry_run=task.request.dry_run)
    shrinking = {each.path for each in planned.files if each.fate != "unchanged"}
    committed = _with_request(task, commit=True)
    made = changed_copy(layout.root, output, shrinking, lambda tree: _slim_in_place(tree, committed))
    return replace(made, output=str(output), written=True)


def _with_request(task: SlimTask, **changes: bool) -> SlimTask:
    return replace(task, request=dataclasses.replace(task.request, **changes))  # type: ignore[arg-type]  # noqa: TID251 - a request
