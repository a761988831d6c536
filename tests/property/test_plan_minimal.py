"""Minimal means minimal: against every subset, by the rule alone."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.machine.fleet import Machine
from cuwheel.verdicts.planning import planner
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.verdicts.choice import serves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.facts.rows.toolkits import Toolkit
    from cuwheel_core.verdicts.device import Jit

CAPABILITIES = [str(each) for each in gpus.current_capabilities()]
VERSIONS = [row.version for row in toolkits.all_toolkits()]
JIT: tuple[Jit, ...] = ("allowed", "allowed", "disabled", "forced")

fleets = st.lists(st.sampled_from(CAPABILITIES), min_size=1, max_size=5)
rows = st.sampled_from(toolkits.all_toolkits())
machines = st.lists(
    st.builds(
        Machine,
        name=st.uuids().map(str),
        capability=st.sampled_from(CAPABILITIES).map(Capability.parse),
        driver_cuda=st.none() | st.sampled_from(VERSIONS),
        torch_cuda=st.none() | st.sampled_from(VERSIONS),
        jit=st.sampled_from(JIT),
    ),
    min_size=1,
    max_size=6,
)


def entries(toolkit: Toolkit, kind: str) -> list[Arch]:
    numbers = [Arch.parse(number) for number in toolkit.architectures]
    return [Arch(each.capability, each.suffix, "sm" if kind == "sm" else "compute") for each in numbers]


def subsets(archs: list[Arch]) -> Iterator[tuple[Arch, ...]]:
    for length in range(len(archs) + 1):
        yield from combinations(archs, length)


def shortest(toolkit: Toolkit, devices: set[Capability]) -> int:
    """By trying every subset of all that serves any of them, `a` and `f` included, whatever a planner would think."""
    useful = [arch for arch in entries(toolkit, "sm") if any(serves(arch, device) for device in devices)]
    plain = [arch for arch in useful if arch.suffix != "a"]  # serves one capability, as the plain one of it does too
    return next(
        len(archs) for archs in subsets(plain) if all(any(serves(arch, device) for arch in archs) for device in devices)
    )


@given(names=fleets, toolkit=rows)
@settings(max_examples=150, deadline=None)
def test_no_shorter_list_of_machine_code_serves_them(names: list[str], toolkit: Toolkit) -> None:
    fleet = [Machine(name=f"{index} {name}", capability=Capability.parse(name)) for index, name in enumerate(names)]
    (job,) = planner.make_plan(fleet, [toolkit], PlanOptions(ptx=False)).jobs
    devices = {Capability.parse(name) for name in names}
    able = {device for device in devices if any(serves(arch, device) for arch in entries(toolkit, "sm"))}
    assert len(job.archs) == shortest(toolkit, able)
    assert {row.capability for row in job.coverage} == {str(device) for device in able}
    archs = [Arch.parse(each) for each in job.archs]
    assert all(toolkit.supports(arch) for arch in archs)
    for row in job.coverage:
        assert serves(Arch.parse(row.by), Capability.parse(row.capability))
    assert job == planner.make_plan(fleet, [toolkit], PlanOptions(ptx=False)).jobs[0]
    assert set(job.archs) == set(planner.make_plan(fleet[::-1], [toolkit], PlanOptions(ptx=False)).jobs[0].archs)


@given(names=fleets, toolkit=rows)
@settings(max_examples=100, deadline=None)
def test_one_ptx_is_enough_and_only_where_machine_code_is_not(names: list[str], toolkit: Toolkit) -> None:
    fleet = [Machine(name=f"{index} {name}", capability=Capability.parse(name)) for index, name in enumerate(names)]
    (job,) = planner.make_plan(fleet, [toolkit], PlanOptions()).jobs
    devices = {Capability.parse(name) for name in names}
    able = {device for device in devices if any(serves(arch, device) for arch in entries(toolkit, "sm"))}
    through = {device for device in devices - able if any(serves(arch, device) for arch in entries(toolkit, "compute"))}
    assert len(job.ptx) == bool(through)
    assert {Capability.parse(row.capability) for row in job.coverage if row.how == "jit"} == through
    assert {row.capability for row in job.coverage} == {str(device) for device in able | through}


def runs(machine: Machine, toolkit: Toolkit) -> bool:
    """The rules of drivers, torch and JIT, once more and simply."""
    device = Capability.parse(machine.capability or "")
    driver = machine.driver_cuda
    if driver and versions.major(driver) < toolkit.major:
        return False
    if machine.torch_cuda and versions.major(machine.torch_cuda) != toolkit.major:
        return False
    if machine.jit != "forced" and any(serves(arch, device) for arch in entries(toolkit, "sm")):
        return True
    known = toolkits.find_toolkit(driver).ptx_isa if driver else toolkit.ptx_isa
    compiles = versions.at_least(known, toolkit.ptx_isa) and machine.jit != "disabled"
    return compiles and any(serves(arch, device) for arch in entries(toolkit, "compute") if not arch.suffix)


@given(fleet=machines)
@settings(max_examples=150, deadline=None)
def test_no_fewer_toolkits_serve_them(fleet: list[Machine]) -> None:
    plan = planner.make_plan(fleet, [], PlanOptions())
    everything = toolkits.all_toolkits()
    table = {machine.name: {row.version for row in everything if runs(machine, row)} for machine in fleet}
    able = {name for name, found in table.items() if found}
    assert {row.machine for row in plan.unserved} == set(table) - able
    chosen = {job.cuda for job in plan.jobs}
    assert all(table[name] & chosen for name in able)
    for fewer in combinations(VERSIONS, max(len(chosen) - 1, 0)):
        assert not able or not all(table[name].intersection(fewer) for name in able)
    for job in plan.jobs:
        assert {row.machine for row in job.coverage} == {name for name in able if job.cuda in table[name]}
        assert {row.machine for row in job.left_out} == set(table) - {row.machine for row in job.coverage}


@given(fleet=machines)
@settings(max_examples=60, deadline=None)
def test_native_is_native(fleet: list[Machine]) -> None:
    plan = planner.make_plan(fleet, [], PlanOptions(native=True))
    for job in plan.jobs:
        assert all(row.how == "native" for row in job.coverage)
        assert len(job.archs) == len({row.capability for row in job.coverage})
        assert not job.ptx
