"""The gate's rules on device code: the committed binaries of real compilers, and a few made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.building import gate, gate_units
from cuwheel.building.values import GateRequest
from cuwheel.device_code.survey import survey
from cuwheel_core.facts.arch import Arch
from tests.fixtures import systems
from tests.unit.building.wheels import BIN, call, found, judge, record, rules, wheel
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = {"work": (8, 0, 0)}


@pytest.mark.parametrize(
    ("file", "plan"),
    [
        ("plain-130.so", "sm_80 sm_90 compute_90"),
        ("ptx-130.so", "compute_75 compute_90"),
        ("rdc-130.so", "sm_80 sm_90 compute_90"),  # a device link keeps no PTX: it is in the objects
        ("lto-130.so", "sm_90"),  # objects with LTO-IR, linked code with machine code
        ("specific-130.so", "sm_90 sm_90a sm_120a compute_90a"),
        ("windows-130.dll", "sm_75 sm_90 compute_90"),
        ("archive-130.a", "sm_80 sm_90"),
        ("bare-130.cubin", "sm_90"),
    ],
)
def test_what_was_planned_passes(tmp_path: Path, file: str, plan: str) -> None:
    platform = "win_amd64" if file.endswith(".dll") else "linux_x86_64"
    result = judge(wheel(tmp_path, {f"demo/{file}": file}, tag=f"py3-none-{platform}"), plan)
    assert rules(result) == set()
    assert result.succeeded
    assert result.listed == ()


def test_an_architecture_that_one_container_lacks(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/libmany.so": "many-130.so"})
    result = judge(path, "sm_90", allow=("sm_80", "sm_90a", "compute_90"))
    assert result.succeeded  # the third container is allowed as it is, the second has sm_90
    result = judge(path, "sm_80 sm_90", allow=("sm_90a", "compute_90"))
    finding = found(result, "planned-architecture-missing")
    assert finding.message.startswith("demo/libmany.so: sm_80 was planned but is missing from 1 of 2 containers")
    assert finding.evidence == ("container 2 of 3 (.nv_fatbin at 0x29a0, scale) has sm_90 compute_90",)
    assert "force-archs" in finding.fix
    assert not result.succeeded


def test_a_container_of_other_code_alone_must_be_allowed_as_a_whole(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/libmany.so": "many-130.so"})
    refused = judge(path, "sm_80 sm_90", allow=("compute_90",))
    lacking = [each for each in refused.findings if each.rule == "planned-architecture-missing"]
    assert [each.message.split(": ")[1].split(" was")[0] for each in lacking] == ["sm_80", "sm_80 sm_90"]
    assert "sm_90a in 1 of 3 containers" in found(refused, "architecture-not-planned").message


def test_ptx_that_was_planned_and_is_missing(tmp_path: Path) -> None:
    result = judge(wheel(tmp_path, {"demo/x.so": "names-130.so"}), "sm_75 sm_90 sm_100 compute_100")
    assert rules(result) == {"planned-ptx-missing"}
    assert "compute_100 was planned" in found(result, "planned-ptx-missing").message


def test_ptx_that_nobody_planned(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/libplain.so": "plain-130.so"})
    result = judge(path, "sm_80 sm_90")
    assert rules(result) == {"ptx-not-planned"}
    assert found(result, "ptx-not-planned").fix.endswith('[gate] allow = ["libplain.so:compute_90"]')


@pytest.mark.parametrize(
    "word", ["compute_90", "compute_*", "libplain.so:compute_90", "demo/*:compute_9?", "*:compute_90"]
)
def test_what_may_stay_is_listed_with_the_word_that_lets_it(tmp_path: Path, word: str) -> None:
    result = judge(wheel(tmp_path, {"demo/libplain.so": "plain-130.so"}), "sm_80 sm_90", allow=(word,))
    assert result.succeeded
    (listed,) = result.listed
    assert (listed.library, listed.archs, listed.containers) == ("demo/libplain.so", ("compute_90",), 1)
    assert listed.origin == f"allowed by {word}"
    assert rules(result, "note") == set()


@pytest.mark.parametrize("word", ["sm_90", "libother.so:compute_90", "compute_9", "demo:compute_90"])
def test_words_that_name_something_else_let_nothing_through(tmp_path: Path, word: str) -> None:
    result = judge(wheel(tmp_path, {"demo/libplain.so": "plain-130.so"}), "sm_80 sm_90", allow=(word,))
    assert rules(result) == {"ptx-not-planned"}
    assert repr(word) in found(result, "allow-without-effect").message


def test_a_library_that_was_only_taken_along(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/libown.so": "plain-130.so", "demo/libold.so": "plain-124.so"})
    plan = "sm_80 sm_90 compute_90"
    assert not judge(path, plan, allow=("libold.so:sm_*",)).succeeded
    result = judge(path, plan, allow=("libold.so:*",))
    assert rules(result) == set()
    assert {each.library for each in result.listed} == {"demo/libold.so"}
    assert "allow-without-effect" not in rules(result, "note")
    # It does not stand for what the build was to make.
    alone = judge(wheel(tmp_path, {"demo/libold.so": "plain-124.so"}), plan, allow=("libold.so:*",))
    assert rules(alone) == {"built-without-device-code"}


def test_the_gate_switched_off_tells_and_stops_nothing(tmp_path: Path) -> None:
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-130.so"}), "sm_75", enabled=False)
    assert "planned-architecture-missing" in rules(result)
    assert result.succeeded


def test_a_wheel_without_device_code(tmp_path: Path) -> None:
    none = judge(wheel(tmp_path, {"demo/__init__.py": b""}), "sm_90")
    assert rules(none) == {"built-without-device-code"}
    assert found(none, "built-without-device-code").evidence == ("it has no library",)
    host = judge(wheel(tmp_path, {"demo/x.so": "amd.so"}), "sm_90")
    assert found(host, "built-without-device-code").evidence == ("1 library was read",)


@pytest.mark.parametrize("file", ["plain-134.so", "plain-124.so"])
def test_code_of_another_toolkit(tmp_path: Path, file: str) -> None:
    result = judge(wheel(tmp_path, {"demo/x.so": file}), "sm_90", allow=("*",))
    finding = found(result, "compiled-by-other-cuda")
    other = f"{file[6:8]}.{file[8]}"
    assert finding.message == f"demo/x.so: compiled by CUDA {other}, but CUDA 13.0 was planned: the wrong nvcc was used"
    assert not judge(wheel(tmp_path, {"demo/x.so": file}), "sm_90", cuda=other, allow=("*",)).findings[1:]


def test_ptx_alone_tells_its_toolkit_by_its_isa(tmp_path: Path) -> None:
    result = judge(wheel(tmp_path, {"demo/x.so": "ptx-130.so"}), "compute_75 compute_90", cuda="13.4")
    assert found(result, "compiled-by-other-cuda").message.startswith(
        "demo/x.so: PTX of ISA 9.0, as CUDA 13.0 writes it"
    )


def test_one_container_of_another_toolkit_among_many(tmp_path: Path) -> None:
    """The smallest cubin of a library tells nothing of the others."""
    own = build.container(build.entry(build.CUBIN, 90, build.cubin(KERNEL, release="13.0")))
    other = build.container(build.entry(build.CUBIN, 90, build.cubin(KERNEL | {"much": (8, 0, 0)}, release="13.4")))
    path = wheel(tmp_path, {"demo/x.so": build.library(own, own, other, own).build()})
    finding = found(judge(path, "sm_90"), "compiled-by-other-cuda")
    assert [each.split(" (")[0] for each in finding.evidence] == ["container 3 of 4"]


@pytest.mark.parametrize(
    ("needed", "cuda", "told"),
    [
        ("libcudart.so.12", "13.0", "CUDA 12's"),
        ("libcublas.so.13", "12.4", "CUDA 13's"),
        ("libcusolver.so.11", "13.0", "CUDA 11 or 12's"),
    ],
)
def test_libraries_of_another_major(tmp_path: Path, needed: str, cuda: str, told: str) -> None:
    path = wheel(tmp_path, {"demo/x.so": build.dynamic(needed=("libc.so.6", needed)).build()})
    finding = found(judge(path, "sm_90", cuda=cuda), "linked-with-other-cuda")
    assert finding.message.startswith(f"demo/x.so needs {needed}, which is {told}")


@pytest.mark.parametrize(
    ("needed", "cuda"),
    [
        ("libcudart.so.13", "13.4"),
        ("libcusolver.so.11", "12.4"),
        ("libtorch_cuda.so", "13.0"),
        ("libcuda.so.1", "13.0"),
    ],
)
def test_libraries_of_the_planned_major(tmp_path: Path, needed: str, cuda: str) -> None:
    path = wheel(tmp_path, {"demo/x.so": build.dynamic(needed=(needed,)).build()})
    assert "linked-with-other-cuda" not in rules(judge(path, "sm_90", cuda=cuda))


def test_debug_code_unless_it_is_wanted(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/x.so": "debug-130.so"})
    assert rules(judge(path, "sm_90 compute_90")) == {"debug-code-built"}
    for word in ("debug", "x.so:debug"):
        result = judge(path, "sm_90 compute_90", allow=(word,))
        assert result.succeeded
        assert result.findings == ()


def test_a_device_link_for_another_list_than_the_objects(tmp_path: Path) -> None:
    """nvcc -shared without -gencode: it links for its own default, and nothing is in the result."""
    empty = build.container(build.entry(build.CUBIN, 75, build.cubin({}, sm=75)))
    objects = build.container(build.entry(build.CUBIN, 90, build.cubin(KERNEL)))
    file = build.library(empty, relocatable=objects)
    segment = next(each for each in file.sections if each.name == ".nvFatBinSegment")
    segment.data = build.wrapper(version=2)
    result = judge(wheel(tmp_path, {"demo/x.so": file.build()}), "sm_90")
    assert rules(result) == {"planned-architecture-missing", "architecture-not-planned"}
    message = found(result, "planned-architecture-missing").message
    assert message.endswith(
        "sm_90 was planned but is missing from 1 of 2 containers: "
        "the device link used another architecture list than the objects"
    )


def test_the_empty_device_link_of_a_plain_library_is_no_fault(tmp_path: Path) -> None:
    empty = build.container(build.entry(build.CUBIN, 75, build.cubin({}, sm=75)))
    code = build.container(build.entry(build.CUBIN, 90, build.cubin(KERNEL)))
    file = build.library(empty, code)
    segment = next(each for each in file.sections if each.name == ".nvFatBinSegment")
    segment.data = build.wrapper(version=2) + build.wrapper(version=1)
    result = judge(wheel(tmp_path, {"demo/x.so": file.build()}), "sm_90")
    assert result.succeeded
    assert [each.origin for each in result.listed] == ["an empty device link"]
    # The same with a kernel in it is code like any other.
    linked = build.container(build.entry(build.CUBIN, 75, build.cubin(KERNEL, sm=75)))
    file = build.library(linked, code)
    segment = next(each for each in file.sections if each.name == ".nvFatBinSegment")
    segment.data = build.wrapper(version=2) + build.wrapper(version=1)
    assert not judge(wheel(tmp_path, {"demo/x.so": file.build()}), "sm_90").succeeded


def test_a_source_file_without_kernels_lacks_nothing(tmp_path: Path) -> None:
    file = build.library(
        build.container(build.entry(build.CUBIN, 75, build.cubin({}, sm=75))),
        build.container(build.entry(build.CUBIN, 90, build.cubin(KERNEL))),
    )
    result = judge(wheel(tmp_path, {"demo/x.so": file.build()}), "sm_90")
    assert result.succeeded
    assert [each.origin for each in result.listed] == ["a source file without kernels"]


def test_an_empty_container_lacks_everything(tmp_path: Path) -> None:
    result = judge(wheel(tmp_path, {"demo/x.so": build.library(build.container()).build()}), "sm_90")
    assert rules(result) == {"built-without-device-code", "planned-architecture-missing"}


def test_loose_cubins_hold_the_plan_together(tmp_path: Path) -> None:
    files = {f"demo/k{sm}.cubin": build.cubin(KERNEL, sm=sm) for sm in (80, 90)}
    path = wheel(tmp_path, dict(files))
    assert judge(path, "sm_80 sm_90").succeeded
    assert found(judge(path, "sm_80 sm_90 sm_100"), "planned-architecture-missing").message == "no cubin for sm_100"
    extra = found(judge(path, "sm_80"), "architecture-not-planned")
    assert extra.message == "demo/k90.cubin: sm_90, not planned"


def test_a_survey_without_containers_is_made_again(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/x.so": "plain-130.so"})
    wanted = GateRequest(archs=(Arch.parse("sm_75"),), ptx=(), cuda="13.0")
    assert not gate.examine(survey(path), wanted).succeeded


@pytest.mark.parametrize("file", sorted(each.name for each in BIN.iterdir() if each.is_file()))
def test_every_binary_is_judged_without_a_crash(tmp_path: Path, file: str) -> None:
    result = judge(wheel(tmp_path, {f"demo/{file}": file}), "sm_42 compute_42")  # such as nobody ever made
    assert not result.succeeded
    assert all(each.message and each.rule for each in result.findings)


def test_of_thousands_of_containers_only_those_shown_are_put_into_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def demangled(names: object) -> dict[str, str]:
        asked.append(names)
        return {}

    monkeypatch.setattr(gate_units, "demangled", demangled)
    one = build.container(build.entry(build.CUBIN, 90, build.cubin({"_Z4workv": (8, 0, 0)})))
    result = judge(wheel(tmp_path, {"demo/x.so": build.library(*[one] * 500).build()}), "sm_80")
    assert found(result, "architecture-not-planned").evidence[-1] == "and 495 more"
    assert len(asked) <= 10


HARD_CODED = (
    "-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90] -c src/add.cu -o add.o"
)


def test_the_reason_is_a_list_of_the_build_system(tmp_path: Path) -> None:
    path = wheel(tmp_path, {"demo/x.so": "plain-130.so"})
    calls = record(call(1, "--version"), call(2, HARD_CODED), call(3, "-arch=sm_80 -E src/add.cu"))
    result = judge(path, "sm_90", record=calls, toolkit_root="/kit")
    finding = found(result, "architecture-not-planned")
    assert "the build system passed it to nvcc itself" in finding.message
    assert finding.evidence[-1] == "call 2 (nvcc add.cu) asks for sm_80"
    assert "force-archs = true" in finding.fix
    assert found(result, "ptx-not-planned").evidence[-1] == "call 2 (nvcc add.cu) asks for compute_90"
    lacking = found(judge(path, "sm_80 sm_90 sm_100 compute_90", record=calls), "planned-architecture-missing")
    assert lacking.evidence[-1] == "call 2 (nvcc add.cu) asks for sm_80 sm_90 compute_90"


def test_the_reason_is_in_a_response_file(tmp_path: Path) -> None:
    from cuwheel.building.recording.calls import ResponseFile

    asked = ResponseFile(path="flags.rsp", text='--generate-code=arch=compute_80,code=sm_80 "-I/a b"')
    calls = record(call(7, "-c add.cu @flags.rsp", response_files=(asked,)))
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-130.so"}), "sm_90 compute_90", record=calls)
    assert found(result, "architecture-not-planned").evidence[-1] == "call 7 (nvcc add.cu) asks for sm_80"


def test_the_reason_is_that_nvcc_was_given_no_list(tmp_path: Path) -> None:
    calls = record(*(call(number, f"-c {number}.cu -o {number}.o") for number in range(1, 6)))
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-130.so"}), "sm_90 compute_90", record=calls)
    finding = found(result, "architecture-not-planned")
    assert "used its default" in finding.message
    assert finding.evidence[-2:] == ("call 3 (nvcc 3.cu)", "and 2 more calls")


def test_the_words_that_count_are_those_that_nvcc_got(tmp_path: Path) -> None:
    """With force-archs the caller's list is not what was compiled."""
    forced = call(1, HARD_CODED, ran=("-gencode", "arch=compute_90,code=sm_90", "-c", "add.cu"))
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-130.so"}), "sm_90 compute_90", record=record(forced))
    finding = found(result, "architecture-not-planned")
    assert "build system" not in finding.message
    assert finding.fix == 'to accept it: [gate] allow = ["x.so:sm_80"]'


def test_the_reason_is_a_wrong_nvcc(tmp_path: Path) -> None:
    strangers = [call(number, "-c a.cu", program="/usr/bin/nvcc") for number in (4, 5)]
    calls = record(call(1, "-c b.cu"), *strangers)
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-134.so"}), "sm_90", record=calls, toolkit_root="/kit")
    told = "/usr/bin/nvcc was called 2 times, first in call 4"
    assert told in found(result, "compiled-by-other-cuda").evidence
    finding = found(result, "architecture-not-planned")
    assert "the build called another nvcc than the planned one" in finding.message
    assert told in finding.evidence
    assert "/kit/bin/nvcc" in finding.fix


def test_another_nvcc_of_the_same_version_is_told_and_stops_nothing(tmp_path: Path) -> None:
    calls = record(call(1, "-c b.cu"), call(2, "--version", program="/opt/nvcc"), call(4, "-c a.cu", program="/x/nvcc"))
    made = wheel(tmp_path, {"demo/x.so": "plain-130.so"})
    result = judge(made, "sm_80 sm_90 compute_90", record=calls, toolkit_root="/kit")
    assert result.succeeded
    finding = found(result, "other-nvcc-called")
    assert finding.evidence == ("/x/nvcc was called once, first in call 4",)
    assert "/kit/bin/nvcc" in finding.fix


def test_ptx_alone_of_another_nvcc_is_refused(tmp_path: Path) -> None:
    """Its ISA is the planned one's, which other releases write too: nothing shows that it is of the planned CUDA."""
    calls = record(call(1, "-c a.cu", program="/usr/bin/nvcc"))
    path = wheel(tmp_path, {"demo/x.so": "ptx-130.so"})
    result = judge(path, "compute_75 compute_90", toolkit_root="/opt/cuda", record=calls)
    assert found(result, "other-nvcc-called").severity == "error"
    assert "of demo/x.so only PTX tells" in found(result, "other-nvcc-called").message
    assert not result.succeeded


def test_calls_that_compile_nothing_are_no_strangers(tmp_path: Path) -> None:
    calls = record(call(1, "-c b.cu"), call(2, "--version", program="/opt/nvcc"))
    made = wheel(tmp_path, {"demo/x.so": "plain-130.so"})
    result = judge(made, "sm_80 sm_90 compute_90", record=calls, toolkit_root="/kit")
    assert not [each for each in result.findings if each.rule == "other-nvcc-called"]


@systems.LINUX_PATHS
@pytest.mark.parametrize("program", ["/kit/bin/nvcc", "/job/record/shadow/bin/nvcc"])
def test_the_toolkits_own_nvcc_is_no_stranger(tmp_path: Path, program: str) -> None:
    calls = record(call(1, "-arch=sm_80 -c b.cu", program=program))
    result = judge(wheel(tmp_path, {"demo/x.so": "plain-134.so"}), "sm_90", record=calls, toolkit_root="/kit")
    finding = found(result, "compiled-by-other-cuda")
    assert "the wrong nvcc" not in finding.message
    assert not any("was called" in each for each in finding.evidence)
