from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from cuwheel.machine import fleet
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts.planning import planner
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts import gpus, toolkits
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts.choice import can_target

if TYPE_CHECKING:
    from cuwheel.verdicts.planning.plan import Plan

NEWEST = toolkits.newest_toolkit().version


def make(*names: str, cuda: str = "", options: PlanOptions | None = None, **known: str) -> Plan:
    refine = fleet.Refinement(**known)  # type: ignore[arg-type]  # only strings are given here
    given = [toolkits.find_toolkit(each) for each in cuda.split()]
    return planner.make_plan(fleet.machines_named(names, refine), given, options or PlanOptions())


def lists(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {job.cuda: (*job.archs, *job.ptx) for job in plan.jobs}


@pytest.mark.parametrize(
    ("names", "cuda", "archs"),
    [
        ("l40,h100", "12.8", ("sm_89", "sm_90")),
        ("a100,l40,rtx 3090", "12.8", ("sm_80",)),
        ("rtx 3090,l40", "12.8", ("sm_86",)),
        ("l40", "11.7", ("sm_86",)),
        ("gb10", "12.8", ("sm_120",)),
        ("gb10", "12.9", ("sm_121",)),
        ("thor", "12.9", ("sm_101",)),
        ("thor", "13.0", ("sm_110",)),
        ("v100,t4", "12.9", ("sm_70",)),
        ("b200,b300", "12.9", ("sm_100",)),
    ],
)
def test_the_shortest_list(names: str, cuda: str, archs: tuple[str, ...]) -> None:
    plan = make(names, cuda=cuda)
    assert lists(plan) == {cuda: archs}
    assert not plan.unserved


def test_case_1_the_newest_that_driver_and_torch_know_completely() -> None:
    (job,) = make("rtx a6000", driver_cuda="12.2", torch_cuda="12.4").jobs
    assert (job.cuda, job.archs) == ("12.2", ("sm_86",))
    assert not job.coverage[0].conditions
    (job,) = make("rtx a6000", cuda="12.4", driver_cuda="12.2", torch_cuda="12.4").jobs
    assert "minor-version compatibility" in job.coverage[0].notes[0]


def test_case_2_two_architectures_and_nowhere_else() -> None:
    (job,) = make("h100,l40").jobs
    assert job.cuda == toolkits.newest_toolkit().version
    assert job.reach == "runs on 8.9, 9.0 and nowhere else"
    assert {row.machine: (row.how, row.by) for row in job.coverage} == {
        "h100": ("native", "sm_90"),
        "l40": ("native", "sm_89"),
    }
    assert job.coverage[0].conditions == ("driver 580 or later (CUDA 13)",)


def test_case_3_a_tegra_is_served_and_nothing_is_hidden() -> None:
    (job,) = make("a100,orin", cuda="12.6").jobs
    assert job.archs == ("sm_80",)
    orin = next(row for row in job.coverage if row.machine == "orin")
    assert orin.how == "compatible"
    told = " ".join(orin.conditions)
    assert "NVIDIA promises nothing between the two (sm_80 code was seen running on an Orin" in told
    assert "L4T toolkit of the Jetson" in told
    assert "below CUDA 13.0 the two differ" in told
    (native,) = make("a100,orin", cuda="12.6", options=PlanOptions(native=True)).jobs
    assert native.archs == ("sm_80", "sm_87")


def test_tegra_code_is_not_given_to_desktop_gpus() -> None:
    (job,) = make("orin,l40", cuda="12.6").jobs
    assert job.archs == ("sm_86",)
    (job,) = make("orin", cuda="13.0").jobs
    assert job.archs == ("sm_87",)
    assert any("JetPack 7.2 (L4T 39.2) or later" in each for each in job.coverage[0].conditions)
    (job,) = make("thor", cuda="13.0").jobs
    assert not any("confirmed" in each for each in job.coverage[0].conditions)


def test_case_4_a_gpu_newer_than_the_toolkit_gets_ptx_if_the_driver_compiles_it() -> None:
    (job,) = make("rtx 5060 ti", cuda="12.1").jobs
    assert (job.archs, job.ptx, job.coverage[0].how) == ((), ("compute_90",), "jit")
    assert job.coverage[0].conditions == (
        "driver 525.60.13 (on Windows 528.33) or later (CUDA 12)",
        "driver 530.30.02 or later (CUDA 12.1), to compile its PTX (ISA 8.1)",
    )
    plan = make("rtx 5060 ti", cuda="12.1", options=PlanOptions(ptx=False))
    (row,) = plan.unserved
    assert row.why == (
        f"CUDA 12.1 does not compile for 12.0 yet: too old (CUDA 12.8 to {NEWEST} can)",
        "PTX of CUDA 12.1 would reach it, but no-ptx rules it out",
    )
    assert row.fix == f"--cuda {NEWEST}"
    assert plan.jobs[0].notes == ("CUDA 12.1 serves none of these machines",)
    assert plan.jobs[0].reach == "runs nowhere"


def test_a_toolkit_that_dropped_the_gpu() -> None:
    plan = make("v100,h100", cuda="13.0")
    assert lists(plan) == {"13.0": ("sm_90",)}
    assert plan.unserved[0].why == ("CUDA 13.0 no longer compiles for 7.0: too new (CUDA 9.0 to 12.9 can)",)
    assert plan.unserved[0].fix == "--cuda 12.9"
    both = make("v100,h100", cuda="12.9 13.0")
    assert lists(both) == {"12.9": ("sm_70", "sm_90"), "13.0": ("sm_90",)}
    assert not both.unserved
    assert [row.machine for row in both.jobs[1].left_out] == ["v100"]


def test_a_driver_older_than_any() -> None:
    (row,) = make("h100", driver="390.12").unserved
    assert "older than that of any known toolkit" in row.why[0]
    assert row.fix == "update the driver to 520 or later"
    (row,) = make("rtx 4090", cuda="13.0", driver="535.104").unserved
    assert row.why == ("its driver (CUDA 12.2) is too old for CUDA 13.0, which needs driver 580 or later",)
    assert row.fix == "--cuda 12.9"


def test_torch_decides_the_major() -> None:
    machines = [
        Machine(name="old", capability=Capability.parse("8.0"), driver="580.65.06", torch_cuda="12.4"),
        Machine(name="new", capability=Capability.parse("8.0"), driver="580.65.06", torch_cuda="13.0"),
    ]
    plan = planner.make_plan(machines, [], PlanOptions())
    assert lists(plan) == {"12.4": ("sm_80",), "13.0": ("sm_80",)}
    assert "does not load together with it" in plan.jobs[1].left_out[0].why[0]
    (job,) = make("a100", cuda="12.8", torch_cuda="12.4").jobs
    assert any("no library function newer than CUDA 12.4" in each for each in job.coverage[0].conditions)


def test_the_fewest_toolkits() -> None:
    assert list(lists(make("v100,h100,b200"))) == ["12.9"]
    assert list(lists(make("v100,h100", driver_cuda="12.2"))) == ["12.2"]
    # 12.8 is the only one that serves both without PTX; the newest that fits it all is 12.9.
    plan = make("rtx 5090,v100", driver="570.86.10")
    assert list(lists(plan)) == ["12.8"]


def test_wishes_for_suffixes() -> None:
    assert lists(make("h100,b200,l40", cuda="12.9", options=PlanOptions(specific=True))) == {
        "12.9": ("sm_89", "sm_90a", "sm_100a")
    }
    plan = make("h100,b200,b300,gb10", cuda="12.9", options=PlanOptions(family=True))
    assert lists(plan) == {"12.9": ("sm_90", "sm_100f", "sm_121f")}
    assert plan.jobs[0].notes == ("CUDA 12.9 has no 'f' architecture for 9.0: using plain code there",)


def test_native_where_the_toolkit_has_none() -> None:
    plan = make("gb10,h100", cuda="12.8", options=PlanOptions(native=True))
    (row,) = plan.unserved
    assert row.why == (
        (f"CUDA 12.8 cannot compile sm_121, which native asks for (CUDA 12.9 to {NEWEST} can); it works without"),
    )
    (row,) = make("rtx 5090", cuda="12.6", options=PlanOptions(native=True)).unserved
    assert row.why[1] == "PTX of CUDA 12.6 would reach it, but native rules it out"


def test_ptx_for_later_gpus_goes_by_desktop_ones() -> None:
    assert make("h100,l40", cuda="13.0", options=PlanOptions(future=True)).jobs[0].ptx == ("compute_90",)
    assert make("h100,thor", cuda="13.0", options=PlanOptions(future=True)).jobs[0].ptx == ("compute_90",)
    assert make("thor", cuda="13.0", options=PlanOptions(future=True)).jobs[0].ptx == ("compute_110",)
    assert make("h100", cuda="13.0", options=PlanOptions(future=True, specific=True)).jobs[0].ptx == ("compute_90",)


def test_switches_of_the_driver() -> None:
    (job,) = make("a100,h100", cuda="12.8", jit="forced").jobs
    assert (job.archs, job.ptx) == ((), ("compute_80",))
    (row,) = make("rtx 5090", cuda="12.6", jit="disabled").unserved
    assert row.why[1] == "PTX of CUDA 12.6 would reach it, but CUDA_DISABLE_PTX_JIT is set there"
    (row,) = make("rtx 5090", cuda="12.6", driver_cuda="12.4").unserved
    assert row.why[1] == "PTX of CUDA 12.6 would reach it, but its driver is too old to compile it"
    (row,) = make("h100", cuda="12.8", jit="forced", options=PlanOptions(native=True)).unserved
    assert row.why[0].startswith("CUDA_FORCE_PTX_JIT is set there")


def test_a_driver_compiles_the_ptx_of_a_newer_toolkit_of_the_same_isa() -> None:
    (job,) = make("rtx 5090", cuda="12.6", driver="555.42.02").jobs
    assert job.coverage[0].how == "jit"


def test_a_driver_that_is_older_than_the_gpu() -> None:
    (job,) = make("rtx 5090", cuda="12.8", driver_cuda="12.2").jobs
    assert job.coverage[0].notes[1] == (
        "its driver does not support this GPU, for which branch 570 was the first: "
        "nothing runs until it gets another driver"
    )


def test_a_capability_that_is_in_no_table() -> None:
    (job,) = make("9.7", cuda="12.9", options=PlanOptions(family=True)).jobs
    assert job.coverage[0].by == "sm_90"
    assert job.coverage[0].notes == ("no GPU of capability 9.7 is in the tables: it is judged by the general rule",)
    assert job.notes == ("CUDA 12.9 has no 'f' architecture for 9.7: using plain code there",)


def test_windows_has_drivers_of_its_own() -> None:
    (job,) = make("rtx 5090", cuda="13.0", driver="581.00", os="windows").jobs
    assert job.coverage[0].conditions == ()
    (row,) = make("rtx 4090", cuda="12.8", driver="511.23", os="windows").unserved
    assert "528.33" in row.why[0]


def test_a_machine_without_a_known_gpu() -> None:
    plan = planner.make_plan(
        [Machine(name="?", capability=None), Machine(name="x", capability=Capability.parse("9.0"))], [], PlanOptions()
    )
    assert [(row.machine, row.why) for row in plan.unserved] == [("?", ("its GPU is not known",))]
    assert plan.jobs[0].archs == ("sm_90",)
    assert not planner.make_plan([Machine(name="?", capability=None)], [], PlanOptions()).jobs


def test_an_architecture_that_no_toolkit_knows() -> None:
    (row,) = planner.make_plan([Machine(name="x", capability=Capability.parse("3.0"))], [], PlanOptions()).unserved
    assert row.why == (f"CUDA 11.0 to {NEWEST} cannot compile for 3.0: no known toolkit can",)
    assert row.fix == ""


@pytest.mark.parametrize("cuda", ["11.8", "12.9", "13.0", ""])
def test_all_is_every_gpu_that_the_toolkit_targets(cuda: str) -> None:
    row = toolkits.find_toolkit(cuda) if cuda else toolkits.newest_toolkit()
    machines = planner.every_gpu([row] if cuda else [])
    assert {each.capability for each in machines} == {
        str(gpu.capability) for gpu in gpus.all_gpus() if can_target(row, gpu.capability)
    }
    plan = planner.make_plan(machines, [row], PlanOptions())
    assert not plan.unserved
    (job,) = planner.make_plan(machines, [row], PlanOptions(native=True)).jobs
    assert {row.how for row in job.coverage} == {"native"}
    # A GPU that is newer than the toolkit (Rubin to CUDA 13.0) is served by older code of its family alone.
    assert len(job.archs) == len(machines) - len(job.left_out)
    majors = {Capability.parse(each.capability or "").major for each in machines}
    assert len(plan.jobs[0].archs) == len(majors)


def test_ten_thousand_machines_in_about_a_second() -> None:
    pick = random.Random(7)  # noqa: S311 - a fleet, not a secret
    drivers = [
        f"{major}.{minor}.0{patch}" for major in (525, 550, 570, 580) for minor in range(90) for patch in range(5)
    ]
    machines = [
        Machine(
            name=f"node {index}",
            capability=Capability.parse(pick.choice(["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])),
            driver=pick.choice(drivers),
            os="linux",
            torch_cuda=pick.choice([None, "12.4", "12.8", "13.0"]),
        )
        for index in range(10_000)
    ]
    began = time.process_time()
    plan = planner.make_plan(machines, [], PlanOptions(future=True))
    taken = time.process_time() - began
    assert taken < 3, "generous: benchmarks/bench_plan.py measures"
    served = {row.machine for job in plan.jobs for row in job.coverage}
    assert len(served) + len(plan.unserved) == len(machines)
