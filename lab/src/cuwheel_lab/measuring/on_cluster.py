"""Trials on many machines: each is a task of its own, and what a worker wrote of it goes into the one journal."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import sources
from cuwheel.building.values import Tree
from cuwheel.clusters import engine
from cuwheel.clusters.task import Done, Task
from cuwheel.errors import UsageError
from cuwheel.network import cluster_access
from cuwheel.support import codec, files, log
from cuwheel.toolchains.store import open_store
from cuwheel_lab.measuring import campaign, journal, trials_file
from cuwheel_lab.measuring.campaign import CampaignOptions, Runner, Turn
from cuwheel_lab.measuring.journal import Line, Start, Writer

if TYPE_CHECKING:
    from cuwheel_lab.measuring.trials_file import Plan

_FILES = "trials.tar"


class TrialTask(Struct, frozen=True, kw_only=True):
    """One trial. `tree`: the folder of the file of trials."""

    tree: Tree
    file: str
    condition: int
    repeat: int


def run_on_cluster(plan: Plan, folder: Path, options: CampaignOptions, cluster: str) -> None:
    """All trials that have no result yet, by whichever worker is free. A worker does one at a time."""
    if plan.cold.reboot is not None:
        raise UsageError("--cluster does not start machines anew: cold.reboot is for one machine", hint="leave it out")
    chosen = campaign.chosen_conditions(plan, options.only)
    with campaign.open_campaign(plan, folder, options) as opened:
        turns = campaign.open_turns(opened, chosen)
        tree = sources.survey_source(Path(plan.folder), plan.file, [folder])
        notes = _Notes(opened.writer, opened.state.last)
        with engine.open_engine(cluster_access.parse_address(cluster), files.cache_folder() / "cluster") as machine:
            with tempfile.TemporaryDirectory() as scratch:
                packed = machine.add_input(sources.pack_source(tree, Path(scratch, _FILES)))
            done = machine.run(_tasks(plan, tree, turns, packed), notes.add)
        if not options.only and not any(each.problem for each in done):
            files.write(folder / journal.DONE, "\n")
    if problems := [each.problem for each in done if each.problem]:
        log.warning("%d trials have no result; --resume goes on with them: %s", len(problems), problems[0])


def _tasks(plan: Plan, tree: Tree, turns: list[Turn], packed: str) -> Iterator[Task]:
    sent = replace(tree, folder=Path(), asked="")
    for turn in turns:
        parameters = TrialTask(tree=sent, file=Path(plan.file).name, condition=turn.condition, repeat=turn.repeat)
        yield Task(
            id=f"{plan.conditions[turn.condition].name or 'trial'} {turn.repeat + 1}, condition {turn.condition + 1}",
            function="cuwheel_lab.measuring.on_cluster:trial",
            parameters=codec.encode(parameters).decode(),
            inputs={_FILES: packed},
            tag=f"gpu:{on}" if (on := plan.conditions[turn.condition].on) else "",
            fresh=True,  # another campaign's would be no trial
            alone=True,  # another trial beside it would be a condition of its own
        )


class _Notes:
    """The lines of a worker, numbered anew, in the journal of all."""

    def __init__(self, writer: Writer, last: int) -> None:
        self._writer, self._next = writer, last + 1

    def add(self, done: Done) -> Iterator[Task]:
        numbers: dict[int, int] = {}
        for line in (codec.decode(each, Line) for each in done.text.splitlines()):
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


def trial(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker: one trial, with the warm-ups that it needs. Environments and caches stay for the next one."""
    parameters = codec.decode(task.parameters, TrialTask)
    store = open_store()
    tree = sources.unpack_packed(inputs[_FILES], parameters.tree, store)
    plan = trials_file.load_trials(tree.folder / parameters.file)
    own = store.folder / "cluster" / "trials" / tree.sha256[:16]
    with store.locked("trials"):
        made = campaign.make_environments(plan, [parameters.condition], own)
        with campaign.open_campaign(plan, work, CampaignOptions(), lambda: made) as opened:
            Runner(plan, own, opened, made.__getitem__).take(Turn(parameters.condition, parameters.repeat))
    kept = [line for line in journal.read_lines(work) if line.start or line.end]
    here = platform.node()
    named = [Line(start=_at(each.start, each.start.trial, here)) if each.start else each for each in kept]
    return codec.encode_lines(named).decode(), {}
