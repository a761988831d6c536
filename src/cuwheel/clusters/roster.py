"""The workers: what each is, whether it is alive, and whether it may be given anything."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from cuwheel.clusters import access, service
from cuwheel.clusters.task import own_code
from cuwheel.clusters.transport import FaultError, SchedulerGoneError, Transport
from cuwheel.errors import UsageError
from cuwheel.support import log
from cuwheel.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.clusters.task import Facts, Task


_SILENT_S = 30.0
_LOOK_S = 1.0
_MISSED = 2  # looks at which the scheduler does not name a worker, one after the other
_FAULTS = 2  # one after the other, without a success between them


class Roster:
    """By address. `kind`: that of the workers whose results are put together; it is decided once."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._next = 0.0
        self._heard: dict[str, tuple[float, float]] = {}
        self._faults: Counter[str] = Counter()
        self._gone: dict[str, str] = {}
        self._missed: Counter[str] = Counter()
        self.seen: dict[str, Facts] = {}
        self.refused: dict[str, str] = {}
        self.kind: tuple[str, ...] = ()

    def forget(self) -> None:
        """After the scheduler was started again: its workers have new addresses. The kind stays."""
        self._heard, self._faults, self._gone = {}, Counter(), {}
        self.seen, self.refused = {}, {}
        self._next = 0.0

    @property
    def usable(self) -> dict[str, Facts]:
        return {
            name: facts
            for name, facts in self.seen.items()
            if name not in self.refused and name not in self._gone and self._heard_lately(name)
        }

    def look(self) -> None:
        """Who is there, a few times a minute."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOK_S
        try:
            there = self._transport.workers()
        except SchedulerGoneError:
            return
        for name, last_seen in there.items():
            if self._heard.get(name, (None,))[0] != last_seen:
                self._heard[name] = (last_seen, now)
            if name not in self.seen and name not in self.refused:
                self._greet(name)
        for name in self.seen:
            self._missed[name] = 0 if name in there else self._missed[name] + 1
            if name in there:
                self._gone.pop(name, None)  # it came back, or the scheduler was too busy to tell
            elif self._missed[name] >= _MISSED:
                self._gone.setdefault(name, "the worker is gone")
        if not self.kind and self.usable:
            self._decide()

    def _greet(self, name: str) -> None:
        try:
            facts = self._transport.facts(name)
        except SchedulerGoneError:
            return
        except FaultError as error:
            self._refuse(name, f"it does not say what it is: {error}")
            return
        if (facts.cuwheel, facts.code) != (__version__, own_code()):
            same = " with other code" if facts.cuwheel == __version__ else ""
            self._refuse(name, f"it has cuwheel {facts.cuwheel}{same}, and this is {__version__}")
            return
        self.seen[name] = facts

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = why
        log.warning("the worker %s is not used: %s", name, why)

    def _decide(self) -> None:
        """The kind with the most cores."""
        cores: Counter[tuple[str, ...]] = Counter()
        for facts in self.usable.values():
            cores[facts.kind] += facts.cores
        self.kind = max(cores, key=lambda kind: cores[kind])
        for facts in self.usable.values():
            if facts.kind != self.kind:
                log.warning(
                    "%s is of another kind (%s, %s) than most workers: it builds nothing",
                    facts.name,
                    facts.libc,
                    facts.machine,
                )

    def may_run(self, task: Task, name: str) -> bool:
        return not task.alike or self.seen[name].kind == self.kind

    def lost(self, name: str) -> str:
        """Why nothing more will come from a worker; empty where something may."""
        if name in self._gone:
            return self._gone[name]
        return "" if self._heard_lately(name) else f"nothing was heard of it for {_SILENT_S:.0f} s"

    def _heard_lately(self, name: str) -> bool:
        return name in self._heard and time.monotonic() - self._heard[name][1] < _SILENT_S

    def praise(self, name: str) -> None:
        self._faults[name] = 0

    def blame(self, name: str, why: str, *, aside: bool) -> None:
        self._faults[name] += 1
        if aside or self._faults[name] >= _FAULTS:
            self._refuse(name, why)

    def cores(self, address: str) -> int:
        return self.seen[address].cores if address in self.seen else 0

    def name(self, address: str) -> str:
        return self.seen[address].name if address in self.seen else address

    def why_none(self, task: Task) -> str:
        """Why nobody can run a task, of those who are there."""
        if not self.seen and not self.refused:
            return "the cluster has no workers"
        parts = [f"{name}: {why}" for name, why in (self.refused | self._gone).items()]
        others = [facts.name for name, facts in self.usable.items() if not self.may_run(task, name)]
        parts += [f"{name}: it is of another kind" for name in others]
        return "; ".join(parts) or "no worker took it"


# Who belongs to a cluster and what they do, asked from outside; and the end of it.


class WorkerState(Struct, frozen=True, kw_only=True):
    """`problem`: why it is not used. `running`: tasks."""

    address: str
    name: str = ""
    host: str = ""
    cuwheel: str = ""
    libc: str = ""
    machine: str = ""
    python: str = ""
    cores: int = 0
    memory: int = 0
    apart: bool = False
    running: tuple[str, ...] = ()
    problem: str = ""


class Cluster(Struct, frozen=True, kw_only=True):
    """`stopped`: it was ended, and these were its workers."""

    schema: Literal["cuwheel.cluster/1"] = "cuwheel.cluster/1"
    address: str
    workers: tuple[WorkerState, ...]
    stopped: bool = False

    @property
    def succeeded(self) -> bool:
        """False where there is nobody to work."""
        return self.stopped or any(not each.problem for each in self.workers)


def overview(address: str, certificate: Path | None, *, stop: bool = False) -> Cluster:
    """Who is there. `stop`: all that runs is ended then, and the workers and the scheduler with it."""
    found = access.parse_address(address)
    if found.kind != "address":
        raise UsageError("only a cluster at an address goes on by itself", hint="tls://HOST:8786")
    with service.open_connection(found, certificate) as connected:
        transport = Transport(connected)
        try:
            workers = _states(transport)
            if stop:
                transport.stop_everything()
        finally:
            transport.close()
    return Cluster(address=address, workers=workers, stopped=stop)


def _states(transport: Transport) -> tuple[WorkerState, ...]:
    roster = Roster(transport)
    roster.look()
    running = transport.running()
    return tuple(
        WorkerState(
            address=address,
            **{name: getattr(facts, name) for name in WorkerState.__struct_fields__ if hasattr(facts, name)},
            running=running.get(address, ()),
            problem="" if facts.kind == roster.kind else "of another kind than most: it builds nothing",
        )
        for address, facts in roster.seen.items()
    ) + tuple(WorkerState(address=address, problem=why) for address, why in roster.refused.items())
