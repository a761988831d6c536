"""Who belongs to a cluster and what they do, asked from outside; and the end of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.clusters import connection
from cuwheel.clusters.roster import Roster
from cuwheel.clusters.transport import Transport
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cuwheel.clusters.target import Target


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


def of(found: Target, certificate: Path | None) -> tuple[WorkerState, ...]:
    with _asked(found, certificate) as transport:
        return _states(transport)


def stop(found: Target, certificate: Path | None) -> tuple[WorkerState, ...]:
    """Everything that runs is ended first; who was there is told."""
    with _asked(found, certificate) as transport:
        there = _states(transport)
        transport.stop_everything()
    return there


@contextlib.contextmanager
def _asked(found: Target, certificate: Path | None) -> Iterator[Transport]:
    if found.kind != "address":
        raise UsageError("only a cluster at an address goes on by itself", hint="tls://HOST:8786")
    with connection.opened(found, certificate) as connected:
        transport = Transport(connected)
        try:
            yield transport
        finally:
            transport.close()


def _states(transport: Transport) -> tuple[WorkerState, ...]:
    roster = Roster(transport)
    roster.look()
    running = transport.running()
    return tuple(
        WorkerState(
            address=address,
            name=facts.name,
            host=facts.host,
            cuwheel=facts.cuwheel,
            libc=facts.libc,
            machine=facts.machine,
            python=facts.python,
            cores=facts.cores,
            memory=facts.memory,
            apart=facts.apart,
            running=running.get(address, ()),
            problem="" if facts.kind == roster.kind else "of another kind than most: it builds nothing",
        )
        for address, facts in roster.seen.items()
    ) + tuple(WorkerState(address=address, problem=why) for address, why in roster.refused.items())
