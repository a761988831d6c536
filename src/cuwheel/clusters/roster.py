"""The workers, as Dask's scheduler knows them: what each is, and what it may be given."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cuwheel.clusters import service
from cuwheel.clusters.task import TOPIC, Described, Task, WorkerFacts, code_tag, own_code, package_tag
from cuwheel.errors import UsageError
from cuwheel.network import cluster_access
from cuwheel.support import codec, log
from cuwheel.support.answer import Answer
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_LOOK_S = 0.5
_QUIET_S = 20.0  # a worker says what it is as soon as the plugin has come to it
_NO_CUWHEEL = "it has no cuwheel; install it there, or send it: cuwheel cluster send"
_FAULTS = 2  # one after the other, without a success between them


class Roster:
    """By address. Who is alive is Dask's to say.

    Who has another cuwheel or another kind lacks a resource that tasks ask for; so does a worker that was set aside.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - distributed is not typed
        self.client = client
        self._kind: tuple[str, ...] = ()
        self._next = 0.0
        self._since: dict[str, float] = {}
        self._faults: Counter[str] = Counter()
        self._offers: dict[str, dict[str, float]] = {}
        self.usable: dict[str, WorkerFacts] = {}
        self.refused: dict[str, str] = {}
        self.names: dict[str, str] = {}

    @property
    def kind(self) -> tuple[str, ...]:
        """The kind of the workers whose results are put together: that with the most cores, until it is fixed."""
        cores: Counter[tuple[str, ...]] = Counter()
        for facts in self.usable.values():
            cores[facts.kind] += facts.cores
        return self._kind or max(cores, key=cores.__getitem__, default=())

    def look(self) -> None:
        """Who is there, not more often than they say something. A scheduler that is gone says nothing new."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_S
        try:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
        except Exception as error:  # noqa: BLE001 - whatever Dask raises without its scheduler
            log.debug("the scheduler does not say who is there: %s", error)
            return
        there = {address: each for address, each in workers.items() if each["status"] == "running"}
        self._offers = {address: each["resources"] for address, each in there.items()}
        self.usable = {}
        for address, each in there.items():
            if address not in self.refused and (problem := self._problem(address, each["metrics"].get(TOPIC))):
                self._refuse(address, problem)

    def wait(self, expected: int, patience: float) -> None:
        """Until so many are there, and all that are there have said what they are."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            self.look()
            if len(self._offers) >= expected and self._offers.keys() <= self.usable.keys() | self.refused.keys():
                return
            time.sleep(_LOOK_S)

    def _problem(self, address: str, said: str | None) -> str:
        """Why a worker is not used; where there is nothing, it is, as soon as it has said what it is."""
        if said is None:
            quiet = time.monotonic() - self._since.setdefault(address, time.monotonic())
            return _NO_CUWHEEL if quiet > _QUIET_S else ""
        try:
            facts = codec.decode(said, WorkerFacts)
        except (msgspec.DecodeError, TypeError) as error:
            return f"what it says of itself makes no sense: {error}"
        self.names[address] = facts.name
        if (facts.cuwheel, facts.code) != (__version__, own_code()):
            same = " with other code" if facts.cuwheel == __version__ else ""
            return f"it has cuwheel {facts.cuwheel}{same}, and this is {__version__}"
        if self._offers[address].get(code_tag()) == 0:
            return "it was set aside, for a wrong answer or for failing twice; restart it to have it used again"
        self.usable[address] = facts
        return ""

    def _refuse(self, address: str, why: str) -> None:
        self.usable.pop(address, None)
        self.refused[address] = why
        log.warning("the worker %s is not used: %s", self.name(address), why)

    def fix_kind(self) -> None:
        """Before the first of the tasks that are put together. Where nobody is there yet it stays open."""
        others = [] if self._kind else [each for each in self.usable.values() if each.kind != self.kind]
        self._kind = self.kind
        for each in others:
            kind = f"{each.libc}, {each.machine}"
            log.warning("%s is of another kind (%s) than most workers: it builds nothing", each.name, kind)

    def able(self, task: Task, avoid: Collection[str] = ()) -> list[str]:
        """Addresses of those that could do it, now or when they have done something else."""
        wanted = task.takes(self.kind).items()
        return [
            address
            for address in self.usable
            if address not in avoid and all(self._offers[address].get(name, 0) >= much for name, much in wanted)
        ]

    def praise(self, address: str) -> None:
        self._faults[address] = 0

    def blame(self, address: str, why: str, *, lied: bool) -> None:
        """One that lied, or failed twice, offers cuwheel no more. Of what else it does for others nothing changes."""
        self._faults[address] += 1
        if (lied or self._faults[address] >= _FAULTS) and address not in self.refused:
            self._refuse(address, why)
            with contextlib.suppress(Exception):  # it may be gone
                self.client.sync(self.client.scheduler.set_resources, worker=address, resources={code_tag(): 0})

    def name(self, address: str) -> str:
        return self.names.get(address, address)

    def why_none(self, task: Task) -> str:
        """Why nobody can run a task, of those who are there."""
        parts = [f"{self.name(address)}: {why}" for address, why in self.refused.items()]
        able = self.able(task)
        for facts in (each for address, each in self.usable.items() if address not in able):
            if task.package and package_tag(task.package) not in facts.tags:
                why = f"has no {task.package.replace('_', '-')}, or another one than this"
            else:
                why = "is of another kind" if task.alike and facts.kind != self.kind else f"has no {task.tag}"
            parts.append(f"{facts.name}: it {why}")
        return "; ".join(parts) or ("no worker took it" if self.usable else "the cluster has no workers")


# Who belongs to a cluster and what they do, asked from outside; and the end of it.


class WorkerState(Described, frozen=True, kw_only=True):
    """`problem`: why it is not used. `running`: tasks. `tags`: such as `gpu:9.0`."""

    address: str
    tags: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    problem: str = ""


class Cluster(Answer, frozen=True, kw_only=True):
    """`stopped`: it was ended, and these were its workers."""

    schema: Literal["cuwheel.cluster/1"] = "cuwheel.cluster/1"
    address: str
    workers: tuple[WorkerState, ...]
    stopped: bool = False

    @property
    def succeeded(self) -> bool:
        """False where there is nobody to work."""
        return self.stopped or any(not each.problem for each in self.workers)


def overview(address: str, certificate: Path | None, *, stop: bool = False, wheel: Path | None = None) -> Cluster:
    """Who is there. `stop`: the workers and the scheduler end, and all that runs. `wheel`: of cuwheel, for each."""
    found = cluster_access.parse_address(address)
    if found.kind != "address":
        raise UsageError("only a cluster at an address goes on by itself", hint="tls://HOST:8786")
    with service.open_connection(found, certificate) as connected, connected.client() as client:
        if wheel:
            service.send_wheel(client, wheel)
        service.declare_plugin(client)
        roster = Roster(client)
        there = client.scheduler_info(n_workers=-1)["workers"]
        roster.wait(len(there), _QUIET_S)
        # A task of ours by its name; anybody else's by its key.
        running = {
            worker: tuple(str(key).rpartition("-")[0] or str(key) for key in keys)
            for worker, keys in client.processing().items()
        }
        workers = tuple(_state(each, roster, running.get(each, ())) for each in there)
        if stop:
            client.shutdown()
    return Cluster(address=address, workers=workers, stopped=stop)


def _state(address: str, roster: Roster, running: tuple[str, ...]) -> WorkerState:
    facts = roster.usable.get(address)
    if facts is None:
        problem = roster.refused.get(address, _NO_CUWHEEL)
        return WorkerState(address=address, name=roster.names.get(address, ""), problem=problem, running=running)
    said = {name: getattr(facts, name) for name in Described.__struct_fields__}
    problem = "" if facts.kind == roster.kind else "of another kind than most: it builds nothing"
    return WorkerState(**said, address=address, tags=tuple(facts.tags), running=running, problem=problem)
