"""What `slim` keeps for a GPU is what `check` says that the driver takes there, and `inspect` that it serves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import registered_containers, why_untouchable
from cuwheel.changes.slim.decide import decide_library
from cuwheel.changes.slim.request import SlimTask
from cuwheel.device_code.survey import survey
from cuwheel.machine.fleet import Machine
from cuwheel_core.device_code.libraries import Symbols
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.verdicts import predict
from cuwheel_core.verdicts.choice import loader_of
from cuwheel_core.verdicts.modules import without_kernels
from tests.fixtures import manifest
from tests.unit.changes.slim.test_decide import kept, made

if TYPE_CHECKING:
    from cuwheel.changes.binaries.plan import LibraryPlan
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.verdicts.predict import Prediction

BIN = Path(__file__).parents[3] / "fixtures" / "bin"
FIXTURES = [each.file for each in manifest.load()]
GPUS = [Machine(name=str(each), capability=each) for each in gpus.current_capabilities()]


def _on(library: Library, machine: Machine) -> Prediction:
    on = loader_of(machine)
    assert on
    return predict.reach_of(library).by_code(on)


def _slimmed(library: Library, plan: LibraryPlan) -> Library:
    """The library as a survey would find it afterwards."""
    rows = library.device_code
    place = {(each.kind, each.arch, each.section, each.linked, each.compression): n for n, each in enumerate(rows)}
    inside: dict[int, list[int]] = {}
    for each in plan.entries:
        if each.keep and each.entry.container is not None:
            row = place[each.entry.kind, each.entry.arch, each.entry.section, each.entry.linked, each.entry.compression]
            inside.setdefault(each.entry.container, []).append(row)
    lost = {row for each in library.containers for row in each.code} - {row for each in inside.values() for row in each}
    left = [number for number in range(len(rows)) if number not in lost]
    containers = tuple(
        replace(each, code=tuple(left.index(row) for row in inside.get(number, [])))
        for number, each in enumerate(library.containers)
    )
    return replace(library, device_code=tuple(rows[number] for number in left), containers=containers)


@pytest.mark.parametrize("file", FIXTURES)
def test_inspect_check_and_slim_agree_gpu_by_gpu(file: str) -> None:
    (library,) = survey(BIN / file, detail="entries").libraries
    if why_untouchable(library, drop_signature=False) or not registered_containers(library):
        return  # slim leaves such files alone
    covered = predict.coverage_of(library)
    for gpu in GPUS:
        told = _on(library, gpu)
        plan = decide_library(library, SlimTask(machines=(gpu,)))
        useless = any(each.rule == "nothing-for-targets" for each in plan.untouched)
        assert useless is not bool(told.taken or told.alternatives), gpu.name
        if covered:
            serves = gpu.name in (*covered.native, *covered.jit, *covered.partial)
            assert serves is (told.outcome != "fails"), gpu.name
        after = _on(_slimmed(library, plan), gpu)
        assert (after.outcome, after.predicted_error) == (told.outcome, told.predicted_error), gpu.name
        assert after.containers == told.containers, gpu.name
        if useless:
            assert all(each.keep for each in plan.entries)
            continue
        kernelless = without_kernels(library)
        kept = Counter(
            (each.entry.arch, each.entry.section)
            for each in plan.entries
            if each.keep and each.entry.container not in kernelless
        )
        taken = Counter({(each.arch, each.section): 0 for each in told.taken})
        for each in told.taken:
            taken[each.arch, each.section] += each.count
        assert taken <= kept, gpu.name


def test_code_that_the_library_loads_itself_counts_for_slim_as_for_check() -> None:
    """Registered code alone has nothing for the GPU; what the library loads itself has: it is of use there."""
    found = made("sm_70", "sm_90")
    registered, own = found.containers
    apart = replace(
        found,
        containers=(registered, replace(own, section=".rodata")),
        device_code=(found.device_code[0], replace(found.device_code[1], section=".rodata")),
        entries=(found.entries[0], replace(found.entries[1], section=".rodata")),
    )
    gpu = Machine(name="9.0", capability=Capability.parse("9.0"))
    assert _on(apart, gpu).taken
    assert kept(decide_library(apart, SlimTask(machines=(gpu,)))) == "- | sm_90"
    other = Machine(name="12.0", capability=Capability.parse("12.0"))
    assert not _on(apart, other).taken
    plan = decide_library(apart, SlimTask(machines=(other,)))
    assert "nothing-for-targets" in [each.rule for each in plan.untouched]


def test_slim_says_that_a_library_runs_nowhere_which_then_looks_as_if_it_did() -> None:
    """As cuSPARSELt 0.6.2 on a T4: one kernel of 2,513 fits, which asks what GPU there is."""
    found = replace(made("compute_52", *["sm_90"] * 150), path="lib/libcusparseLt.so.0")
    gpu = Machine(name="7.5", capability=Capability.parse("7.5"))
    assert _on(found, gpu).outcome == "fails"
    plan = decide_library(found, SlimTask(machines=(gpu,)))
    told = [each.message for each in plan.untouched if each.rule == "gaps-out-of-sight"]
    assert [each.partition(",")[0] for each in told] == ["it does not run on 7.5"]
    other = decide_library(found, SlimTask(machines=(Machine(name="9.0", capability=Capability.parse("9.0")),)))
    assert not [each for each in other.untouched if each.rule == "gaps-out-of-sight"]


def test_objects_that_cannot_be_linked_are_of_no_use_to_either() -> None:
    """The object that fits needs one that does not: the link fails, and with it every kernel."""
    found = made("sm_70", "rel:sm_90", "rel:sm_70", wrappers=(2, 1, 1))
    needs = Symbols(kernels=("kernel",), functions=(), wanted=("helper",))
    has = Symbols(kernels=(), functions=("helper",), wanted=())
    linked, first, second = found.containers
    torn = replace(found, containers=(linked, replace(first, symbols=needs), replace(second, symbols=has)))
    gpu = Machine(name="9.0", capability=Capability.parse("9.0"))
    assert _on(torn, gpu).outcome == "fails"
    plan = decide_library(torn, SlimTask(machines=(gpu,)))
    assert "nothing-for-targets" in [each.rule for each in plan.untouched]
    assert all(each.keep for each in plan.entries)
