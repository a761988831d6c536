"""Planning for ten thousand machines: against decoding the same fleet from JSON, and in less than a second.

The fleet is a hard one: no two drivers alike, four torch builds, two operating systems.
"""

from __future__ import annotations

import json
import random
import sys

from harness import Measure, alternate, finish, shown
from msgspec import to_builtins

from cuwheel.machine.fleet import Machine
from cuwheel.verdicts.planning import planner, serving
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts.arch import Capability

MACHINES = 10_000
ROUNDS = 5


def fleet() -> list[Machine]:
    pick = random.Random(7)  # noqa: S311 - a fleet, not a secret
    return [
        Machine(
            name=f"node {index}",
            capability=Capability.parse(pick.choice(["7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0"])),
            driver=f"{pick.choice((470, 525, 535, 550, 570, 580, 590))}.{index // 100}.{index % 100}",
            os=pick.choice(("linux", "linux", "windows")),
            torch_cuda=pick.choice((None, "11.8", "12.4", "12.8", "13.0")),
        )
        for index in range(MACHINES)
    ]


def plan(machines: list[Machine]) -> None:
    serving.reach_of_kind.cache_clear()  # what one plan learnt of machines must not help the next
    planner.make_plan(machines, [], PlanOptions(future=True))


def main() -> int:
    machines = fleet()
    text = json.dumps([to_builtins(machine) for machine in machines])
    taken = alternate({"plan": lambda: plan(machines), "json": lambda: json.loads(text)}, rounds=ROUNDS)
    return finish(
        [
            Measure(
                what="a plan for 10,000 machines / decoding them from JSON",
                ours=shown(taken["plan"]),
                theirs=shown(taken["json"]),
                value=taken["plan"] / taken["json"],
                best=7.1,
                at_most=True,
            ),
            Measure(
                what="a plan for 10,000 machines",
                ours=shown(taken["plan"]),
                theirs="",
                value=taken["plan"],
                promised=1.0,
                unit="s",
                at_most=True,
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
