"""An environment or a folder slimmed where it is, with its RECORDs, by the journal that undoes it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import FileChange
from cuwheel.changes.slim.answer import TOOL, Slim, answer_of, note_of, signature_dropped
from cuwheel.changes.slim.decide import (
    PackageRelease,
    findings_of_writing,
    licence_findings,
    make_plan,
    release_in_folder,
)
from cuwheel.device_code.survey import survey
from cuwheel.errors import UnknownNameError, UnreadableError
from cuwheel.machine import python_environment
from cuwheel.machine.world import World
from cuwheel.support import quoting, system_calls
from cuwheel.support.confined import leads_inside
from cuwheel.support.files import must_have_room
from cuwheel.support.finding import Finding, finding
from cuwheel.support.wording import a_few
from cuwheel.wheel import journal, journal_file, metadata, record
from cuwheel.wheel.journal_file import Header
from cuwheel.wheel.metadata import SLIM_NOTE, normalised, recorded_files
from cuwheel.wheel.record import Digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.slim.answer import SlimPlan
    from cuwheel.changes.slim.request import SlimTask
    from cuwheel.device_code.libraries import Library
    from cuwheel.wheel.journal import Changes


class Layout(Struct, frozen=True, kw_only=True):
    """`places`: the folders that are searched for libraries. `sites`: those that hold dist-info folders."""

    root: Path
    places: tuple[Path, ...]
    sites: tuple[Path, ...]


class Owner(Struct, frozen=True, kw_only=True):
    """The distribution that a file belongs to, and the file's name in its RECORD."""

    info: Path
    row: str
    name: str
    version: str


def layout_of_environment(env: Path) -> Layout:
    """A virtual environment, a conda environment, or a prefix such as /usr/local."""
    root = env.resolve()
    _, folders = python_environment.locate(World.here(), env)
    sites = tuple(each for each in folders if leads_inside(root, each))
    if not sites:
        raise UnreadableError(env, f"its packages are elsewhere: {folders[0]}", hint="use that environment")
    if (root / "conda-meta").is_dir():  # conda's own packages put libraries beside Python's
        places = tuple(each for each in (root / "lib", root / "targets") if each.is_dir())
        return Layout(root=root, places=places, sites=sites)
    return Layout(root=root, places=sites, sites=sites)


def layout_of_folder(folder: Path) -> Layout:
    root = folder.resolve()
    sites = [Path(place) for place, names, _ in os.walk(root) if any(each.endswith(".dist-info") for each in names)]
    return Layout(root=root, places=(root,), sites=tuple(sorted(sites)))


def slim_in_place(layout: Layout, task: SlimTask, only: Sequence[str] = ()) -> Slim:
    """`only`: the distributions, by any spelling of their names; all without one."""
    root, dry_run = layout.root, task.request.dry_run
    with nullcontext() if dry_run else journal_file.locked(root):
        findings = [] if dry_run else list(journal.recover(root))
        libraries, unread = _read_libraries(layout)
        owners = _owners(layout, (each.path for each in libraries))
        if only:
            # All names that nobody has, at once.
            wanted = {normalised(each): each for each in only}
            found = {path: normalised(owner.name) for path, owner in owners.items()}
            if missing := [name for key, name in wanted.items() if key not in found.values()]:
                raise UnknownNameError(
                    "installed distribution with libraries", ", ".join(missing), sorted(set(found.values()) - {""})
                )
            libraries = [each for each in libraries if found.get(each.path) in wanted]
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
        licences = {
            name: _read_text(info / "METADATA") for info, name in infos.items() if (info / "METADATA").is_file()
        }
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
    _must_be_replaceable(root, [*plan.removed, *(each.path for each in plan.to_write)])
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
            findings += [each for info, rows in by_info.items() for each in _stage_record(changes, task, info, rows)]
            if task.workload:
                from cuwheel.changes.slim import use  # noqa: PLC0415

                way_back = "install its packages again" if task.request.commit else f"undo: {_undo_command(task, root)}"
                for name, data in use.workload_guard(task.workload.commands, way_back).items():
                    for site in layout.sites:
                        _stage_bytes(changes, site / name, data, record.digest_of_bytes(data))
            if lost := sorted({each.path for each in changed} - set(owners)):
                words = f"{len(lost)} of the slimmed libraries are listed in no RECORD"
                findings.append(finding("in-no-record", words, evidence=tuple(lost[:5])))
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


# The RECORDs of what was changed, and what else is written beside it.


class _Rows(Struct, kw_only=True):
    """What changes in one RECORD."""

    version: str
    digests: dict[str, Digest] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)


def _stage_record(changes: Changes, task: SlimTask, info: Path, rows: _Rows) -> list[Finding]:
    """The RECORD of one distribution, and the note beside it."""
    listed, noted = info / "RECORD", info / SLIM_NOTE
    before = noted.read_bytes() if noted.is_file() else None
    data = note_of(task, rows.version, rows.files, before)
    digest = record.digest_of_bytes(data)
    _stage_bytes(changes, noted, data, digest)
    signatures = [info / each for each in record.SIGNATURES if (info / each).is_file()]
    for path in signatures:
        changes.remove(path, listed)
    row = f"{info.name}/{SLIM_NOTE}"
    text = record.changed(
        _read_text(listed),
        {**rows.digests, **({row: digest} if before is not None else {})},
        removed=[*rows.removed, *(f"{info.name}/{each.name}" for each in signatures)],
        added={} if before is not None else {row: digest},
    )
    data = text.encode("utf-8", "surrogateescape")
    _stage_bytes(changes, listed, data, record.digest_of_bytes(data))
    return [signature_dropped(f"{info.name}/{each.name}") for each in signatures]


def _stage_bytes(changes: Changes, path: Path, data: bytes, digest: Digest) -> None:
    staged = changes.stage()
    staged.write_bytes(data)
    if path.exists():
        changes.replace(path, staged, digest)
    else:
        changes.create(path, staged, digest)


# What is there: libraries, and the distributions that they belong to.


def _read_libraries(layout: Layout) -> tuple[list[Library], list[Finding]]:
    """Every library with all its entries; their paths are relative to the root."""
    libraries: dict[str, Library] = {}
    findings: list[Finding] = []
    for place in layout.places:
        found = survey(place, detail="entries")
        findings += found.findings
        for library in found.libraries:
            path = _real_path(layout.root, place / library.path)
            if path and path.parts[0] != journal_file.FOLDER:
                libraries[path.as_posix()] = replace(library, path=path.as_posix())
    # An environment has many files that are no concern of ours (pip brings starters for Windows).
    unread = [
        each.message for each in findings if each.severity != "note" and f"{journal_file.FOLDER}/" not in each.message
    ]
    words = f"{len(unread)} files could not be read as libraries and stay unchanged"
    note = finding("library-unreadable", words, evidence=tuple(unread[:3]), severity="note")
    return [libraries[path] for path in sorted(libraries)], [note] if unread else []


def _real_path(root: Path, file: Path) -> Path | None:
    """Where the file itself is, relative to the root.

    A link into the root stands for what it names; one that leads out of it (uv can link to its cache) is
    replaced by a file of its own, so that the cache stays as it is.
    """
    if file.is_symlink() and leads_inside(root, file):
        return file.resolve().relative_to(root)
    folder = file.parent.resolve()
    return (folder / file.name).relative_to(root) if leads_inside(root, folder) else None


def _owners(layout: Layout, paths: Iterable[str]) -> dict[str, Owner]:
    """Which distribution has each of these files, as far as a RECORD says."""
    wanted = {os.path.normpath(layout.root / path): path for path in paths}
    names = {Path(each).name for each in wanted}
    found: dict[str, Owner] = {}
    for site in layout.sites:
        for listed in sorted(site.glob("*.dist-info/RECORD")):
            if not leads_inside(layout.root, listed.parent):
                continue  # a link to another environment's, which is not ours to change
            rows = {
                path: row
                for row in recorded_files(_read_text(listed))
                if row.rpartition("/")[2] in names and (path := wanted.get(os.path.normpath(site / row)))
            }
            if rows:
                known = metadata.installed_at(listed.parent)
                name, version = (known.name, known.version) if known else ("", "")
                for path, row in rows.items():
                    found.setdefault(path, Owner(info=listed.parent, row=row, name=name, version=version))
    return found


def _read_text(path: Path) -> str:
    """Bytes that are no UTF-8 come back as they were when it is encoded the same way."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _must_be_replaceable(root: Path, paths: Sequence[str]) -> None:
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
