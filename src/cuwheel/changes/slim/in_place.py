"""An environment or a folder slimmed where it is, with its RECORDs, so that it can be undone."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.slim import distributions, guard, licence, note, proposal, use, workers
from cuwheel.changes.slim.outcome import FileChange, Outcome
from cuwheel.errors import UnknownNameError, UnreadableError
from cuwheel.support import quoting, system_calls
from cuwheel.support.files import must_have_room
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few
from cuwheel.wheel import journal, record
from cuwheel.wheel.journal import Header
from cuwheel.wheel.metadata import normalised
from cuwheel.wheel.record import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.binaries.decisions import FileResult, LibraryPlan
    from cuwheel.changes.slim.distributions import Layout, Owner
    from cuwheel.changes.slim.proposal import Proposal
    from cuwheel.changes.slim.task import Task
    from cuwheel.device_code.libraries import Library
    from cuwheel.wheel.journal import Changes


class _Rows(Struct, kw_only=True):
    """What changes in one RECORD."""

    digests: dict[str, Digest] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)


def slim(layout: Layout, task: Task, only: Sequence[str] = ()) -> Outcome:
    """`only`: the distributions, by any spelling of their names; all without one."""
    guard = nullcontext() if task.request.dry_run else journal.locked(layout.root)
    with guard:
        recovered = () if task.request.dry_run else journal.recover(layout.root)
        libraries, unread = distributions.read(layout)
        names = distributions.owners(layout, (each.path for each in libraries))
        if only:
            libraries = _of_distributions(libraries, names, only)
        options = task.options
        if options.workload:
            options = replace(options, workload=use.located(options.workload, layout.root, libraries))
        plan = proposal.propose(
            libraries, options, cuda=task.cuda, package_of=lambda path: _package(path, names, layout.root)
        )
        findings = (*recovered, *unread, *plan.findings, *licence.finding(_metadata(plan, names)))
        if plan.refused or task.request.dry_run:
            return outcome(plan, proposal.expected(plan), findings, written=False)
        return _act(layout, task, plan, names, findings)


def _act(layout: Layout, task: Task, plan: Proposal, names: dict[str, Owner], findings: tuple[Finding, ...]) -> Outcome:
    root = layout.root
    _must_be_ours(root, [*plan.removed, *(each.path for each in plan.to_write)])
    must_have_room(root, sum(each.bytes_after_estimate for each in plan.to_write))
    header = Header(tool=note.TOOL, targets=note.names_of(task.options.targets))
    with journal.begin(root, header) as changes:
        results = _stage_libraries(changes, plan.to_write)
        for path in plan.removed:
            owner = names.get(path)
            changes.remove(root / path, owner.info / "RECORD" if owner else None)
        files = workers.files_of(plan, [result for result, _ in results])
        if any(each.fate != "unchanged" for each in files):
            digests = {result.path: digest for result, digest in results if digest}
            findings += tuple(_stage_records(changes, task, files, digests, names))
            _stage_guard(changes, layout, task)
            findings += distributions.without_record((each.path for each in files if each.fate != "unchanged"), names)
            changes.apply()
    if task.request.commit:
        journal.commit(root)
    findings += proposal.met(plan, (result for result, _ in results))
    return outcome(plan, files, findings, written=True)


def _stage_libraries(changes: Changes, plans: Sequence[LibraryPlan]) -> list[tuple[FileResult, Digest | None]]:
    digests: dict[str, Digest] = {}

    def act(plan: LibraryPlan) -> FileResult:
        path, staged = changes.root / plan.path, changes.stage()
        result = rewrite.slim_library(path, staged, plan)
        if result.written and result.bytes_after >= result.bytes_before:
            staged.unlink()  # code was cut and no page with it: not worth a file that differs from its package's
            result = replace(result, written=False)
        elif result.written:
            digests[plan.path] = record.digest_of(staged)
            changes.replace(path, staged, digests[plan.path])
        return replace(result, path=plan.path)

    return [(result, digests.get(result.path)) for result in workers.each_of(plans, act)]


def _stage_records(
    changes: Changes,
    task: Task,
    files: Sequence[FileChange],
    digests: dict[str, Digest],
    names: dict[str, Owner],
) -> list[Finding]:
    by_info: dict[Path, _Rows] = {}
    versions: dict[Path, str] = {}
    for file in files:
        owner = names.get(file.path)
        if owner is None or file.fate == "unchanged":
            continue
        rows = by_info.setdefault(owner.info, _Rows())
        versions[owner.info] = owner.version
        rows.files.append(replace(file, path=owner.row))
        if file.fate == "removed":
            rows.removed.append(owner.row)
        else:
            rows.digests[owner.row] = digests[file.path]
    findings: list[Finding] = []
    for info, rows in by_info.items():
        findings += _stage_record(changes, task, info, rows, versions[info])
    return findings


def _stage_record(changes: Changes, task: Task, info: Path, rows: _Rows, version: str) -> list[Finding]:
    """The RECORD of one distribution, and the note beside it."""
    listed, noted = info / "RECORD", info / note.SLIM_NOTE
    before = noted.read_bytes() if noted.is_file() else None
    data = note.text(
        targets=note.names_of(task.options.targets),
        cuda=task.cuda,
        version=version,
        files=rows.files,
        before=before,
        workload=task.options.workload.commands if task.options.workload else None,
    )
    digest = record.digest_of_bytes(data)
    _stage_bytes(changes, noted, data, digest)
    signatures = [info / each for each in record.SIGNATURES if (info / each).is_file()]
    for path in signatures:
        changes.remove(path, listed)
    row = f"{info.name}/{note.SLIM_NOTE}"
    text = record.changed(
        distributions.read_text(listed),
        {**rows.digests, **({row: digest} if before is not None else {})},
        removed=[*rows.removed, *(f"{info.name}/{each.name}" for each in signatures)],
        added={} if before is not None else {row: digest},
    )
    data = distributions.as_bytes(text)
    _stage_bytes(changes, listed, data, record.digest_of_bytes(data))
    return [signature_dropped(f"{info.name}/{each.name}") for each in signatures]


def _stage_guard(changes: Changes, layout: Layout, task: Task) -> None:
    """In an environment that is cut to a workload, what says so when something fails."""
    if task.options.workload is None:
        return
    where = ["--env", str(task.request.env)] if task.request.env else [str(layout.root)]
    written = guard.files(task.options.workload.commands, quoting.here(["cuwheel", "slim", "--undo", *where]))
    for site in layout.sites:
        for name, data in written.items():
            _stage_bytes(changes, site / name, data, record.digest_of_bytes(data))


def _stage_bytes(changes: Changes, path: Path, data: bytes, digest: Digest) -> None:
    staged = changes.stage()
    staged.write_bytes(data)
    if path.exists():
        changes.replace(path, staged, digest)
    else:
        changes.create(path, staged, digest)


def signature_dropped(path: str) -> Finding:
    return Finding(
        rule="signature-dropped",
        severity="warning",
        message=f"{path} was a signature of the original files and was removed",
    )


def outcome(plan: Proposal, files: tuple[FileChange, ...], findings: tuple[Finding, ...], *, written: bool) -> Outcome:
    return Outcome(
        files=files,
        remaining=proposal.remaining(plan, files),
        heavy=proposal.heavy(plan, files),
        findings=(*plan.refused, *left_unread(findings)),
        refused=bool(plan.refused),
        written=written and any(each.fate != "unchanged" for each in files),
        kept=plan.kept,
    )


def _metadata(plan: Proposal, names: dict[str, Owner]) -> dict[str, str]:
    """Of the distributions that are to be changed."""
    infos = {names[each.path].info: names[each.path].name for each in plan.to_write if each.path in names}
    return {
        name: distributions.read_text(info / "METADATA")
        for info, name in infos.items()
        if (info / "METADATA").is_file()
    }


def left_unread(findings: Sequence[Finding]) -> list[Finding]:
    """A library that cannot be read is left as it is, and no reason to stop."""
    return [replace(each, severity="warning") if each.severity == "error" else each for each in findings]


def _of_distributions(libraries: Sequence[Library], names: dict[str, Owner], only: Sequence[str]) -> list[Library]:
    """All names that nobody has, at once."""
    wanted = {normalised(each): each for each in only}
    found = {path: normalised(owner.name) for path, owner in names.items()}
    if missing := [name for key, name in wanted.items() if key not in found.values()]:
        raise UnknownNameError(
            "installed distribution with libraries", ", ".join(missing), sorted(set(found.values()) - {""})
        )
    return [each for each in libraries if found.get(each.path) in wanted]


def _package(path: str, names: dict[str, Owner], root: Path) -> proposal.Owning | None:
    """By its RECORD; of files that none lists, by the folder they are in."""
    owner, folder = names.get(path), Path(path).parent
    name = owner.name if owner else folder.name
    version = owner.version if owner else None
    return proposal.owning(name, version, root / folder) if name else None


def _must_be_ours(root: Path, paths: Sequence[str]) -> None:
    """Found out before any work: all that may not be replaced, at once."""
    folders = {(root / path).parent for path in paths}
    shut = sorted(str(each) for each in folders if not os.access(each, os.W_OK | os.X_OK))
    if shut:
        raise UnreadableError(
            a_few(shut, 1),
            "not writable",
            hint="run cuwheel as the user who owns the environment; nothing was changed",
        )
    others = [path for path in paths if not system_calls.may_replace((root / path).lstat())]
    if others:
        raise UnreadableError(
            a_few([str(root / each) for each in others], 1),
            "owned by another user",
            hint="run cuwheel as the user who owns the environment; nothing was changed",
        )
