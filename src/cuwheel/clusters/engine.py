"""Runs tasks on the workers of a cluster, whatever becomes of those, until each has an answer that was checked."""

from __future__ import annotations

import contextlib
import queue
import secrets
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters import keeping, schedule, service
from cuwheel.clusters.roster import Roster
from cuwheel.clusters.schedule import Slot, Waiting
from cuwheel.clusters.task import Done
from cuwheel.clusters.transport import FaultError, SchedulerGoneError, Transport
from cuwheel.errors import CuwheelError
from cuwheel.support import log, wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.clusters.access import Target
    from cuwheel.clusters.service import Connection
    from cuwheel.clusters.task import Task

_LOOK_S = 0.25
_TRIES = 3
_START_S = 60.0
_MOST_THREADS = 256


class _Ended(Struct, frozen=True, kw_only=True):
    """Of one try: `done`, or why not. `aside`: the worker is not to be given anything more."""

    call: str
    waiting: Waiting
    worker: str
    done: Done | None = None
    fault: str = ""
    aside: bool = False
    blamed: bool = True  # False where the scheduler went, which is nobody's fault


@contextlib.contextmanager
def open_engine(found: Target, folder: Path, certificate: Path | None = None) -> Iterator[Engine]:
    """An engine for a cluster. `folder`: where answers are kept on this machine."""
    with service.open_connection(found, certificate) as connected:
        made = Engine(connected, folder)
        try:
            yield made
        finally:
            made.close()


class Capacity(Struct, frozen=True, kw_only=True):
    """`slots`: builds that could run at once. `largest`: cores of the largest worker."""

    slots: int
    cores: int
    largest: int


class Engine:
    """`run` may be called several times: what the workers have is not sent again."""

    def __init__(self, connected: Connection, folder: Path) -> None:
        self._connection, self._folder = connected, folder
        self._transport = Transport(connected)
        self._roster = Roster(self._transport)
        self._ended: queue.Queue[_Ended] = queue.Queue()
        self._running: dict[str, tuple[Waiting, str]] = {}
        self._tries: dict[str, list[str]] = {}
        self._waiting: list[Waiting] = []
        self._done: list[Done] = []
        self._began = time.monotonic()
        self._times = keeping.Times(folder)
        self._places: list[Path] = []  # where files arrive that are not kept

    def close(self) -> None:
        self._transport.close()
        for each in self._places:
            shutil.rmtree(each, ignore_errors=True)

    @property
    def workers(self) -> Roster:
        return self._roster

    def capacity(self) -> Capacity:
        """Of the workers that are there, or were started: those are waited for."""
        deadline = time.monotonic() + min(self._connection.patience, _START_S)
        while time.monotonic() < deadline:
            self._roster.look()
            known = len(self._roster.seen) + len(self._roster.refused)
            if self._roster.usable and known >= self._connection.expected:
                break
            time.sleep(_LOOK_S)
        found = list(self._roster.usable.values())
        return Capacity(
            slots=sum(max(1, each.cores // service.CORES) for each in found),
            cores=sum(each.cores for each in found),
            largest=max((each.cores for each in found), default=1),
        )

    def run(
        self,
        tasks: Iterable[Task],
        then: Callable[[Done], Iterable[Task]] = lambda _: (),
        keep: Callable[[Done], bool] = lambda _: True,
    ) -> tuple[Done, ...]:
        """All of them, and those that `then` makes of each answer. `keep`: whether an answer is used again.

        A task that no worker could do has a `problem`; it never raises for one.
        """
        self._done, self._then, self._keep = [], then, keep
        with ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="cuwheel-task") as pool:
            try:
                self._add(tasks)
                self._loop(pool)
            except BaseException:
                self._stop()
                raise
        return tuple(self._done)

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            timed = replace(task, seconds=self._times.of(task)) if task.seconds is None else task
            self._waiting.append(Waiting(task=timed))

    def _loop(self, pool: ThreadPoolExecutor) -> None:
        alone_since: float | None = None
        with log.progress("cluster") as progress:
            while self._waiting or self._running:
                if not self._transport.alive:
                    self._reconnect()
                self._roster.look()
                self._end_lost()
                self._use_kept()
                for waiting, worker in self._assigned():
                    self._start(pool, waiting, worker)
                alone_since = None if self._running or not self._waiting else alone_since or time.monotonic()
                if alone_since and time.monotonic() - alone_since > self._patience():
                    self._give_up()
                with contextlib.suppress(queue.Empty):
                    self._settle(self._ended.get(timeout=_LOOK_S))
                    while True:
                        self._settle(self._ended.get_nowait())
                progress.show(self._now())

    def _patience(self) -> float:
        """With workers that could do it none of what is left would start: they are not waited for."""
        expecting = len(self._roster.seen) < self._connection.expected
        return self._connection.patience if expecting or not self._roster.usable else _LOOK_S

    def _assigned(self) -> list[tuple[Waiting, str]]:
        used_cores: Counter[str] = Counter()
        used_memory: Counter[str] = Counter()
        for waiting, worker in self._running.values():
            used_cores[worker] += self._roster.cores(worker) if waiting.task.alone else waiting.task.cores
            used_memory[worker] += waiting.task.memory
        slots = [
            Slot(
                name=name,
                cores=facts.cores - used_cores[name],
                memory=facts.memory - used_memory[name],
                idle=not used_cores[name],
            )
            for name, facts in self._roster.usable.items()
        ]
        largest = [Slot(name=name, cores=each.cores, memory=each.memory) for name, each in self._roster.usable.items()]
        fitted = [replace(each, task=schedule.fitted(each.task, largest)) for each in self._waiting]
        return list(schedule.assign(fitted, slots, self._roster.may_run))

    def _start(self, pool: ThreadPoolExecutor, waiting: Waiting, worker: str) -> None:
        self._waiting = [each for each in self._waiting if each.task.id != waiting.task.id]
        call = f"{waiting.task.id}-{secrets.token_hex(4)}"
        self._running[call] = (waiting, worker)
        log.debug("%s begins on %s", waiting.task.id, self._roster.name(worker))
        pool.submit(self._drive, call, waiting, worker)

    def _drive(self, call: str, waiting: Waiting, worker: str) -> None:
        """In a thread of its own: one try, from sending its inputs to the files that came back."""
        task = waiting.task
        began = time.monotonic() - self._began
        place = keeping.new_place(self._folder)
        self._places.append(place)
        try:
            answer, got = self._transport.performed(call, task, worker, place)
        except SchedulerGoneError as error:
            self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, fault=str(error), blamed=False))
        except FaultError as error:
            self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, fault=str(error), aside=error.aside))
        except CuwheelError as error:
            self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, fault=error.message))
        except Exception as error:  # noqa: BLE001 - a thread must end in words, or the loop waits for ever
            self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, fault=f"{type(error).__name__}: {error}"))
        else:
            if answer.lacking:
                self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, fault=answer.problem))
                return
            done = Done(
                task=task,
                text=answer.text,
                files=got,
                worker=self._roster.name(worker),
                began=began,
                ended=time.monotonic() - self._began,
                problem=answer.problem,
                hint=answer.hint,
                tries=tuple(self._tries.get(task.id, ())),
            )
            self._ended.put(_Ended(call=call, waiting=waiting, worker=worker, done=done))

    def _settle(self, ended: _Ended) -> None:
        if self._running.pop(ended.call, None) is None:
            return  # a worker that was given up has come back with an answer that nobody waits for
        task = ended.waiting.task
        if ended.done:
            self._roster.praise(ended.worker)
            if task.kept and not ended.done.problem and self._keep(ended.done):
                kept = keeping.keep_answer(self._folder, task.key(self._roster.kind), ended.done)
                self._finish(kept)
            else:
                self._finish(ended.done)
            return
        if not ended.blamed:
            self._waiting.append(ended.waiting)
            return
        name = self._roster.name(ended.worker)
        log.info("%s failed on %s and is tried elsewhere: %s", task.id, name, ended.fault)
        tries = self._tries.setdefault(task.id, [])
        tries.append(f"{name}: {ended.fault}")
        self._roster.blame(ended.worker, ended.fault, aside=ended.aside)
        retry = replace(ended.waiting, avoid=ended.waiting.avoid | {ended.worker})
        if len(tries) >= _TRIES:
            self._finish(_failed(retry.task, tries))
        else:
            self._waiting.append(retry)

    def _finish(self, done: Done) -> None:
        if not done.problem and not done.cached:
            self._times.note(done)
        self._done.append(done)
        self._add(self._then(done))

    def _use_kept(self) -> None:
        """Answers of an earlier run of the same inputs, on workers of the same kind."""
        if not self._roster.kind:
            return
        unseen = list(self._waiting)
        while unseen:
            each = unseen.pop()
            if not each.task.kept or each.task.fresh:
                continue
            if found := keeping.kept_answer(self._folder, each.task.key(self._roster.kind), each.task):
                self._waiting.remove(each)
                before = len(self._waiting)
                self._finish(found)
                unseen += self._waiting[before:]  # what it made possible may be kept too

    def _end_lost(self) -> None:
        """Tasks of workers that are gone: their threads may wait for long, and are not waited for."""
        for call, (waiting, worker) in list(self._running.items()):
            if why := self._roster.lost(worker):
                self._transport.abandon(call)
                self._settle(_Ended(call=call, waiting=waiting, worker=worker, fault=why))

    def _give_up(self) -> None:
        """What is left cannot be done by anybody who is there."""
        missing, self._waiting = self._waiting, []
        for each in missing:
            tries = self._tries.get(each.task.id, [])
            why = tries or [self._roster.why_none(each.task)]
            self._finish(_failed(each.task, why))

    def _reconnect(self) -> None:
        """A scheduler that was started again knows nothing: what ran is run again."""
        log.info("the scheduler is gone, waiting for it at %s", self._connection.address)
        for call in list(self._running):
            self._transport.abandon(call)
        self._waiting += [waiting for waiting, _ in self._running.values()]
        self._running.clear()
        if self._transport.reopened(self._connection.patience):
            self._roster.forget()
            log.info("the scheduler is back")
            return
        missing, self._waiting = self._waiting, []
        for each in missing:
            self._finish(_failed(each.task, [f"the scheduler at {self._connection.address} is gone"]))

    def _stop(self) -> None:
        """An interrupt is meant for the tasks too."""
        calls: dict[str, list[str]] = {}
        for call, (_, worker) in self._running.items():
            calls.setdefault(worker, []).append(call)
        self._waiting, self._running = [], {}
        self._transport.stop(calls)

    def _now(self) -> str:
        shows = self._transport.shows
        parts = [f"{len(self._done)} done, {len(self._waiting)} waiting"]
        running = [
            f"{self._roster.name(worker)}: {shows.get(call) or each.task.id}"
            for call, (each, worker) in self._running.items()
        ]
        return ", ".join([*parts, *wording.first_few(running, 8, str)])


def _failed(task: Task, tries: Sequence[str]) -> Done:
    return Done(
        task=task,
        problem=f"no worker could do {task.id}: {'; '.join(tries)}",
        hint="cuwheel cluster status shows the workers; the same command goes on with what is missing",
        tries=tuple(tries),
    )
