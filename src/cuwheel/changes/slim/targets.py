"""Which way a target is slimmed: a wheel, libraries, a folder, an environment; and taking it back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.slim import copies, distributions, in_place, task, wheel
from cuwheel.changes.slim.outcome import FileChange, Outcome
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.support import quoting
from cuwheel.support.finding import Finding
from cuwheel.support.wording import size
from cuwheel.wheel import journal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.slim.request import SlimRequest
    from cuwheel.changes.slim.task import Task
    from cuwheel.wheel.journal import Step

Kind: TypeAlias = Literal["wheel", "libraries", "folder", "environment"]


class Slimmed(Struct, frozen=True, kw_only=True):
    """What it came to. `machines`: that it must still run on; None for all."""

    outcome: Outcome
    target: str
    kind: Kind
    machines: tuple[Machine, ...] | None
    workload: tuple[str, ...] | None = None


def slim(request: SlimRequest) -> Slimmed:
    work = task.of(request)
    named = (
        request.named if request.env else tuple(downloaded_if_pinned(each, request.platform) for each in request.named)
    )
    kind = _kind(request, named)
    target = str(request.env) if request.env else ", ".join(map(str, named))
    traced = work.options.workload.commands if work.options.workload else None
    outcome = _slim(work, kind, named)
    return Slimmed(outcome=outcome, target=target, kind=kind, machines=work.options.targets, workload=traced)


def _kind(request: SlimRequest, named: Sequence[str | Path]) -> Kind:
    """Raises UsageError for what does not go together."""
    if request.env:
        _only_for("wheels, libraries and folders", output=request.output, version=request.version, level=request.level)
        return "environment"
    if not named:
        raise UsageError("nothing to slim was given", hint="give a wheel, libraries, a folder, or --env FOLDER")
    paths = [Path(each) for each in named]
    for path in paths:
        if not path.exists():
            hint = f"for an installed distribution: cuwheel slim {path} --env FOLDER" if len(path.parts) == 1 else ""
            raise UnreadableError(path, "no such file or folder", hint=hint)
    wheels = [path for path in paths if path.suffix == ".whl"]
    folders = [path for path in paths if path.is_dir()]
    if (wheels or folders) and len(paths) > 1:
        raise UsageError("one wheel or one folder at a time", hint="run cuwheel slim once for each")
    if not folders:
        _only_for("environments and folders, which can carry the mark", used=request.used or None)
    if wheels:
        _only_for("environments and folders", commit=request.commit)
        return "wheel"
    _only_for("wheels", version=request.version, level=request.level)
    if folders:
        return "folder"
    _only_for("environments and folders", commit=request.commit)
    if request.output is None and not request.dry_run:
        raise UsageError("single libraries are not changed in place", hint="choose where the new ones go: -o FOLDER")
    return "libraries"


def _only_for(what: str, **given: object) -> None:
    for name, value in given.items():
        if value not in (None, False):
            raise UsageError(f"--{name} is for {what}")


def _slim(work: Task, kind: Kind, named: Sequence[str | Path]) -> Outcome:
    request = work.request
    paths = [Path(each) for each in named]
    if kind == "wheel":
        return wheel.slim(paths[0], work)
    if kind == "libraries":
        return copies.slim_libraries(paths, request.output or Path(), work)
    if kind == "folder" and request.output:
        return copies.slim_folder(paths[0], request.output, work)
    if request.env:
        layout, only = distributions.of_environment(request.env), tuple(map(str, named))
        where = ["--env", str(request.env)]
    else:
        layout, only = distributions.of_folder(paths[0]), ()
        where = [str(named[0])]
    made = in_place.slim(layout, work, only)
    undo = quoting.here(["cuwheel", "slim", "--undo", *where]) if made.written and not request.commit else None
    return replace(made, output=str(layout.root), undo=undo)


def take_back(root: Path) -> Outcome:
    """Every original in its place again."""
    return _settle(root, undo=True)


def settle(root: Path) -> Outcome:
    """The originals given up, and their space free."""
    return _settle(root, undo=False)


def _settle(root: Path, *, undo: bool) -> Outcome:
    root = root.resolve()
    if not os.path.lexists(journal.folder_of(root)):
        raise UnreadableError(
            root, "was not slimmed by cuwheel (no journal found)", hint="perhaps it was already committed or undone"
        )
    with journal.locked(root):
        steps, findings = (journal.undo if undo else journal.commit)(root)
    libraries = [step for step in steps if step.before]
    freed = sum(step.before.size for step in libraries if step.before)
    word = (
        f"{len(steps)} changes were undone"
        if undo
        else f"the originals of {len(libraries)} files ({size(freed)}) were deleted"
    )
    finding = Finding(rule="undone" if undo else "committed", severity="note", message=word)
    return Outcome(
        files=tuple(_changed(each, undo=undo) for each in steps),
        remaining=(),
        heavy=(),
        findings=(finding, *findings),
        written=True,
        output=str(root),
    )


def _changed(step: Step, *, undo: bool) -> FileChange:
    before, after = (step.after, step.before) if undo else (step.before, step.after)
    return FileChange(
        path=step.path,
        fate="removed" if after is None else "restored" if undo else "slimmed",
        bytes_before=before.size if before else 0,
        bytes_after=after.size if after else 0,
    )
