"""A job, or one share of it, on a worker of a cluster: from what was sent to what goes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import shares, workspace
from cuwheel.building.request import BuildRequest
from cuwheel.building.shares import Kept
from cuwheel.building.sources import pack_folder, unpack_packed
from cuwheel.building.steps import Decided, Steps
from cuwheel.building.tables import Table
from cuwheel.building.values import JobResult, Phase, Problem, Project, Tree
from cuwheel.errors import MalformedError, UnavailableError
from cuwheel.machine import resources
from cuwheel.support import codec, files
from cuwheel.toolchains.store import open_store
from cuwheel.verdicts.planning import plan as plan_values

if TYPE_CHECKING:
    from cuwheel.building.values import Built, Job
    from cuwheel.clusters.task import Task

SOURCE, LOCK, LOG, RECORD = "source.tar", "cuwheel.lock", "log.txt", "record.tar"


class Sources(Struct, frozen=True, kw_only=True):
    """Where toolkits come from: what a request says of it, as far as it holds on another machine."""

    providers: tuple[str, ...] = ()
    offline: bool = False
    fetched: str | None = None
    host_compiler: str | None = None
    redist_url: str | None = None
    apt_sources: str | None = None
    image: str | None = None


class MadeShare(Struct, frozen=True, kw_only=True):
    """A share that a worker compiled. `key`: of all that went in."""

    name: str
    key: str
    kept: Kept | None = None
    phases: tuple[Phase, ...] = ()
    seconds: float = 0.0
    problem: Problem | None = None


class Given(Struct, frozen=True, kw_only=True):
    """One job. `share`: the one to compile; None for the whole. `made`: shares that come with it, as files."""

    tree: Tree
    table: Table
    project: Project
    plan: plan_values.Job
    python: str
    sources: Sources
    by_shares: bool = False
    locked: bool = False
    locking: bool = False
    share: str | None = None
    made: tuple[MadeShare, ...] = ()


def job(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """A whole job, finished as it would be here: its result, the wheel, the log and the record."""
    given = codec.decode(task.parameters, Given)
    steps, made = _prepared(task, given, inputs, work)
    for each, share in zip(given.made, shares.of_plan(given.plan), strict=False):
        if each.kept is None or each.key != shares.key(share, made, steps.order):
            raise MalformedError(
                each.name, "this share was compiled at another place or with other tools", hint="build without --shares"
            )
        shares.accept(share, made, steps.order, inputs[f"{share.name}.whl"], each.kept)
    if task.fresh:
        workspace.forget_result(made.folder)
    result = steps.one(made)
    found = {LOCK: work / LOCK} if given.locking and (work / LOCK).exists() else {}
    if result.wheel:
        found[result.wheel.path.name] = result.wheel.path
    if result.built:
        found |= _log_and_record(result.built, work)
    return codec.encode_any(replace(result, record=None)).decode(), found


def share(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """One share of a job: compiled, or of this machine's cache."""
    given = codec.decode(task.parameters, Given)
    steps, made = _prepared(task, given, inputs, work)
    order = steps.order
    (wanted,) = [each for each in shares.of_plan(given.plan) if each.name == given.share]
    key = shares.key(wanted, made, order)
    with workspace.hold_folder(made.folder):
        kept = None if task.fresh else shares.cached_share(wanted, made, order)
        if kept:
            answer = MadeShare(name=wanted.name, key=key, kept=kept)
            return codec.encode(answer).decode(), {f"{wanted.name}.whl": Path(kept.wheel)}
        built, kept = shares.compiled(wanted, made, order, steps.requirements(made))
        found = _log_and_record(built, work)
    answer = MadeShare(
        name=wanted.name, key=key, kept=kept, phases=built.phases, seconds=built.seconds, problem=built.problem
    )
    if kept:
        found[f"{wanted.name}.whl"] = Path(kept.wheel)
    return codec.encode(answer).decode(), found


def _prepared(task: Task, given: Given, inputs: dict[str, Path], work: Path) -> tuple[Steps, Job]:
    store = open_store()
    tree = unpack_packed(inputs[SOURCE], given.tree, store)
    lock = files.copy(inputs[LOCK], work / LOCK) if LOCK in inputs else work / LOCK
    sources = given.sources
    request = BuildRequest(
        tree.folder,
        output=work / "dist",
        providers=sources.providers,
        offline=sources.offline,
        fetched=sources.fetched,
        host_compiler=sources.host_compiler,
        redist_url=sources.redist_url,
        apt_sources=sources.apt_sources,
        image=sources.image,
        locked=lock if given.locked else None,
        lock=lock if given.locking else None,
        jobs=resources.compilers_at_once(task.cores),
        rebuild=task.fresh and not given.made,
        shares=given.by_shares,
    )
    request.output.mkdir()
    steps = Steps(request, Decided(tree=tree, table=given.table, project=given.project))
    steps.prepare([given.plan], [given.python], dict(os.environ))
    if not steps.jobs:
        problem = steps.failed[0].problem
        raise UnavailableError(problem.what if problem else "there is no toolkit", hint=problem.hint if problem else "")
    return steps, steps.jobs[0]


def _log_and_record(built: Built, work: Path) -> dict[str, Path]:
    """What a person looks into when it failed, and where the times are from."""
    found: dict[str, Path] = {}
    if built.log and Path(built.log).is_file():
        found[LOG] = files.copy(Path(built.log), work / LOG)
    if built.record and Path(built.record).is_dir():
        found[RECORD] = pack_folder(Path(built.record), work / RECORD, "record")
    return found


def result_of(text: str) -> JobResult:
    """What `job` answered."""
    try:
        return codec.decode(text, JobResult)
    except ValueError as error:
        raise MalformedError("the answer of a worker", f"makes no sense: {error}") from error
