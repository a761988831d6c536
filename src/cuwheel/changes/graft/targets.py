"""Which way it goes: libraries, wheels, a wheel to be split."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.graft import deciding, splitting, wheels, writing
from cuwheel.changes.graft.outcome import Outcome, nothing_new
from cuwheel.changes.graft.subject import Subject
from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.support import files, locking, system_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.graft.request import GraftRequest


def graft(request: GraftRequest) -> Outcome:
    """All of it; with `dry_run` all but the writing."""
    base, *donors = (Path(downloaded_if_pinned(each, request.platform)) for each in (request.base, *request.given))
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
        return splitting.split(base, request)
    if len(kinds) > 1:
        raise UsageError("wheels and libraries cannot be mixed", hint="give wheels only, or libraries only")
    return wheels.graft(base, donors, request) if kinds == {True} else _libraries(base, donors, request)


def _libraries(base: Path, donors: Sequence[Path], request: GraftRequest) -> Outcome:
    if request.version:
        raise UsageError("--version is for wheels")
    target = files.output_of(base, request.output or Path())
    if request.output and target.exists() and any(target.samefile(each) for each in (base, *donors)):
        raise UsageError(f"{target} is one of the inputs", hint="choose another place with -o")
    with ExitStack() as stack:
        subject = stack.enter_context(Subject(base, str(base), drop_signature=request.drop_signature))
        givers = [(stack.enter_context(Subject(each, str(each))), deciding.Known()) for each in donors]
        made = deciding.decide(subject, deciding.Known(), givers, force=request.force)
        outcome = Outcome(base=str(base), donors=tuple(map(str, donors)), findings=made.findings, refused=made.refused)
        if made.refused:
            return outcome
        if not made.containers:
            return replace(outcome, findings=(*made.findings, nothing_new(base.name)))
        if request.dry_run:
            return replace(outcome, libraries=(made.library(writing.expected_size(made)),), outputs=(str(target),))
        with files.errors_of(target, f"{target} was not written"), locking.scratch(target.parent) as folder:
            size = writing.write(made, folder / "library")
            shutil.copymode(base, folder / "library")
            system_calls.rename_over(folder / "library", target)
        return replace(outcome, libraries=(made.library(size),), outputs=(str(target),), written=True)
