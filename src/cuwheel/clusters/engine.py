"""Hands tasks to Dask, which decides who does them, and takes their answers: checked, or done again elsewhere."""

from __future__ import annotations

import contextlib
import math
import secrets
import shutil
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.clusters import keeping, service
from cuwheel.clusters.roster import Roster
from cuwheel.clusters.task import Answer, Done, Task
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel.support import codec, log, wording
from cuwheel.support.confined import strange_on_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.clusters.access import Target
    from cuwheel.clusters.service import Connection

_LOOK_S = 0.05
_AGAIN_S = 1.0
_TRIES = 3
_RETRIES = 2  # Dask's own, of what is not the task's or the worker's fault: a thread or a process that did not start
_START_S = 60.0
_LARGEST = 20 * 10**9
_AHEAD = 4 << 30  # bytes of inputs that wait on workers: a thousand wheels would fill them
_MILLISECONDS = 1000


class _Try(Struct, kw_only=True):
    """A task that is not done. `tries`: what became of it where. `workers`: who may do it; empty for anybody able."""

    task: Task
    tries: list[str] = []
    avoid: set[str] = set()
    workers: tuple[str, ...] = ()
    future: Any = None
    shows: str = ""
    on: str = ""  # the address of the worker that has begun it

    @property
    def inputs(self) -> set[str]:
        return set(self.task.inputs.values())


@contextlib.contextmanager
def open_engine(found: Target, folder: Path, certificate: Path | None = None, cores: int = 1) -> Iterator[Engine]:
    """An engine for a cluster. `folder`: where answers are kept on this machine. `cores`: that each task takes."""
    with service.open_connection(found, certificate, cores) as connected:
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
        self._began = time.monotonic()
        self._times = keeping.Times(folder)
        self._waiting: list[_Try] = []
        self._running: dict[str, _Try] = {}
        self._done: list[Done] = []
        self._sent: dict[str, Any] = {}
        self._lost = False
        self._left: set[str] = set()  # workers that said that they go
        self._own = secrets.token_hex(4)
        self._client: Any = connected.client()
        self.workers = Roster(self._client)
        self._enter()

    def _enter(self) -> None:
        """What a scheduler must know of us; one that was started again knows nothing."""
        from distributed import as_completed

        from cuwheel.clusters import remote

        self._sent, self._lost, self.workers.client = {}, False, self._client
        self._ready: Any = as_completed(loop=self._client.loop, with_results=True, raise_errors=False)
        self._client.subscribe_topic(remote.TOPIC, self._heard)
        service.declare_plugin(self._client)

    def _heard(self, event: tuple[float, Any]) -> None:
        """A worker has begun a task, or says what it is at, or that it leaves."""
        with contextlib.suppress(TypeError, KeyError, ValueError):
            said = event[1]
            if not said["key"]:
                self._left.add(said["worker"])
            elif found := self._running.get(said["key"]):
                if found.on != said["worker"]:
                    self._note_lost(found)
                found.shows, found.on = said["shows"], said["worker"]

    def _note_lost(self, each: _Try) -> None:
        """Dask gives to others what a lost worker had begun; a person may want to know it."""
        if each.on and each.on not in self._left:
            each.tries.append(f"{self.workers.name(each.on)}: the worker is gone")
            log.info("%s is done elsewhere: %s", each.task.id, each.tries[-1])
        each.on = ""

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._connection.expected:  # started for us
                self._client.shutdown()
            self._client.close(timeout=2)
        shutil.rmtree(self._folder / "arriving" / self._own, ignore_errors=True)

    def capacity(self) -> Capacity:
        """Of the workers that are there, or were started: those are waited for."""
        deadline = time.monotonic() + min(self._connection.patience, _START_S)
        while time.monotonic() < deadline:
            self.workers.look()
            known = len(self.workers.seen) + len(self.workers.refused)
            if self.workers.usable and known >= self._connection.expected:
                break
            time.sleep(_LOOK_S)
        found = list(self.workers.usable.values())
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
        self._add(tasks)
        idle_since = time.monotonic()
        try:
            with log.progress("cluster") as progress:
                while self._waiting or self._running:
                    if self._lost or self._client.status != "running":
                        self._reconnect()
                    self.workers.look()
                    for each in list(self._running.values()):
                        if self.workers.lost(each.on):
                            self._note_lost(each)
                    self._use_kept()
                    self._submit()
                    hopeless = self._hopeless()
                    idle_since = idle_since if hopeless else time.monotonic()
                    if time.monotonic() - idle_since > self._patience():
                        self._give_up(hopeless)
                    for future, result in self._ready.next_batch(block=False) or [(None, None)]:
                        if future is None:
                            time.sleep(_LOOK_S)
                        else:
                            self._settle(future, result)
                    progress.show(self._now())
        except BaseException:  # an interrupt is meant for the tasks too, unless others want them
            with contextlib.suppress(Exception):
                self._client.cancel([each.future for each in self._running.values()], reason="interrupted")
                log.info("ended %d tasks", len(self._running))
            self._waiting, self._running = [], {}
            raise
        return tuple(self._done)

    def _add(self, tasks: Iterable[Task]) -> None:
        timed = (replace(each, seconds=self._times.of(each)) if each.seconds is None else each for each in tasks)
        self._waiting += [_Try(task=each, tries=[], avoid=set()) for each in timed]
        # What nobody has timed may be long, and goes first.
        self._waiting.sort(key=lambda each: -(math.inf if each.task.seconds is None else each.task.seconds))

    def _submit(self) -> None:
        """Everything that somebody could do, as far as its inputs have room; who does it when is Dask's to decide."""
        if not self.workers.kind:
            return
        if self._waiting:
            self.workers.fix_kind()
        users = Counter(sha256 for each in (*self._waiting, *self._running.values()) for sha256 in each.inputs)
        self._sent = {sha256: each for sha256, each in self._sent.items() if sha256 in users}  # Dask forgets the others
        ahead = sum(
            keeping.blob_path(sha256).stat().st_size for each in self._running.values() for sha256 in each.inputs
        )
        for each in list(self._waiting):
            task = self._fitted(each.task)
            able = self.workers.able(task, each.avoid)
            if not able:
                continue
            if ahead > _AHEAD and not each.inputs <= self._sent.keys():
                break
            inputs = {sha256: self._scattered(sha256, users[sha256] > 1) for sha256 in each.inputs}
            if None in inputs.values():
                break
            ahead += sum(keeping.blob_path(sha256).stat().st_size for sha256 in each.inputs)
            self._waiting.remove(each)
            self._hand_over(each, task, inputs, able)

    def _hand_over(self, each: _Try, task: Task, inputs: Mapping[str, Any], able: Sequence[str]) -> None:
        from cuwheel.clusters import remote

        # Dask calls things by what stands before the first dash. The name of a try that failed is not used again: its
        # answer may be another client's too, who tries it elsewhere under the same new name.
        number = len(each.avoid)
        unique = secrets.token_hex(16) if task.fresh else task.key(self.workers.kind)
        key = f"{task.id.replace('-', '_')}-{unique}{number or ''}"
        # Never `allow_other_workers`: with it Dask gives up resources as well, and a worker without cuwheel gets it.
        each.workers = tuple(able) if each.avoid else ()
        each.future = self._client.submit(
            remote.perform,
            codec.encode(replace(task, seconds=None)),
            inputs,
            key=key,
            resources=task.takes(self.workers.kind),
            priority=_priority(task),
            retries=_RETRIES,
            workers=each.workers or None,
        )
        each.shows, each.on = "", ""
        self._running[key] = each
        self._ready.add(each.future)

    def _fitted(self, task: Task) -> Task:
        """One that wants more than the largest worker has takes all of that one."""
        there = [(each.cores, each.memory) for each in self.workers.usable.values()]
        cores, memory = max(there, default=(task.cores, task.memory))
        if any(each[0] >= task.cores and each[1] >= task.memory for each in there):
            return task
        return replace(task, cores=min(task.cores, cores), memory=min(task.memory, memory))

    def _scattered(self, sha256: str, shared: bool) -> Any:  # noqa: ANN401, FBT001
        """A file on the workers, sent by Dask and passed on among them: to all where several tasks need it."""
        if sha256 not in self._sent:
            name, content = f"file-{sha256}", keeping.read_pieces(keeping.blob_path(sha256))
            try:
                self._sent[sha256] = self._client.scatter({name: content}, broadcast=shared)[name]
            except Exception as error:  # noqa: BLE001 - a worker went meanwhile, or the scheduler did: tried again
                log.debug("%s was not sent: %s", sha256, error)
        return self._sent.get(sha256)

    def _settle(self, future: Any, result: Any) -> None:  # noqa: ANN401
        each = self._running.pop(future.key, None)
        if each is None or each.future is not future:
            return
        status, each.future = future.status, None
        if status == "finished":
            self._take(each, future, result)
        elif status == "error":
            each.tries.append(f"{type(result[1]).__name__}: {result[1]}")
            self._finish(_failed(each.task, each.tries))
        else:  # the scheduler went, or every worker that had its inputs: nobody's fault
            self._waiting.append(each)
            self._lost = True

    def _take(self, each: _Try, future: Any, result: Any) -> None:  # noqa: ANN401
        """An answer is taken with its files, each with the hash that was said."""
        task, lied, address = each.task, False, each.on
        with contextlib.suppress(Exception):
            address = next(iter(self._client.who_has([future])[future.key]), each.on)
        try:
            answer = codec.decode(result[0], Answer)
            fault = answer.problem if answer.lacking else ""
            place = keeping.new_place(self._folder, self._own)
            got = {} if fault else {sent.name: _received(sent, result[1], place) for sent in answer.files}
        except (msgspec.DecodeError, MalformedError, TypeError, LookupError) as error:
            fault, lied = getattr(error, "message", f"its answer makes no sense: {error}"), True
        except CuwheelError as error:
            fault = error.message
        if fault:
            name = self.workers.name(address)
            log.info("%s failed on %s and is tried elsewhere: %s", task.id, name, fault)
            each.tries.append(f"{name}: {fault}")
            each.avoid.add(address)
            self.workers.blame(address, fault, lied=lied)
            if len(each.tries) >= _TRIES:
                self._finish(_failed(task, each.tries))
            else:
                self._waiting.append(each)
            return
        self.workers.praise(address)
        now = time.monotonic()
        done = Done(
            task=task,
            text=answer.text,
            files=got,
            worker=answer.worker,
            began=max(0.0, now - (answer.ended - answer.began) - self._began),
            ended=now - self._began,
            problem=answer.problem,
            hint=answer.hint,
            tries=tuple(each.tries),
        )
        if task.kept and not done.problem and self._keep(done):
            done = keeping.keep_answer(self._folder, task.key(self.workers.kind), done)
        self._finish(done)

    def _finish(self, done: Done) -> None:
        if not done.problem and not done.cached:
            self._times.note(done)
        self._done.append(done)
        self._add(self._then(done))

    def _use_kept(self) -> None:
        """Answers of an earlier run of the same inputs, on workers of the same kind."""
        unseen = list(self._waiting) if self.workers.kind else []
        while unseen:
            each = unseen.pop()
            if not each.task.kept or each.task.fresh or each.tries:
                continue
            if found := keeping.kept_answer(self._folder, each.task.key(self.workers.kind), each.task):
                self._waiting.remove(each)
                before = set(map(id, self._waiting))
                self._finish(found)
                unseen += [new for new in self._waiting if id(new) not in before]  # what it made possible

    def _hopeless(self) -> list[_Try]:
        """What nobody who is there can do. What is left to workers that are gone is handed over again."""
        for key, each in list(self._running.items()):
            if each.workers and not set(each.workers) & self.workers.usable.keys():
                self._running.pop(key).future.cancel()
                self._waiting.append(each)
        if self._running:
            return []
        return [each for each in self._waiting if not self.workers.able(self._fitted(each.task), each.avoid)]

    def _patience(self) -> float:
        """With workers that could do it none of what is left would start: they are not waited for."""
        expecting = len(self.workers.seen) < self._connection.expected
        return self._connection.patience if expecting or not self.workers.usable else _AGAIN_S

    def _give_up(self, missing: Iterable[_Try]) -> None:
        for each in missing:
            self._waiting.remove(each)
            self._finish(_failed(each.task, each.tries or [self.workers.why_none(each.task)]))

    def _reconnect(self) -> None:
        """What a scheduler had that was started again is handed to it again."""
        if self._client.status != "running":
            log.info("the scheduler is gone, waiting for it at %s", self._connection.address)
        self._waiting += self._running.values()
        self._running = {}
        deadline = time.monotonic() + self._connection.patience
        while self._client.status != "running":
            if self._client.status == "closed":
                with contextlib.suppress(UnreadableError):
                    self._client = self._connection.client(timeout=5.0)
            if time.monotonic() > deadline:
                missing, self._waiting = self._waiting, []
                for each in missing:
                    self._finish(_failed(each.task, [f"the scheduler at {self._connection.address} is gone"]))
                return
            time.sleep(_LOOK_S)
        self._enter()

    def _now(self) -> str:
        begun = [each for each in self._running.values() if each.on]
        parts = [f"{len(self._done)} done, {len(self._waiting) + len(self._running) - len(begun)} waiting"]
        running = [f"{self.workers.name(each.on)}: {each.shows or each.task.id}" for each in begun]
        return ", ".join([*parts, *wording.first_few(running, 8, str)])


def _priority(task: Task) -> int:
    """The longest first."""
    return 10**9 if task.seconds is None else int(task.seconds * _MILLISECONDS)


def _received(sent: Any, files: Mapping[str, list[bytes]], place: Path) -> Path:  # noqa: ANN401 - a worker's word
    astray = sent.name.startswith(".") or "/" in sent.name or strange_on_windows(sent.name)
    if sent.size > _LARGEST or astray:
        raise MalformedError(sent.name, "was sent, and nobody asked for such a file")
    return keeping.receive_blob(sent.sha256, files[sent.name], place / sent.name)


def _failed(task: Task, tries: Sequence[str]) -> Done:
    return Done(
        task=task,
        problem=f"no worker could do {task.id}: {'; '.join(tries)}",
        hint="cuwheel cluster status shows the workers; the same command goes on with what is missing",
        tries=tuple(tries),
    )
