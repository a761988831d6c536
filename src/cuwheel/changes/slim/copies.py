"""Libraries and folders slimmed to another place: the originals are only read."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.slim import distributions, in_place, proposal, workers
from cuwheel.device_code.survey import survey
from cuwheel.errors import UsageError
from cuwheel.support import files, locking, system_calls
from cuwheel.support.confined import leads_inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.changes.binaries.decisions import FileResult, LibraryPlan
    from cuwheel.changes.slim.outcome import Outcome
    from cuwheel.changes.slim.task import Task


def slim_libraries(paths: Sequence[Path], output: Path, task: Task) -> Outcome:
    """Each to `output`: a folder, or for one library the file itself. What cannot shrink is copied as it is."""
    places = _places(paths, output)
    found = [survey(path, detail="entries") for path in paths]
    libraries = [replace(each.libraries[0], path=str(path)) for each, path in zip(found, paths, strict=True)]
    plan = proposal.propose(libraries, task.options, cuda=task.cuda, package_of=lambda path: _owner(Path(path)))
    findings = (*(each for one in found for each in one.findings), *plan.findings)
    if plan.refused or task.request.dry_run:
        return in_place.outcome(plan, proposal.expected(plan), findings, written=False)
    with files.errors_of(output, "the files already written are complete, the rest were not written"):
        for place in places.values():
            place.parent.mkdir(parents=True, exist_ok=True)
        results = workers.each_of(plan.to_write, lambda each: _write(each, places[each.path]))
        done = {result.path for result in results if result.written}
        for path in paths:
            if str(path) not in done and str(path) not in plan.removed:
                _copy(path, places[str(path)])
    findings += proposal.met(plan, results)
    made = in_place.outcome(plan, workers.files_of(plan, results), findings, written=True)
    return replace(made, written=True, output=str(output))


def _owner(path: Path) -> proposal.Owning | None:
    """Of a library on its own: by the folder that it is in."""
    folder = path.parent
    return proposal.owning(folder.name, None, folder) if folder.name else None


def _places(paths: Sequence[Path], output: Path) -> dict[str, Path]:
    places = {str(path): files.output_of(path, output, alone=len(paths) == 1) for path in paths}
    if len(set(places.values())) < len(paths):
        raise UsageError("two of the libraries have the same name", hint="slim them to two folders")
    for path in paths:
        place = places[str(path)]
        if place.exists() and path.exists() and place.samefile(path):
            raise UsageError(f"{path} would overwrite itself", hint="choose another folder with -o")
    return places


def _write(plan: LibraryPlan, place: Path) -> FileResult:
    source = Path(plan.path)
    result = rewrite.slim_library(source, place, plan)
    if result.written:
        shutil.copymode(source, place)
    return replace(result, path=plan.path)


def _copy(path: Path, place: Path) -> None:
    with locking.scratch(place.parent) as folder:
        shutil.copy2(path, folder / "copy")
        system_calls.rename_over(folder / "copy", place)


def slim_folder(folder: Path, output: Path, task: Task) -> Outcome:
    """A copy of the folder, slimmed before it takes its name."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} exists and is not empty", hint="choose a new folder with -o")
    if leads_inside(folder.resolve(), output):
        raise UsageError(f"{output} is inside {folder}", hint="choose a folder outside it with -o")
    layout = distributions.of_folder(folder)
    planned = in_place.slim(layout, _asked(task, dry_run=True))
    if task.request.dry_run or planned.refused:
        return replace(planned, output=str(output))
    shrinking = {layout.root / each.path for each in planned.files if each.fate != "unchanged"}

    def copy(source: str, target: str) -> None:
        if Path(source) in shrinking:  # replaced by a file of its own before anybody sees the link
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)
        else:
            shutil.copy2(source, target)

    # shutil's own error is one of the system's.
    with files.errors_of(output, f"{output} was not written"), locking.scratch(output.parent) as scratch:
        tree = scratch / "tree"
        shutil.copytree(layout.root, tree, symlinks=True, copy_function=copy, ignore=shutil.ignore_patterns(".cuwheel"))
        made = in_place.slim(distributions.of_folder(tree), _asked(task, commit=True))
        system_calls.rename_over(tree, output)
    return replace(made, output=str(output), written=True)


def _asked(task: Task, **changes: bool) -> Task:
    return replace(task, request=dataclasses.replace(task.request, **changes))  # type: ignore[arg-type]  # noqa: TID251 - a request
