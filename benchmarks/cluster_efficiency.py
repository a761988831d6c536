"""How much of several workers a cluster uses: projects compiled by architecture, with 1, 2, 4 and 8 workers.

    python benchmarks/cluster_efficiency.py FOLDER… --for 8.0,8.6,9.0 --workers 1,2,4,8

Each run starts with empty caches. What it is held against is the least that any schedule takes: the longest task, or
all of them divided among the workers. Starting the workers is not counted; sending, fetching and putting together is.
`--sleep N` has N tasks sleep in place of compilers, on any number of workers: Dask and cuwheel themselves are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel.building import act, jobs, on_cluster
from cuwheel.building.decide import plan_architectures, read_source
from cuwheel.building.request import BuildRequest
from cuwheel.clusters import engine
from cuwheel.clusters.task import Task
from cuwheel.machine import system
from cuwheel.network import cluster_access

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.clusters.task import Done

_SECONDS = (3.0, 4.5, 6.0, 7.5, 7.5, 9.0, 10.5, 12.0, 15.0)  # of shares of bitsandbytes and small projects
_CORES = 2


def measured(projects: Sequence[Path], machines: str, workers: int, provider: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cuwheel-efficiency-") as name:
        folder = Path(name)
        store = folder / "store"
        if shared := os.environ.get("CUWHEEL_CACHE"):  # toolkits are not what is measured
            store.mkdir()
            (store / "toolchains").symlink_to(Path(shared, "toolchains"))
        os.environ["CUWHEEL_CACHE"] = str(store)
        try:
            return _measured(projects, machines, workers, provider, folder)
        finally:
            os.environ["CUWHEEL_CACHE"] = shared or ""
            shutil.rmtree(store, ignore_errors=True)


def _measured(projects: Sequence[Path], machines: str, workers: int, provider: str, folder: Path) -> dict[str, Any]:
    found = cluster_access.parse_address(f"local:{workers}")
    with engine.open_engine(found, folder / "answers", cores=_CORES) as machine:
        works = {}
        for project in projects:
            request = BuildRequest(
                project, machines=machines.split(","), providers=[provider], output=folder / "dist", shares=True
            )
            act.make_output(request.output)
            plan = plan_architectures(read_source(request))
            works[plan.project.name] = on_cluster.OnCluster(plan, jobs.pythons(plan.table, plan.project), machine)

        def follow_up(done: Done) -> Iterator[Task]:
            yield from works[done.task.id.split(" ")[0]].follow_up(done)

        first = [task for work in works.values() for task in work.begin()]
        began = time.monotonic()
        machine.run(first, follow_up)
        took = time.monotonic() - began
    spans = [span for work in works.values() for span in work.spans]
    results = [result for work in works.values() for result in work.ordered()]
    seconds = [span.ended - span.began for span in spans]
    bound = least(seconds, workers)
    return {
        "workers": workers,
        "seconds": round(took, 2),
        "bound": round(bound, 2),
        "efficiency": round(bound / took, 3),
        "total": round(sum(seconds), 2),
        "longest": round(max(seconds, default=0.0), 2),
        "tasks": {span.name: round(span.ended - span.began, 2) for span in spans},
        "outcomes": {result.answer.id: result.answer.outcome for result in results},
        "problems": [result.problem.what[:500] for result in results if result.problem],
    }


def least(seconds: Sequence[float], workers: int) -> float:
    """No schedule is shorter."""
    return max(max(seconds, default=0.0), sum(seconds) / workers)


def slept(tasks: int, workers: int, folder: Path) -> dict[str, Any]:
    """On workers of which the machine has not the cores: sleeping takes none."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    system.available_resources = lambda: (_CORES * workers, 64 << 30)
    chosen = random.Random(1)  # noqa: S311 - which ones does not matter, but that they are the same each time
    given = [chosen.choice(_SECONDS) for _ in range(tasks)]
    made = [
        Task(
            id=f"job {number}",
            function="tests.integration.cluster_tasks:sleep",
            parameters=str(each),
            seconds=each,
            cores=_CORES,
        )
        for number, each in enumerate(given)
    ]
    with engine.open_engine(cluster_access.parse_address(f"local:{workers}"), folder, cores=_CORES) as machine:
        machine.gather()
        began = time.monotonic()
        done = machine.run(made)
        took = time.monotonic() - began
    bound = least([each.ended - each.began for each in done], workers)
    return {
        "workers": workers,
        "seconds": round(took, 2),
        "bound": round(bound, 2),
        "efficiency": round(bound / took, 3),
        "problems": [each.problem[:500] for each in done if each.problem],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", metavar="FOLDER", nargs="*", type=Path)
    parser.add_argument("--for", dest="machines", default="8.0,8.9,9.0")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--provider", default="system")
    parser.add_argument("--sleep", metavar="TASKS", type=int)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    if not args.projects and not args.sleep:
        sys.exit("name the folders of projects, or --sleep TASKS")
    runs = []
    for workers in map(int, args.workers.split(",")):
        if args.sleep:
            with tempfile.TemporaryDirectory(prefix="cuwheel-efficiency-") as name:
                found = slept(args.sleep, workers, Path(name))
        else:
            found = measured(args.projects, args.machines, workers, args.provider)
        runs.append(found)
        print(
            f"{workers} workers: {found['seconds']} s, at least {found['bound']} s: {found['efficiency']:.0%}; "
            f"{found.get('outcomes', '')} {found['problems']}",
            flush=True,
        )
        if args.save:
            args.save.write_text(json.dumps({"runs": runs}, indent=1))


if __name__ == "__main__":
    main()
