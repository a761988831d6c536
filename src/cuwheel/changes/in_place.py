"""An environment or a folder that is changed where it is: its libraries, the distributions that they belong to, and
what goes into the journal that undoes it: files, RECORDs, and the note beside each. Or a copy of it, changed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.survey import survey
from cuwheel.errors import UsageError
from cuwheel.machine import python_environment
from cuwheel.machine.world import World
from cuwheel.support import files, system_calls
from cuwheel.support.confined import leads_inside
from cuwheel.support.finding import finding
from cuwheel.version import __version__
from cuwheel.wheel import journal_file, record
from cuwheel_core.errors import UnknownNameError, UnreadableError
from cuwheel_core.support.wording import a_few
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.metadata import recorded_files
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Bitcode
    from cuwheel.wheel.journal import Changes
    from cuwheel.wheel.record import Digest
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.finding import Finding


TOOL = f"cuwheel {__version__}"  # in notes and journals
_LEFT_OUT = "take it out of the folder, or make it readable; no copy was written"
_PROPRIETARY = re.compile(r"^License(?:-Expression)?:.*NVIDIA.*Proprietary", re.IGNORECASE | re.MULTILINE)


class _Answer(Protocol):
    @property
    def refused(self) -> bool: ...


class _File(Protocol):
    @property
    def path(self) -> str: ...


T = TypeVar("T", bound=_Answer)
F = TypeVar("F", bound=_File)


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


# What is there: libraries, and the distributions that they belong to.


def read_libraries(layout: Layout) -> tuple[list[Library], list[Bitcode], list[Finding]]:
    """Every library with all its entries, and bitcode; their paths are relative to the root."""
    libraries: dict[str, Library] = {}
    bitcode: dict[str, Bitcode] = {}
    findings: list[Finding] = []
    for place in layout.places:
        found = survey(place, detail="entries")
        findings += found.findings
        for library in found.libraries:
            if path := _own_path(layout.root, place / library.path):
                libraries[path] = replace(library, path=path)
        for each in found.bitcode:
            if path := _own_path(layout.root, place / each.path):
                bitcode[path] = replace(each, path=path)
    # An environment has many files that are no concern of ours (pip brings starters for Windows).
    unread = [
        each.message
        for each in findings
        if each.severity != "note" and journal_file.FOLDER not in Path(each.about).parts
    ]
    words = f"{len(unread)} files could not be read as libraries and stay unchanged"
    note = finding("library-unreadable", words, evidence=tuple(unread[:3]), severity="note")
    in_order = [libraries[path] for path in sorted(libraries)], [bitcode[path] for path in sorted(bitcode)]
    return *in_order, [note] if unread else []


def _own_path(root: Path, file: Path) -> str | None:
    """The path, below the root, of a file that may be changed; None for what a journal keeps, also one further down."""
    path = _real_path(root, file)
    return path.as_posix() if path and journal_file.FOLDER not in path.parts else None


def _real_path(root: Path, file: Path) -> Path | None:
    """Where the file itself is, relative to the root.

    A link into the root stands for what it names; one that leads out of it (uv can link to its cache) is
    replaced by a file of its own, so that the cache stays as it is.
    """
    if file.is_symlink() and leads_inside(root, file):
        return file.resolve().relative_to(root)
    folder = file.parent.resolve()
    return (folder / file.name).relative_to(root) if leads_inside(root, folder) else None


def owners_of(layout: Layout, paths: Iterable[str]) -> dict[str, Owner]:
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
                for row in recorded_files(read_text(listed))
                if row.rpartition("/")[2] in names and (path := wanted.get(os.path.normpath(site / row)))
            }
            if rows:
                known = metadata.installed_at(listed.parent)
                name, version = (known.name, known.version) if known else ("", "")
                for path, row in rows.items():
                    found.setdefault(path, Owner(info=listed.parent, row=row, name=name, version=version))
    return found


def read_text(path: Path) -> str:
    """Bytes that are no UTF-8 come back as they were when it is encoded the same way."""
    return path.read_bytes().decode("utf-8", "surrogateescape")


def of_distributions(found_files: Sequence[F], owners: dict[str, Owner], only: Sequence[str]) -> list[F]:
    """All names that nobody has, at once."""
    wanted = {normalised(each): each for each in only}
    found = {path: normalised(owner.name) for path, owner in owners.items()}
    if missing := [name for key, name in wanted.items() if key not in found.values()]:
        raise UnknownNameError(
            "installed distribution with libraries", ", ".join(missing), sorted(set(found.values()) - {""})
        )
    return [each for each in found_files if found.get(each.path) in wanted]


def must_be_replaceable(root: Path, paths: Sequence[str]) -> None:
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


def licence_findings(metadata: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the licences say of changes, as far as METADATA tells; no legal advice. `metadata`: by distribution."""
    names = sorted(name for name, text in metadata.items() if _PROPRIETARY.search(text.partition("\n\n")[0]))
    if not names:
        return ()
    return (
        finding(
            "licence-on-changes",
            "by their metadata, some of these packages are under NVIDIA's terms, which restrict changes",
            evidence=(a_few(names, 4),),
        ),
    )


# The RECORDs of what was changed, and what else is written beside it.


def stage_records(
    changes: Changes,
    owners: Mapping[str, Owner],
    digests: Mapping[str, Digest],
    notes_of: Callable[[Owner, Mapping[str, str]], Mapping[str, bytes]],
    removed: Sequence[str] = (),
) -> list[Finding]:
    """Stages a new RECORD for every distribution that has one of these files.

    `notes_of`: what goes beside its RECORD, by the names that its changed files have there.
    """
    changed = sorted([*digests, *removed])
    found: dict[Path, dict[str, str]] = {}
    for path in changed:
        if owner := owners.get(path):
            found.setdefault(owner.info, {})[path] = owner.row
    findings = []
    for info, names in found.items():
        rows = {row: digests[path] for path, row in names.items() if path in digests}
        gone = [row for path, row in names.items() if path not in digests]
        notes = notes_of(owners[next(iter(names))], names)
        findings += _stage_record(changes, info, notes, rows, gone)
    # What was changed and nobody will check.
    if lost := [path for path in changed if path not in owners]:
        words = f"{len(lost)} of the changed libraries are listed in no RECORD"
        findings.append(finding("in-no-record", words, evidence=tuple(lost[:5])))
    return findings


def _stage_record(
    changes: Changes, info: Path, notes: Mapping[str, bytes], digests: Mapping[str, Digest], removed: Sequence[str]
) -> list[Finding]:
    """The RECORD of one distribution, and the notes beside it, by their names."""
    listed = info / "RECORD"
    rows = {name: record.digest_of_bytes(data) for name, data in notes.items()}
    there = {f"{info.name}/{name}": row for name, row in rows.items() if (info / name).is_file()}
    new = {f"{info.name}/{name}": row for name, row in rows.items() if not (info / name).is_file()}
    for name, data in notes.items():
        stage_bytes(changes, info / name, data)
    signatures = [info / each for each in record.SIGNATURES if (info / each).is_file()]
    for path in signatures:
        changes.remove(path, listed)
    text = record.changed(
        read_text(listed),
        {**digests, **there},
        removed=[*removed, *(f"{info.name}/{each.name}" for each in signatures)],
        added=new,
    )
    stage_bytes(changes, listed, text.encode("utf-8", "surrogateescape"))
    return [signature_dropped(f"{info.name}/{each.name}") for each in signatures]


def earlier_note(owner: Owner, name: str) -> bytes | None:
    path = owner.info / name
    return path.read_bytes() if path.is_file() else None


def stage_bytes(changes: Changes, path: Path, data: bytes) -> None:
    staged, digest = changes.stage(), record.digest_of_bytes(data)
    staged.write_bytes(data)
    if path.exists():
        changes.replace(path, staged, digest)
    else:
        changes.create(path, staged, digest)


def signature_dropped(path: str) -> Finding:
    return finding("signature-dropped", f"{path} was a signature of the original files and was removed")


# A copy, changed before it takes its name.


def must_be_new(folder: Path, output: Path) -> None:
    """Raises UsageError where a copy of the folder cannot go."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty", hint="choose a new folder with -o")
    if leads_inside(folder.resolve(), output):
        raise UsageError(f"{output} is inside {folder}", hint="choose a folder outside it with -o")


def changed_copy(root: Path, output: Path, replaced: Collection[str], change: Callable[[Layout], T]) -> T:
    """`replaced`: files that `change` may replace, relative to the root. Where it refuses there is no copy."""

    def copy(source: str, target: str) -> None:
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise UnreadableError(Path(source), "is neither a file nor a folder: it cannot be copied", _LEFT_OUT)
        if Path(source).relative_to(root).as_posix() in replaced:  # by a file of its own before anybody sees the link
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)
        else:
            shutil.copy2(source, target)

    with files.errors_of(output, f"{output} was not written"), files.scratch_beside(output.parent) as scratch:
        tree = scratch / "tree"
        try:
            shutil.copytree(
                root, tree, symlinks=True, copy_function=copy, ignore=shutil.ignore_patterns(journal_file.FOLDER)
            )
        except shutil.Error as error:  # of all that could not be copied, as rows
            source, _, why = error.args[0][0]
            more = f" (and {len(error.args[0]) - 1} more)" if len(error.args[0]) > 1 else ""
            raise UnreadableError(Path(source), f"could not be copied: {why}{more}", _LEFT_OUT) from error
        made = change(layout_of_folder(tree))
        if made.refused:
            return made
        for path in replaced:
            if (tree / path).is_file() and (tree / path).samefile(root / path):  # or who changes one changes both
                shutil.copy2(root / path, scratch / "own")
                system_calls.rename_over(scratch / "own", tree / path)
        system_calls.rename_over(tree, output)
    return made
