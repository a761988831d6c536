from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import UsageError
from cuwheel.machine import fleet
from cuwheel.machine.fleet import Machine
from cuwheel.verdicts.planning import plans
from cuwheel_core.facts import toolkits

if TYPE_CHECKING:
    from cuwheel.verdicts.planning.plan import OnMachine, Reading


def read(text: str, on: str = "", *, spelling: str | None = None, cuda: str = "", **known: str) -> Reading:
    refine = fleet.Refinement(**known)  # type: ignore[arg-type]  # only strings are given here
    toolkit = toolkits.find_toolkit(cuda) if cuda else None
    return plans.explain(text, fleet.machines_named([on], refine) if on else (), spelling=spelling, toolkit=toolkit)


def one(text: str, on: str, **how: str) -> OnMachine:
    (machine,) = read(text, on, **how).machines
    return machine


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("75;80;90", "cmake"),
        ("89", "cmake"),
        ("80-real;90-virtual", "cmake"),
        ("native", "cmake"),
        ("8.0;9.0+PTX", "torch"),
        ("Hopper", "torch"),
        ("-gencode arch=compute_80,code=sm_80", "nvcc"),
        ("sm_80,sm_90", "nvcc"),
        ("-arch=native", "nvcc"),
    ],
)
def test_whose_list_it_looks_like(text: str, spelling: str) -> None:
    found = read(text)
    assert (found.spelling, found.guessed) == (spelling, True)


def test_each_word_is_explained() -> None:
    found = read("Ampere;9.0+PTX;wat", spelling="torch")
    assert [(word.word, word.meaning) for word in found.words] == [
        ("Ampere", "machine code sm_80, sm_86 and PTX compute_86"),
        ("9.0+PTX", "machine code sm_90 and PTX compute_90"),
        ("wat", "nothing known to PyTorch"),
    ]
    assert found.unknown == ("wat",)
    assert not found.guessed
    (word,) = read("100f-real").words
    assert word.meaning == "machine code sm_100f (its family)"


def test_what_it_covers_and_what_not() -> None:
    found = read("8.0;9.0+PTX")
    assert found.reach == ("runs on 8.0 to 9.0; on 10.0 to 12.1 and all later GPUs through PTX compiled by the driver")
    assert found.missed == "3.5 to 7.5"
    assert found.toolkits == f"CUDA 11.8 to {toolkits.newest_toolkit().version}"
    assert read("compute_90", spelling="nvcc").reach.startswith("runs on 9.0 to 12.1 and all later GPUs through PTX")
    assert read("90a-real").reach == "runs on 9.0 and nowhere else"


def test_case_3_in_words() -> None:
    found = read("75;80;90", "orin")
    (orin,) = found.machines
    assert (orin.how, orin.by) == ("compatible", "sm_80")
    assert orin.explanation == "8.7 is served by sm_80: machine code runs on later minors of its major"
    assert orin.conditions == (
        (
            "sm_80, code for desktop GPUs, runs on 8.7, a Tegra: the rule says so, but NVIDIA promises nothing "
            "between the two (sm_80 code was seen running on an Orin, but others doubt it)"
        ),
    )
    (note,) = orin.notes
    assert note.startswith("the list is not the problem on a Jetson: L4T is. Below CUDA 13.0 arm64 has two toolkits")
    assert "SBSA servers fails on L4T with 'named symbol not found' although its code fits" in note
    assert found.notes == (
        "as COMPUTE_CAPABILITY of bitsandbytes it is sm_75, sm_80, sm_90, compute_90 (--as bitsandbytes)",
    )


def test_a_list_that_does_not_serve_a_jetson_is_a_problem() -> None:
    orin = one("90-virtual", "orin")
    assert orin.how == "none"
    (note,) = orin.notes
    assert note.startswith("the list is not the only problem on a Jetson: L4T is one too. Below CUDA 13.0")


def test_case_3_with_a_toolkit() -> None:
    before = one("75;80;90", "orin", cuda="12.6")
    assert any("L4T toolkit" in each for each in before.conditions)
    assert before.notes
    after = one("75;80;90", "orin", cuda="13.0")
    assert any("CUDA 13.0 is older than that" in each for each in after.conditions)
    assert not after.notes


def test_case_4_what_people_believe_a_gpu_to_be() -> None:
    machine = one("89", "rtx 5060 ti", spelling="cargo")
    assert machine.how == "none"
    assert machine.explanation == "nothing in the list runs on 12.0 (cudaErrorNoKernelImageForDevice, 209)"


def test_how_machines_are_served() -> None:
    assert one("9.0", "h100").explanation == "9.0 is served by sm_90, its own architecture"
    jit = one("9.0+PTX", "b200")
    assert (jit.how, jit.conditions) == ("jit", ("the driver is at least as new as the toolkit that writes the PTX",))
    assert one("100f-real", "b300").explanation == "10.3 is served by sm_100f: 'f' code runs on its family"
    late = one("9.0+PTX", "b200", cuda="12.8", driver_cuda="12.4")
    assert late.explanation.startswith("10.0 would use compute_90, but its driver cannot compile it (cudaErrorUnsup")
    off = one("9.0+PTX", "b200", jit="disabled")
    assert "cudaErrorJitCompilationDisabled, 223" in off.explanation
    (lost,) = plans.explain("90", [Machine(name="?", capability=None)]).machines
    assert (lost.how, lost.explanation) == ("none", "its GPU is not known")


def test_notes() -> None:
    assert read("70;120", cuda="13.0").notes[0] == "CUDA 13.0 cannot compile 70: nvcc fails"
    assert read("35-real;120-real").notes[0].startswith("no single toolkit compiles all of it")
    assert read("140-real").notes[0] == "no known toolkit compiles sm_140"
    assert read("10.0f").notes == ("PyTorch refuses 10.0f",)
    assert read("89", spelling="cargo").notes == (
        "whether it becomes machine code, PTX or both is the build script's choice",
    )
    assert read("89;90", spelling="bitsandbytes").notes == ("bitsandbytes always adds PTX for the highest",)
    found = read("native")
    assert found.open
    assert found.reach == "what it covers is not known"
    assert "resolves it when it sees the toolkit or the GPU" in found.words[0].meaning


@pytest.mark.parametrize("text", ["", "  ", ";;", ","])
def test_an_empty_list(text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        read(text)
