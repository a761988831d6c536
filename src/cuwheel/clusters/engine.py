"""Hands tasks to Dask, which decides who does them, and takes their answers: checked, or done again elsewhere."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from cuwheel.clusters import service
from cuwheel.clusters.roster import Roster
from cuwheel.clusters.task import TOPIC, Answer, Done, Task, WorkerFacts, read_pieces, receive_file
from cuwheel.support import codec, files, log, scratch
from cuwheel.support.confined import strange_on_windows
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import wording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.clusters.service import Connection
    from cuwheel.network.cluster_access import Target

_LOOK_S = 0.05
_AGAIN_S = 1.0
_TRIES = 3
_RETRIES = 2  # Dask's own, of what is not the task's or the worker's fault: a thread or a process that did not start
_START_S = 60.0
_AHEAD = 4 << 30  # bytes of inputs that wait on workers: a thousand wheels would fill them


class _Try(Struct, kw_only=True, eq=False):
    """A task that is not done. `tries`: what became of it where, `avoid`: by address. `waits`: it is not Dask's.

    `future`: kept until there is another, since Dask ends what nobody wants.
    `workers`: who may do it; empty for anybody able. `on`: the address of the worker that has begun it.
    """

    task: Task
    tries: list[str] = []
    avoid: set[str] = set()
    waits: bool = True
    future: Any = None
    workers: tuple[str, ...] = ()
    shows: str = ""
    on: str = ""

    @property
    def inputs(self) -> set[str]:
        return set(self.task.inputs.values())

    @property
    def priority(self) -> int:
        """Milliseconds: the longest first; what nobody has timed may be long."""
        return 10**9 if self.task.seconds is None else int(self.task.seconds * 1000)

    def wait_again(self) -> None:
        self.waits, self.on = True, ""


@contextlib.contextmanager
def open_engine(found: Target, folder: Path, certificate: Path | None = None, cores: int = 1) -> Iterator[Engine]:
    """An engine for a cluster. `folder`: where its files are until it is closed. `cores`: that each task takes."""
    with (
        service.open_connection(found, certificate, cores) as connected,
        scratch.folder(folder / "arriving", "client-") as own,
        contextlib.closing(Engine(connected, own)) as made,
    ):
        yield made


class Engine:
    """`run` may be called several times: what the workers have is not sent again."""

    def __init__(self, connected: Connection, folder: Path) -> None:
        self._connection, self._folder = connected, folder
        self._began = time.monotonic()
        self._open: list[_Try] = []
        self._done: list[Done] = []
        self._sent: dict[str, Any] = {}
        self._client: Any = connected.client()
        self.workers = Roster(self._client)
        self._register()

    def _register(self) -> None:
        """What a scheduler must know of us; one that was started again knows nothing."""
        from distributed import as_completed

        self._sent, self._lost, self.workers.client = {}, False, self._client
        self._ready: Any = as_completed(loop=self._client.loop, with_results=True, raise_errors=False)
        self._client.subscribe_topic(TOPIC, self._on_progress)
        service.declare_plugin(self._client)

    def _on_progress(self, event: tuple[float, Any]) -> None:
        """A worker has begun a task, or says what it is at."""
        for each in list(self._open):
            match event[1]:
                case {"key": key, "worker": worker, "shows": shows} if not each.waits and each.future.key == key:
                    if each.on != worker:  # not the topic of all: Dask breaks the connection over events of that
                        self._client.subscribe_topic(worker, partial(self._on_loss, worker))
                    each.shows, each.on = shows, worker

    def _on_loss(self, worker: str, event: tuple[float, Any]) -> None:
        """Dask gives to others what a lost worker had begun; a person may want to know it."""
        match event[1]:
            case {"action": "remove-worker", "expected": False}:
                for each in [each for each in self._open if each.on == worker]:
                    each.tries.append(f"{self.workers.name(worker)}: the worker is gone")
                    log.info("%s is done elsewhere: %s", each.task.id, each.tries[-1])

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def add_input(self, path: Path) -> str:
        """A file as it is now, for tasks that name it by this hash."""
        sha256 = files.sha256(path)
        files.copy(path, self._folder / sha256)
        return sha256

    @property
    def to_come(self) -> int:
        """How many workers were started that are not there yet."""
        return max(0, self._connection.expected - len(self.workers.usable))

    def gather(self) -> list[WorkerFacts]:
        """The workers that are there, or were started: those are waited for. Who comes later works too."""
        self.workers.wait(max(1, self._connection.expected), min(self._connection.patience, _START_S))
        return list(self.workers.usable.values())

    def run(self, tasks: Iterable[Task], then: Callable[[Done], Iterable[Task]] = lambda _: ()) -> tuple[Done, ...]:
        """All of them, and those that `then` makes of each answer. What no worker could do has a `problem`."""
        self._done, self._then = [], then
        self._add(tasks)
        idle_since = time.monotonic()
        try:
            with log.progress("cluster") as progress:
                while self._open:
                    if self._lost or self._client.status != "running":
                        self._reconnect()
                    self.workers.look()
                    if self._submit():
                        idle_since = time.monotonic()
                    # Workers that are there but could start none of what is left are not waited for.
                    some_may = self.to_come or not self.workers.usable
                    if time.monotonic() - idle_since > (self._connection.patience if some_may else _AGAIN_S):
                        for each in list(self._open):
                            self._give_up(each, "" if each.tries else self.workers.why_none(each.task))
                    ended = self._ready.next_batch(block=False)
                    for future, result in ended:
                        self._task_ended(future, result)
                    if not ended:
                        time.sleep(_LOOK_S)
                    progress.show(self._now())
        except BaseException:  # an interrupt is meant for the tasks too, unless others want them
            begun, self._open = [each.future for each in self._open if not each.waits], []
            with contextlib.suppress(Exception):
                self._client.cancel(begun, reason="interrupted")
                log.info("ended %d tasks", len(begun))
            raise
        return tuple(self._done)

    def _add(self, tasks: Iterable[Task]) -> None:
        # What Dask hears first it gives to who is idle.
        self._open = sorted([*self._open, *(_Try(task=each) for each in tasks)], key=lambda each: -each.priority)

    def _submit(self) -> bool:
        """Everything that somebody could do, as far as its inputs have room; who does it when is Dask's to decide.

        False where Dask has nothing, and nobody who is there could do any of it.
        """
        for each in self._open:
            # All that it was left to are gone.
            if not each.waits and each.workers and not set(each.workers) & self.workers.usable.keys():
                each.future.cancel()
                each.wait_again()
        waiting = [each for each in self._open if each.waits]
        some_can = len(waiting) < len(self._open)
        if not self.workers.kind or not waiting:
            return some_can
        if any(each.task.alike for each in waiting):
            self.workers.fix_kind()
        users = Counter(sha256 for each in self._open for sha256 in each.inputs)
        self._sent = {sha256: each for sha256, each in self._sent.items() if sha256 in users}  # Dask forgets the others
        ahead = sum((self._folder / sha256).stat().st_size for sha256 in self._sent)
        for each in waiting:
            task = self._fit_to_workers(each.task)
            able = self.workers.able(task, each.avoid)
            some_can = some_can or bool(able)
            if not able or (ahead > _AHEAD and not each.inputs <= self._sent.keys()):
                continue
            for sha256 in each.inputs - self._sent.keys():
                if not self._scatter(sha256, shared=users[sha256] > 1):
                    return True
                ahead += (self._folder / sha256).stat().st_size
            self._hand_over(each, task, able)
        return some_can

    def _hand_over(self, each: _Try, task: Task, able: Sequence[str]) -> None:
        from cuwheel.clusters import remote

        # Dask calls things by what stands before the first dash. The name of a try that failed is not used again: its
        # answer may be another client's too, who tries it elsewhere under the same new name.
        unique = secrets.token_hex(16) if task.fresh else task.key(self.workers.kind)
        key = f"{task.id.replace('-', '_')}-{unique}{len(each.avoid) or ''}"
        # Never `allow_other_workers`: with it Dask gives up resources as well, and a worker without cuwheel gets it.
        each.workers = tuple(able) if each.avoid else ()
        each.future = self._client.submit(
            remote.perform,
            codec.encode(replace(task, seconds=None)),
            {sha256: self._sent[sha256] for sha256 in each.inputs},
            key=key,
            resources=task.takes(self.workers.kind),
            priority=each.priority,
            retries=_RETRIES,
            workers=each.workers or None,
        )
        each.waits = False
        self._ready.add(each.future)

    def _fit_to_workers(self, task: Task) -> Task:
        """One that wants more than the largest worker has takes all of that one."""
        there = [(each.cores, each.memory) for each in self.workers.usable.values()]
        if not there or any(cores >= task.cores and memory >= task.memory for cores, memory in there):
            return task
        cores, memory = max(there)
        return replace(task, cores=min(task.cores, cores), memory=min(task.memory, memory))

    def _scatter(self, sha256: str, *, shared: bool) -> bool:
        """A file on the workers, sent by Dask and passed on among them: to all where several tasks need it."""
        name, content = f"file-{sha256}", read_pieces(self._folder / sha256)
        try:
            self._sent[sha256] = self._client.scatter({name: content}, broadcast=shared)[name]
        except Exception as error:  # noqa: BLE001 - a worker went meanwhile, or the scheduler did: tried again
            log.debug("%s was not sent: %s", sha256, error)
        return sha256 in self._sent

    def _task_ended(self, future: Any, result: Any) -> None:  # noqa: ANN401
        for each in [each for each in self._open if each.future is future and not each.waits]:
            if future.status == "finished":
                self._accept_answer(each, future, result)
            elif future.status == "error":
                self._give_up(each, f"{type(result[1]).__name__}: {result[1]}")
            else:  # the scheduler went, or every worker that had its inputs: nobody's fault
                each.wait_again()
                self._lost = True

    def _accept_answer(self, each: _Try, future: Any, result: Any) -> None:  # noqa: ANN401
        """An answer is taken with its files, each with the hash that was said."""
        task, address, fault, lied = each.task, each.on, "", False
        with contextlib.suppress(Exception):
            address = next(iter(self._client.who_has([future])[future.key]), each.on)
        try:
            answer = codec.decode(result[0], Answer)
            fault = answer.problem if answer.lacking else ""
            got = {} if fault else self._receive_files(answer, result[1])
        except (msgspec.DecodeError, MalformedError, TypeError, LookupError) as error:
            fault, lied = getattr(error, "message", f"its answer makes no sense: {error}"), True
        except OSError as error:  # of this machine: its disk is full
            raise UnreadableError.from_os(error, self._folder) from error
        if fault:
            name = self.workers.name(address)
            log.info("%s failed on %s and is tried elsewhere: %s", task.id, name, fault)
            each.avoid.add(address)
            each.tries.append(f"{name}: {fault}")
            self.workers.blame(address, fault, lied=lied)
            if len(each.tries) >= _TRIES:
                self._give_up(each)
            else:
                each.wait_again()
            return
        self.workers.praise(address)
        ended = time.monotonic() - self._began
        answer = replace(answer, began=max(0.0, ended - (answer.ended - answer.began)), ended=ended)
        self._finish(each, Done(**asdict(answer), task=task, files=got, tries=tuple(each.tries)))

    def _receive_files(self, answer: Answer, content: Mapping[str, list[bytes]]) -> dict[str, Path]:
        place = self._folder / secrets.token_hex(8)
        for name in answer.hashes:
            if name.startswith(".") or "/" in name or strange_on_windows(name):
                raise MalformedError(name, "was sent, and nobody asked for such a file")
        return {name: receive_file(sha256, content[name], place / name) for name, sha256 in answer.hashes.items()}

    def _finish(self, each: _Try, done: Done) -> None:
        self._open.remove(each)
        self._done.append(done)
        self._add(self._then(done))

    def _give_up(self, each: _Try, why: str = "") -> None:
        tries = tuple(filter(None, [*each.tries, why]))
        problem = f"no worker could do {each.task.id}: {'; '.join(tries)}"
        hint = "cuwheel cluster status shows the workers; the same command goes on with what is missing"
        self._finish(each, Done(task=each.task, problem=problem, hint=hint, tries=tries))

    def _reconnect(self) -> None:
        """What a scheduler had that was started again is handed to it again."""
        if self._client.status != "running":
            log.info("the scheduler is gone, waiting for it at %s", self._connection.address)
        for each in self._open:
            each.wait_again()
        deadline = time.monotonic() + self._connection.patience
        while self._client.status != "running":
            if self._client.status == "closed":
                with contextlib.suppress(UnreadableError):
                    self._client = self._connection.client(timeout=5.0)
            if time.monotonic() > deadline:
                for each in list(self._open):
                    self._give_up(each, f"the scheduler at {self._connection.address} is gone")
                return
            time.sleep(_LOOK_S)
        self._register()

    def _now(self) -> str:
        begun = [each for each in self._open if each.on]
        parts = [f"{len(self._done)} done, {len(self._open) - len(begun)} waiting"]
        running = [f"{self.workers.name(each.on)}: {each.shows or each.task.id}" for each in begun]
        return ", ".join([*parts, *wording.first_few(running, 8, str)])
