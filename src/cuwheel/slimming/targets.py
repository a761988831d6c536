"""Which way a target is slimmed: a wheel, libraries, a folder, an environment; and taking it back."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cuwheel.binary.decisions import SlimOptions
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.finding import Finding
from cuwheel.slimming import changes, in_place, wheel
from cuwheel.slimming import copies as elsewhere
from cuwheel.slimming import distributions as environment
from cuwheel.slimming.outcome import FileChange, Outcome
from cuwheel.units import size

if TYPE_CHECKING:
    from cuwheel.slimming.journal import Step

Kind: TypeAlias = Literal["wheel", "libraries", "folder", "environment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimJob:
    """`targets` are on the disk; with `env` they are names of distributions in it."""

    targets: tuple[str | Path, ...]
    options: SlimOptions
    env: Path | None = None
    output: Path | None = None
    cuda: str | None = None
    version: str | None = None
    level: int | None = None
    dry_run: bool = False
    commit: bool = False


def kind_of(job: SlimJob) -> Kind:
    """Raises UsageError for what does not go together."""
    if job.env:
        _only_for("wheels, libraries and folders", output=job.output, version=job.version, level=job.level)
        return "environment"
    if not job.targets:
        raise UsageError("nothing to slim was named", hint="give a wheel, libraries, a folder, or --env FOLDER")
    paths = [Path(each) for each in job.targets]
    for path in paths:
        if not path.exists():
            hint = f"for an installed distribution: cuwheel slim {path} --env FOLDER" if len(path.parts) == 1 else ""
            raise UnreadableError(path, "no such file or folder", hint=hint)
    wheels = [path for path in paths if path.suffix == ".whl"]
    folders = [path for path in paths if path.is_dir()]
    if (wheels or folders) and len(paths) > 1:
        raise UsageError("one wheel or one folder at a time", hint="call cuwheel slim once for each")
    if wheels:
        _only_for("environments and folders", commit=job.commit)
        return "wheel"
    _only_for("wheels", version=job.version, level=job.level)
    if folders:
        return "folder"
    _only_for("environments and folders", commit=job.commit)
    if job.output is None and not job.dry_run:
        raise UsageError("libraries are not changed in place", hint="say where the new ones go: -o FOLDER")
    return "libraries"


def _only_for(what: str, **given: object) -> None:
    for name, value in given.items():
        if value not in (None, False):
            raise UsageError(f"--{name} is for {what}")


def slim(job: SlimJob) -> Outcome:
    kind = kind_of(job)
    if kind == "wheel":
        return wheel.slim(
            Path(job.targets[0]),
            wheel.Request(
                options=job.options,
                output=job.output or Path(),
                cuda=job.cuda,
                version=job.version,
                level=job.level,
                dry_run=job.dry_run,
            ),
        )
    request = in_place.Request(options=job.options, cuda=job.cuda, dry_run=job.dry_run, commit=job.commit)
    if kind == "libraries":
        paths = [Path(each) for each in job.targets]
        return elsewhere.slim_libraries(paths, job.output or Path(), request)
    if kind == "folder" and job.output:
        return elsewhere.slim_folder(Path(job.targets[0]), job.output, request)
    if job.env:
        layout, only = environment.of_environment(job.env), tuple(map(str, job.targets))
        where = f"--env {job.env}"
    else:
        layout, only = environment.of_folder(Path(job.targets[0])), ()
        where = str(job.targets[0])
    made = in_place.slim(layout, replace(request, only=only))
    undo = f"cuwheel slim --undo {where}" if made.written and not job.commit else None
    return replace(made, output=str(layout.root), undo=undo)


def take_back(root: Path) -> Outcome:
    """Every original in its place again."""
    return _settle(root, undo=True)


def settle(root: Path) -> Outcome:
    """The originals given up, and their space free."""
    return _settle(root, undo=False)


def _settle(root: Path, *, undo: bool) -> Outcome:
    root = root.resolve()
    if not os.path.lexists(changes.folder_of(root)):
        raise UnreadableError(
            root, "has no journal of cuwheel slim", hint="it was not slimmed, or that was committed or undone"
        )
    with changes.locked(root):
        steps, findings = (changes.undo if undo else changes.commit)(root)
    libraries = [step for step in steps if step.before]
    freed = sum(step.before.size for step in libraries if step.before)
    word = (
        f"{len(steps)} changes were undone"
        if undo
        else f"the originals of {len(libraries)} files ({size(freed)}) are gone"
    )
    told = Finding(rule="undone" if undo else "committed", severity="note", message=word)
    return Outcome(
        files=tuple(_back(each) if undo else _forth(each) for each in steps),
        remaining=(),
        heavy=(),
        findings=(told, *findings),
        written=True,
        output=str(root),
    )


def _back(step: Step) -> FileChange:
    return FileChange(
        path=step.path,
        fate="removed" if step.before is None else "restored",
        bytes_before=step.after.size if step.after else 0,
        bytes_after=step.before.size if step.before else 0,
    )


def _forth(step: Step) -> FileChange:
    return FileChange(
        path=step.path,
        fate="removed" if step.after is None else "slimmed",
        bytes_before=step.before.size if step.before else 0,
        bytes_after=step.after.size if step.after else 0,
    )
