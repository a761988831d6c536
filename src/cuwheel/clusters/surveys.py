"""Surveys of many wheels by the workers of a cluster: files go by their hash, releases by their name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters import access, engine, keeping
from cuwheel.clusters.task import Task
from cuwheel.device_code.libraries import Survey
from cuwheel.device_code.target import downloaded_if_pinned, is_pinned, survey_target
from cuwheel.errors import UnreadableError
from cuwheel.support import codec, files

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEMORY = 10**9


class SurveyTask(Struct, frozen=True, kw_only=True):
    """A file that is sent along, or a release that the worker downloads."""

    name: str
    platform: str | None = None


def survey_on_cluster(
    targets: Sequence[str | Path], cluster: str, *, platform: str | None = None, env: Path | None = None
) -> list[Survey]:
    """Of each, in their order. What is neither a file nor a release is of this machine, and is read here."""
    found: dict[int, Survey] = {}
    tasks: dict[str, int] = {}
    made: list[Task] = []
    for number, each in enumerate(targets):
        path = Path(each)
        pinned = is_pinned(str(each)) and not path.exists()
        if not pinned and not path.is_file():
            found[number] = survey_target(each, env=env, detail="containers")
            continue
        name = f"{number + 1}: {each if pinned else path.name}"
        given = SurveyTask(name=str(each) if pinned else path.name, platform=platform)
        tasks[name] = number
        made.append(
            Task(
                id=name,
                function="cuwheel.clusters.surveys:survey",
                parameters=codec.encode(given).decode(),
                inputs={} if pinned else {path.name: keeping.add_blob(path)},
                memory=_MEMORY,
                kept=not pinned,
            )
        )
    with engine.open_engine(access.parse_address(cluster), files.cache_folder() / "cluster") as machine:
        for done in machine.run(made):
            number = tasks[done.task.id]
            if done.problem:
                raise UnreadableError(targets[number], done.problem, hint=done.hint)
            survey = codec.decode(done.text, Survey)
            local = Path(targets[number]).is_file()
            found[number] = replace(survey, target=str(targets[number])) if local else survey
    return [found[number] for number in range(len(targets))]


def survey(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker."""
    given = codec.decode(task.parameters, SurveyTask)
    place: str | Path = given.name
    if given.name in inputs:  # a wheel is known by its name, too
        place = work / given.name
        place.symlink_to(inputs[given.name])
    found = survey_target(downloaded_if_pinned(place, given.platform), detail="containers")
    return codec.encode_any(found).decode(), {}
