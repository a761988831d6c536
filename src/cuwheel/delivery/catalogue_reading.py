"""Wheels of a project read into a catalogue: here, a few at once, or by the workers of a cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from packaging.version import Version

from cuwheel.clusters.task import Task
from cuwheel.delivery import wheel_reading
from cuwheel.delivery.candidates import Candidate
from cuwheel.delivery.index_listing import IndexFile
from cuwheel.device_code.wheel_facts import WheelFacts
from cuwheel.errors import CuwheelError
from cuwheel.network import client
from cuwheel.network.remote import Budget, OverBudgetError
from cuwheel.support import codec, log
from cuwheel.wheel.metadata import WheelName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.clusters.engine import Engine

_AT_ONCE = 2
_MEMORY = 10**9


class Read(Struct, frozen=True, kw_only=True):
    """`facts`, or why there are none."""

    candidate: Candidate
    facts: WheelFacts | None = None
    problem: str = ""
    over_budget: bool = False


class Reader(Protocol):
    def read(self, wanted: Sequence[Candidate]) -> Iterator[Read]: ...


class Here:
    def __init__(self, session: client.Session, budget: Budget) -> None:
        self._session, self._budget = session, budget

    def read(self, wanted: Sequence[Candidate]) -> Iterator[Read]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(self._one, wanted)

    def _one(self, candidate: Candidate) -> Read:
        try:
            return Read(candidate=candidate, facts=wheel_reading.facts_of(candidate, self._session, self._budget))
        except OverBudgetError:
            return Read(candidate=candidate, over_budget=True)
        except CuwheelError as error:
            log.warning("%s: %s", candidate.file, error.message)
            return Read(candidate=candidate, problem=error.message)


class Given(Struct, frozen=True, kw_only=True):
    """A candidate on its way to a worker, and how much of the budget is left for it."""

    listing: IndexFile
    version: str
    index: str
    left: int | None


class Answer(Struct, frozen=True, kw_only=True):
    facts: WheelFacts | None
    downloaded: int


class OnCluster:
    """Workers ask the indexes with their own settings. Files of this machine are read here."""

    def __init__(self, machine: Engine, here: Here, budget: Budget) -> None:
        self._engine, self._here, self._budget = machine, here, budget

    def read(self, wanted: Sequence[Candidate]) -> Iterator[Read]:
        yield from self._here.read([each for each in wanted if each.path])
        remote = {each.file: each for each in wanted if not each.path}
        expected = 0
        tasks = []
        for each in remote.values():
            left = None if self._budget.limit is None else self._budget.limit - self._budget.used - expected
            expected += each.listing.size or 0
            tasks.append(_task(each, left))
        for done in self._engine.run(tasks):
            yield self._read(remote[done.task.id], done.problem, done.text)

    def _read(self, candidate: Candidate, problem: str, text: str) -> Read:
        if problem:
            return Read(candidate=candidate, problem=problem)
        answer = codec.decode(text, Answer)
        self._budget.used += answer.downloaded
        if answer.facts is None:
            return Read(candidate=candidate, over_budget=True)
        if answer.facts.file != candidate.file or answer.facts.sha256 != candidate.listing.sha256:
            return Read(candidate=candidate, problem="the worker's facts are about another wheel")
        return Read(candidate=candidate, facts=answer.facts)


def _task(candidate: Candidate, left: int | None) -> Task:
    given = Given(listing=candidate.listing, version=str(candidate.version), index=candidate.index, left=left)
    return Task(
        id=candidate.file,
        function="cuwheel.delivery.catalogue_reading:facts",
        parameters=codec.encode(given).decode(),
        memory=_MEMORY,
        seconds=float(candidate.listing.size or 0),  # the largest take longest
    )


def facts(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """On a worker."""
    given = codec.decode(task.parameters, Given)
    wheel = WheelName.parse(given.listing.file)
    candidate = Candidate(listing=given.listing, version=Version(given.version), wheel=wheel, index=given.index)
    budget = Budget(given.left)
    with client.Session() as session:
        try:
            found = wheel_reading.facts_of(candidate, session, budget)
        except OverBudgetError:
            found = None
    return codec.encode_any(Answer(facts=found, downloaded=budget.used)).decode(), {}
