"""Runs the trials of a plan, in an order shuffled by a recorded seed, and goes on where an earlier run ended."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import UsageError
from cuwheel.machine import gpu
from cuwheel.machine.world import World
from cuwheel.proving.runner import child
from cuwheel.support import files, log, masking
from cuwheel.version import __version__
from cuwheel_lab.measuring import execution, gpu_samples, journal
from cuwheel_lab.measuring.journal import End, Header, Line, Reboot, Start, State, Writer

if TYPE_CHECKING:
    from cuwheel_lab.measuring.execution import MeasuredEnvironment
    from cuwheel_lab.measuring.gpu_samples import Sampler
    from cuwheel_lab.measuring.trials_file import Condition, Plan

_SAMPLE_S = 0.5
_WARM_UPS = 3  # runs that may be needed until one has passed, before a warm trial
_LARGEST_SEED = 2**31


class CampaignOptions(Struct, frozen=True, kw_only=True):
    """`only`: axis → the value's name: only these conditions. `repeats`: in place of the file's."""

    resume: bool = False
    repeats: int | None = None
    only: dict[str, str] = {}


class Turn(NamedTuple):
    """A trial that is to come."""

    condition: int
    repeat: int


class OpenCampaign(NamedTuple):
    """The journal, open for writing. `state`: how far it had come. `sampler`: watches the GPUs."""

    header: Header
    state: State
    writer: Writer
    sampler: Sampler


def folder_of(plan_file: Path, output: Path | None) -> Path:
    """Where the journal of a file is, unless another folder is given."""
    return files.absolute(output or files.absolute(plan_file).parent / "cuwheel-trials")


def shuffled_turns(conditions: Sequence[int], repeats: int, seed: int) -> Iterator[Turn]:
    """Each round has every condition once, shuffled: whenever it ends, all have had their share of every hour."""
    for repeat in range(repeats):
        # A round of its own seed: the same order however many rounds there are.
        turns = list(conditions)
        random.Random(f"{seed}-{repeat}").shuffle(turns)  # noqa: S311 - an order, no secret
        yield from (Turn(each, repeat) for each in turns)


def chosen_conditions(plan: Plan, only: Mapping[str, str]) -> list[int]:
    for axis, name in only.items():
        if name not in plan.axes.get(axis, ()):
            known = ", ".join(f"{each}={value}" for each, values in plan.axes.items() for value in values)
            raise UsageError(f"the trials have no {axis}={name}", hint=f"one of {known}" if known else "")
    chosen = [
        number
        for number, each in enumerate(plan.conditions)
        if all(each.choices.get(axis) == name for axis, name in only.items())
    ]
    if not chosen:
        raise UsageError("no condition has all these values", hint="cuwheel lab trials run FILE --dry-run lists them")
    return chosen


def conditions_here(plan: Plan, chosen: Sequence[int]) -> list[int]:
    """Those whose GPU this machine has, or that need none."""
    wanted = {plan.conditions[each].on for each in chosen} - {None}
    here = {str(each.capability) for each in gpu.probe_gpus(World.here())[0]} if wanted else set()
    found = [each for each in chosen if plan.conditions[each].on in {None, *here}]
    if not found:
        raise UsageError(f"this machine has no GPU for them ({', '.join(sorted(map(str, wanted)))})", hint="--cluster")
    if missing := wanted - here:
        log.warning("trials on %s are left out: this machine has no such GPU", ", ".join(sorted(map(str, missing))))
    return found


def run_trials(
    plan: Plan, folder: Path, options: CampaignOptions, execute: Callable[[execution.Job], End] = execution.run_job
) -> None:
    """All trials that have no result yet. Their results are in the journal, and nowhere else."""
    chosen = conditions_here(plan, chosen_conditions(plan, options.only))
    made: dict[int, MeasuredEnvironment] = {}

    def make() -> dict[int, MeasuredEnvironment]:
        made.update(make_environments(plan, chosen, folder))
        return made

    with open_campaign(plan, folder, options, make) as opened:
        turns = open_turns(opened, chosen)
        runner = Runner(plan, folder, opened, made.__getitem__, execute)
        with log.progress(f"trials of {plan.file}", len(turns)) as progress:
            for turn in turns:
                progress.show(plan.conditions[turn.condition].name)
                runner.take(turn)
                progress.advance()
        if not options.only and len(chosen) == len(plan.conditions):
            files.write(folder / journal.DONE, f"{time.time():.0f}\n")


@contextlib.contextmanager
def open_campaign(
    plan: Plan, folder: Path, options: CampaignOptions, make: Callable[[], Mapping[int, MeasuredEnvironment]] = dict
) -> Iterator[OpenCampaign]:
    """Opens a campaign with its header written, and a trial that never ended recorded.

    `make`: the environments of the conditions.
    """
    with journal.open_journal(folder) as writer, gpu_samples.sampling(_SAMPLE_S) as sampler:
        state = journal.read_state(folder)
        if state.header and not options.resume:
            hint = "go on with --resume, or choose another folder with -o"
            raise UsageError(f"{folder} has trials already", hint=hint)
        if state.header and state.header.fingerprint != plan.fingerprint:
            raise UsageError(
                f"{plan.file} has changed since the trials in {folder} began, beyond 'repeats' and 'seed'",
                hint="choose another folder with -o: results of different trials cannot be put together",
            )
        header = _new_header(plan, state, options, sampler, make())
        writer.add(Line(header=header))
        if state.unfinished:
            # A trial that never ended: what it means is decided now, while the boot id tells.
            child.end_marked(header.mark)
            outcome = journal.outcome_without_end(state.unfinished, journal.boot_id())
            words = {
                "machine": "the machine went down while it ran, and has started anew since",
                "killed": "it was killed together with cuwheel; it is run again",
            }
            log.info("trial %d has no end: %s", state.unfinished.trial, words[outcome])
            at = round(time.time(), 3)
            writer.add(Line(end=End(trial=state.unfinished.trial, outcome=outcome, at=at, message=words[outcome])))
            state = journal.read_state(folder)
        yield OpenCampaign(header, state, writer, sampler)


def open_turns(opened: OpenCampaign, chosen: Sequence[int]) -> list[Turn]:
    """Those without a result."""
    turns = shuffled_turns(chosen, opened.header.repeats, opened.header.seed)
    return [each for each in turns if each not in opened.state.results]


def make_environments(plan: Plan, chosen: Sequence[int], folder: Path) -> dict[int, MeasuredEnvironment]:
    """The environment of each condition, made before the first trial: installing is no part of one."""
    return {
        number: execution.prepare_environment(each.env, each.install, Path(plan.folder), folder / "environments")
        for number, each in enumerate(plan.conditions)
        if number in chosen
    }


def _new_header(
    plan: Plan, found: State, options: CampaignOptions, sampler: Sampler, made: Mapping[int, MeasuredEnvironment]
) -> Header:
    before = found.header
    seed = before.seed if before else plan.seed if plan.seed is not None else secrets.randbelow(_LARGEST_SEED)
    distinct = list(dict.fromkeys(made.values()))
    traced = plan.trace if plan.trace is not None else bool(sampler.names)
    return Header(
        tool=f"cuwheel {__version__}",
        file=plan.file,
        fingerprint=plan.fingerprint,
        axes=plan.axes,
        conditions=tuple(each.choices for each in plan.conditions),
        repeats=options.repeats or plan.repeats,
        seed=seed,
        mark=before.mark if before else secrets.token_hex(8),
        at=round(time.time(), 3),
        traced=traced and execution.can_trace(os.environ),
        driver=sampler.driver,
        gpus=sampler.names,
        packages=tuple(each.packages for each in distinct),
        environments=tuple(
            distinct.index(made[number]) if number in made else -1 for number in range(len(plan.conditions))
        ),
        only=options.only,
    )


class Runner:
    """One trial after the other. `environment_of`: of a condition. `warmed`: conditions that have run since the page
    cache was dropped.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        opened: OpenCampaign,
        environment_of: Callable[[int], MeasuredEnvironment],
        execute: Callable[[execution.Job], End] = execution.run_job,
    ) -> None:
        self._plan, self._folder, self._environment_of, self._execute = plan, folder, environment_of, execute
        self._header, found, self._writer, self._sampler = opened
        self._next = found.last + 1
        self._boots = set(found.used_boots)
        self._warmed: set[int] = set()

    def take(self, turn: Turn) -> End:
        condition = self._plan.conditions[turn.condition]
        hook = self._plan.cold.reboot if condition.start == "cold" else None
        if hook and (boot := journal.boot_id()) in self._boots:  # a trial ran already since the machine started
            self._writer.add(Line(reboot=Reboot(condition=turn.condition, repeat=turn.repeat, boot=boot)))
            execution.restart_machine(hook, boot)
        for _ in range(_WARM_UPS if condition.start == "warm" else 0):
            if turn.condition not in self._warmed:
                self._run_once(turn, condition, counted=False)
        return self._run_once(turn, condition, rebooted=hook is not None)

    def _run_once(self, turn: Turn, condition: Condition, *, rebooted: bool = False, counted: bool = True) -> End:
        made = self._environment_of(turn.condition)
        command = (
            execution.function_command(made.python, condition.function) if condition.function else condition.command
        )
        start = self._prepare_start(turn, condition, command, made, rebooted=rebooted)
        environ = {name: value for name, value in os.environ.items() if name not in condition.unset}
        number, self._next = self._next, self._next + 1
        job = execution.Job(
            trial=number,
            command=command,
            directory=condition.directory,
            environ=made.applied(environ) | start.environ | condition.environment,
            timeout=self._plan.timeout,
            memory=self._plan.memory,
            failure=self._plan.failure,
            traced=self._header.traced,
            mark=self._header.mark,
        )
        boot, began = journal.boot_id(), time.time()
        self._boots.add(boot)
        started = Start(
            trial=number,
            condition=turn.condition,
            repeat=turn.repeat,
            at=round(began, 3),
            boot=boot,
            cold=start.cold,
            host=execution.host_state(),
            counted=counted,
        )
        self._writer.add(Line(start=started))
        end = self._run_to_its_end(job, began)
        self._writer.add(Line(end=end))
        if end.outcome == "passed":
            self._warmed.add(turn.condition)
        return end

    def _run_to_its_end(self, job: execution.Job, began: float) -> End:
        """Also where a person, or the system going down in order, ends us: that is no result."""
        try:
            end = self._execute(job)
        except BaseException as error:
            words = "interrupted" if isinstance(error, KeyboardInterrupt) else masking.text(str(error))
            now = round(time.time(), 3)
            end = End(trial=job.trial, outcome="interrupted", at=now, message=words, seconds=round(now - began, 3))
            self._writer.add(Line(end=end))
            raise
        if not self._sampler.names:
            return end
        samples = self._sampler.between(began, time.time())
        return replace(end, gpus=gpu_samples.use_of_gpus(self._sampler.names, samples))

    def _prepare_start(
        self, turn: Turn, condition: Condition, command: tuple[str, ...], made: MeasuredEnvironment, *, rebooted: bool
    ) -> execution.Prepared:
        caches = self._folder / "jit-caches"
        if condition.start is None:
            state = journal.StartState(asked="as it is", jit_cache="the user's", page_cache="kept")
            return execution.Prepared({}, state)
        if condition.start == "warm":
            return execution.warm_start(
                self._plan.cold, caches / f"warm-{turn.condition}", ready=turn.condition in self._warmed
            )
        folder = Path(made.folder) if made.folder else None
        parts = execution.program_files(command, folder, self._plan.cold.files, Path(self._plan.folder))
        ready = execution.cold_start(self._plan.cold, caches, parts, rebooted=rebooted)
        if ready.cold.page_cache != "kept":
            self._warmed.clear()
        return ready
