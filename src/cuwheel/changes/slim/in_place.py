"""An environment or a folder slimmed where it is, with its RECORDs, by the journal that undoes it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import FileChange
from cuwheel.changes.in_place import (
    Layout,
    Owner,
    in_no_record,
    must_be_replaceable,
    of_distributions,
    owners_of,
    read_libraries,
    read_text,
    stage_bytes,
    stage_record,
)
from cuwheel.changes.slim.answer import TOOL, Slim, answer_of, note_of
from cuwheel.changes.slim.decide import (
    PackageRelease,
    findings_of_writing,
    licence_findings,
    make_plan,
    release_in_folder,
)
from cuwheel.support import quoting
from cuwheel.support.files import must_have_room
from cuwheel.wheel import journal, journal_file, record
from cuwheel.wheel.journal_file import Header
from cuwheel.wheel.metadata import SLIM_NOTE
from cuwheel.wheel.record import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.slim.answer import SlimPlan
    from cuwheel.changes.slim.request import SlimTask
    from cuwheel.support.finding import Finding
    from cuwheel.wheel.journal import Changes


class _Rows(Struct, kw_only=True):
    """What changes in one RECORD."""

    version: str
    digests: dict[str, Digest] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)


def slim_in_place(layout: Layout, task: SlimTask, only: Sequence[str] = ()) -> Slim:
    """`only`: the distributions, by any spelling of their names; all without one."""
    root, dry_run = layout.root, task.request.dry_run
    with nullcontext() if dry_run else journal_file.locked(root):
        findings = [] if dry_run else list(journal.recover(root))
        libraries, unread = read_libraries(layout)
        owners = owners_of(layout, (each.path for each in libraries))
        if only:
            libraries = of_distributions(libraries, owners, only)
        if task.workload:
            from cuwheel.changes.slim import use  # noqa: PLC0415 - few cut by use

            task = replace(task, workload=use.with_places_of_images(task.workload, root, libraries))

        def package(path: str) -> PackageRelease | None:
            """The package of a file by its RECORD; where none lists it, by the folder it is in."""
            owner, folder = owners.get(path), Path(path).parent
            name = owner.name if owner else folder.name
            return release_in_folder(name, owner.version if owner else None, root / folder) if name else None

        plan = make_plan(libraries, task, package)
        infos = {owners[each.path].info: owners[each.path].name for each in plan.to_write if each.path in owners}
        licences = {name: read_text(info / "METADATA") for info, name in infos.items() if (info / "METADATA").is_file()}
        findings += [*unread, *plan.findings, *licence_findings(licences)]
        if plan.refused or dry_run:
            return answer_of(plan, plan.expected, findings, output=str(root))
        return _write(layout, plan, owners, findings)


def _write(layout: Layout, plan: SlimPlan, owners: dict[str, Owner], findings: list[Finding]) -> Slim:
    """Every new file is staged first; the journal then renames them, and can undo that.

    Too little room is known before any work, by the estimates. Where they were wrong and the disk fills up while files
    are staged, the journal drops what was staged: nothing was changed.
    """
    root, task = layout.root, plan.task
    must_be_replaceable(root, [*plan.removed, *(each.path for each in plan.to_write)])
    must_have_room(root, sum(each.bytes_after_estimate for each in plan.to_write))
    with journal.begin(root, Header(tool=TOOL, targets=task.machine_names)) as changes:
        results, digests = _stage_libraries(changes, plan.to_write)
        for path in plan.removed:
            changes.remove(root / path, owners[path].info / "RECORD" if path in owners else None)
        files = plan.files(results)
        changed = [each for each in files if each.fate != "unchanged"]
        if changed:
            by_info: dict[Path, _Rows] = {}
            for file in changed:
                if owner := owners.get(file.path):
                    rows = by_info.setdefault(owner.info, _Rows(version=owner.version))
                    rows.files.append(replace(file, path=owner.row))
                    if file.fate == "removed":
                        rows.removed.append(owner.row)
                    else:
                        rows.digests[owner.row] = digests[file.path]
            for info, rows in by_info.items():
                before = info / SLIM_NOTE
                note = note_of(task, rows.version, rows.files, before.read_bytes() if before.is_file() else None)
                findings += stage_record(changes, info, (SLIM_NOTE, note), rows.digests, rows.removed)
            if task.workload:
                from cuwheel.changes.slim import use  # noqa: PLC0415

                way_back = "install its packages again" if task.request.commit else f"undo: {_undo_command(task, root)}"
                for name, data in use.workload_guard(task.workload.commands, way_back).items():
                    for site in layout.sites:
                        stage_bytes(changes, site / name, data, record.digest_of_bytes(data))
            findings += in_no_record((each.path for each in changed), owners)
            changes.apply()
    if task.request.commit:
        journal.commit(root)
    findings += findings_of_writing(results)
    undo = _undo_command(task, *task.named) if changed and not task.request.commit else None
    return answer_of(plan, files, findings, written=bool(changed), output=str(root), undo=undo)


def _undo_command(task: SlimTask, *folder: str | Path) -> str:
    """The command that takes it back."""
    where = ["--env", task.request.env] if task.request.env else folder
    return quoting.here(["cuwheel", "slim", "--undo", *map(str, where)])


def _stage_libraries(changes: Changes, plans: Sequence[LibraryPlan]) -> tuple[list[Rewritten], dict[str, Digest]]:
    from cuwheel.changes.binaries import rewrite  # noqa: PLC0415 - not for a dry run

    digests: dict[str, Digest] = {}

    def rewritten(plan: LibraryPlan) -> Rewritten:
        path, staged = changes.root / plan.path, changes.stage()
        result = rewrite.slim_library(path, staged, plan)
        if result.written and result.change.bytes_after >= result.change.bytes_before:
            staged.unlink()  # code was cut and no page with it: not worth a file that differs from its package's
            return result._replace(change=plan.unchanged)
        if result.written:
            digests[plan.path] = record.digest_of(staged)
            changes.replace(path, staged, digests[plan.path])
        return result

    return rewrite.each_library(plans, rewritten), digests
