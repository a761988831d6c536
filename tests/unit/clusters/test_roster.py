"""Who may be given a task: of the workers that Dask knows, those that offer what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from cuwheel.clusters.engine import Engine
from cuwheel.clusters.roster import Roster
from cuwheel.clusters.service import Connection
from cuwheel.clusters.task import Task, WorkerFacts, code_tag, offers, own_code
from cuwheel.support import codec
from cuwheel.version import __version__

pytest.importorskip("distributed")


def facts(name: str, cores: int = 2, libc: str = "glibc 2.36", **more: Any) -> WorkerFacts:
    own = {
        "host": name,
        "cuwheel": __version__,
        "code": own_code(),
        "machine": "x86_64",
        "python": "3.12",
        "store": "/c",
    }
    return WorkerFacts(name=name, cores=cores, memory=8, libc=libc, tools="t", **{**own, **more})


class Dask:
    """What a scheduler would say of these workers, and what it is told of them."""

    scheduler = None

    def __init__(self, *workers: WorkerFacts) -> None:
        self.told: list[Any] = []
        self.workers = {
            each.name: {
                "status": "running",
                "resources": offers(each),
                "metrics": {"cuwheel": codec.encode(each).decode()},
            }
            for each in workers
        }
        self.scheduler = self

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:  # noqa: ARG002
        return {"workers": self.workers}

    def set_resources(self, **words: Any) -> None:
        self.told.append(words)

    def sync(self, function: Any, **words: Any) -> None:
        function(**words)


def looked(*workers: WorkerFacts) -> tuple[Roster, Dask]:
    dask = Dask(*workers)
    made = Roster(dask)
    made.look()
    return made, dask


def task(**more: Any) -> Task:
    return Task(id="x", function="cuwheel.x:y", parameters="", **more)


def test_cores_memory_and_tags_are_asked_for() -> None:
    roster, _ = looked(facts("small", 1), facts("large", 8, tags={"gpu:9.0": 2}))
    assert roster.able(task()) == ["small", "large"]
    assert roster.able(task(cores=2)) == ["large"]
    assert roster.able(task(memory=9)) == []
    assert roster.able(task(tag="gpu:9.0")) == ["large"]
    assert roster.able(task(), avoid={"small"}) == ["large"]


def test_what_is_put_together_is_made_by_the_kind_with_the_most_cores() -> None:
    roster, _ = looked(facts("old", 3, "glibc 2.17"), facts("first"), facts("second"))
    assert roster.able(task(alike=True)) == ["first", "second"]
    assert len(roster.able(task())) == 3


def test_the_kind_stays_open_until_somebody_is_there() -> None:
    """Jobs of Slurm may wait in its queue for longer than a build waits for the first of them."""
    roster, dask = looked()
    roster.fix_kind()
    dask.workers = Dask(facts("late"), facts("other", 1, "glibc 2.17")).workers
    roster._next = 0.0
    roster.look()
    roster.fix_kind()
    assert roster.able(task(alike=True)) == ["late"]
    dask.workers |= Dask(facts("large", 64, "glibc 2.17")).workers
    roster._next = 0.0
    roster.look()
    assert roster.able(task(alike=True)) == ["late"]


def test_workers_that_were_started_are_to_come_until_they_are_there() -> None:
    made = Engine.__new__(Engine)
    made._connection, (made.workers, dask) = Connection(address="", expected=3), looked()
    assert made.to_come == 3
    dask.workers = Dask(facts("first"), facts("second")).workers
    made.workers._next = 0.0
    made.workers.look()
    assert made.to_come == 1


def test_another_cuwheel_offers_nothing_of_ours() -> None:
    roster, _ = looked(facts("other", cuwheel="0.0.1"), facts("same"))
    assert roster.able(task()) == ["same"]
    assert "it has cuwheel 0.0.1" in roster.refused["other"]


def test_who_lies_once_or_fails_twice_in_a_row_is_set_aside_at_the_scheduler() -> None:
    roster, dask = looked(facts("liar"), facts("weak"), facts("good"))
    roster.blame("liar", "another hash", lied=True)
    roster.blame("weak", "disk full", lied=False)
    roster.praise("weak")
    roster.blame("weak", "disk full", lied=False)
    assert roster.able(task()) == ["weak", "good"]
    roster.blame("weak", "disk full", lied=False)
    assert roster.able(task()) == ["good"]
    assert dask.told == [{"worker": name, "resources": {code_tag(): 0}} for name in ("liar", "weak")]


def test_a_task_that_is_to_be_alone_takes_all_of_a_worker() -> None:
    """So that Dask itself has it wait for the others, and others for it."""
    offered = offers(facts("x"))[code_tag()]
    assert task(alone=True).takes(())[code_tag()] == offered
    assert 0 < task().takes(())[code_tag()] < offered / 1000
