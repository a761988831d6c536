"""Trials on many machines: each is a task of its own, and what a worker wrote of it goes into the one journal."""

from __future__ import annotations

import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import sources
from cuwheel.building.values import Tree
from cuwheel.clusters import blobs, engine, target
from cuwheel.clusters.task import Task
from cuwheel.errors import UsageError
from cuwheel.proving.measuring import campaign, execution, gpu_samples, journal, trials_file
from cuwheel.proving.measuring.campaign import Equipment, Runner, Turn, Wish
from cuwheel.proving.measuring.journal import Line, Start
from cuwheel.support import codec, files, log
from cuwheel.toolchains.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.clusters.task import Done
    from cuwheel.proving.measuring.journal import Writer
    from cuwheel.proving.measuring.trials_file import Plan

_FILES = "trials.tar"
_SAMPLE_S = 0.5


class Given(Struct, frozen=True, kw_only=True):
    """One trial. `tree`: the folder of the file of trials."""

    tree: Tree
    file: str
    condition: int
    repeat: int


def run(plan: Plan, folder: Path, wish: Wish, cluster: str) -> None:
    """All trials that have no result yet, by whichever worker is free. A worker does one at a time."""
    if plan.cold.reboot is not None:
        raise UsageError("--cluster does not start machines anew: cold.reboot is for one machine", hint="leave it out")
    chosen = campaign.selected(plan, wish.only)
    with journal.opened(folder) as writer, gpu_samples.sampling(_SAMPLE_S) as sampler:
        found = journal.state(folder)
        campaign.must_fit(plan, folder, found, wish)
        header = campaign.new_header(plan, found, wish, sampler, {})
        writer.add(Line(header=header))
        if found.unfinished:
            campaign.settle(writer, found.unfinished, header.mark)
        turns = [each for each in campaign.order(chosen, header.repeats, header.seed) if each not in found.results]
        tree = sources.survey_source(Path(plan.folder), plan.file, [folder])
        notes = _Notes(writer, found.last)
        with engine.opened(target.parse(cluster), files.cache_folder() / "cluster") as machine:
            done = machine.run(_tasks(plan, tree, turns), notes.add)
        if not wish.only and not any(each.problem for each in done):
            files.write(folder / journal.DONE, "\n")
    if problems := [each.problem for each in done if each.problem]:
        log.warning("%d trials have no result; --resume goes on with them: %s", len(problems), problems[0])


def _tasks(plan: Plan, tree: Tree, turns: list[Turn]) -> Iterator[Task]:
    with tempfile.TemporaryDirectory() as scratch:
        packed = blobs.add(sources.pack_source(tree, Path(scratch, _FILES)))
    sent = replace(tree, folder=Path(), asked="")
    for turn in turns:
        given = Given(tree=sent, file=Path(plan.file).name, condition=turn.condition, repeat=turn.repeat)
        yield Task(
            id=f"{plan.conditions[turn.condition].name or 'trial'} {turn.repeat + 1}, condition {turn.condition + 1}",
            function="cuwheel.proving.measuring.on_cluster:trial",
            parameters=codec.encode(given).decode(),
            inputs={_FILES: packed},
            alone=True,  # another trial beside it would be a condition of its own
        )


class _Notes:
    """The lines of a worker, numbered anew, in the journal of all."""

    def __init__(self, writer: Writer, last: int) -> None:
        self._writer, self._next = writer, last + 1

    def add(self, done: Done) -> Iterator[Task]:
        numbers: dict[int, int] = {}
        for line in _lines(done.text):
            if line.start:
                numbers[line.start.trial] = self._next
                self._next += 1
                self._writer.add(Line(start=_at(line.start, numbers[line.start.trial], done.worker)))
            elif line.end and line.end.trial in numbers:
                self._writer.add(Line(end=replace(line.end, trial=numbers[line.end.trial])))
        yield from ()


def _at(start: Start, number: int, worker: str) -> Start:
    machine = start.host.machine or worker
    return replace(start, trial=number, host=replace(start.host, machine=machine))


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        yield codec.decode(line, Line)


def trial(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker: one trial, with the warm-ups that it needs. Environments and caches stay for the next one."""
    given = codec.decode(task.parameters, Given)
    store = open_store()
    tree = sources.unpack_packed(inputs[_FILES], given.tree, store)
    plan = trials_file.load(tree.folder / given.file)
    own = store.folder / "cluster" / "trials" / tree.sha256[:16]
    with store.locked("trials"), journal.opened(work) as writer, gpu_samples.sampling(_SAMPLE_S) as sampler:
        made = campaign.prepared(plan, [given.condition], own)
        found = journal.state(work)
        header = campaign.new_header(plan, found, Wish(), sampler, made)
        runner = Runner(plan, own, header, made.__getitem__, Equipment(sampler, writer, execution.run), found)
        runner.take(Turn(given.condition, given.repeat))
    kept = [line for line in journal.lines(work) if line.start or line.end]
    here = platform.node()
    named = [Line(start=_at(each.start, each.start.trial, here)) if each.start else each for each in kept]
    return codec.encode_lines(named).decode(), {}
