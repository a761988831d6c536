"""Whole packages on machines: what is loaded, what must hold, what the verdict is; real teams' cases among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.device_code.contents import PythonLoad, Survey
from cuwheel.facts import packages
from cuwheel.machine.fleet import machines_named
from cuwheel.verdicts.judge import Judge, judge, judge_all
from cuwheel.verdicts.library_sources import resolve_needed, surroundings
from cuwheel.verdicts.loading import loading
from cuwheel.verdicts.verdict import ORDER, best_outcome, worst_outcome
from cuwheel.wheel.requirements import parse
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.device_code.libraries import Library


def _bitsandbytes(*cudas: str, code: str = "sm_89 sm_90", **fields: Any) -> Survey:
    libraries = [
        library(
            linked=(code,),
            objects=(code,),
            path=f"bitsandbytes/libbitsandbytes_cuda{cuda.replace('.', '')}.so",
            cuda=int(cuda.split(".")[0]),
            needed=(f"libcublas.so.{cuda.split('.')[0]}", "libc.so.6"),
            **fields,
        )
        for cuda in cudas
    ]
    cpu = library(path="bitsandbytes/libbitsandbytes_cpu.so", runtime=False)
    return survey(*libraries, cpu, name="bitsandbytes", requires=("torch<3,>=2.2",))


@pytest.mark.parametrize(
    ("torch", "loaded"),
    [("12.6", "126"), ("12.7", "126"), ("12.9", "128"), ("12.0", "121"), ("13.1", "130"), ("11.8", "118")],
)
def test_one_library_a_cuda_version(torch: str, loaded: str) -> None:
    told = loading(_bitsandbytes("11.8", "12.1", "12.6", "12.8", "13.0"), machine(torch_cuda=torch))
    assert told.always == (f"bitsandbytes/libbitsandbytes_cuda{loaded}.so",)


def test_a_variable_overrides_and_then_the_file_must_be_there() -> None:
    there = _bitsandbytes("12.1", "12.6")
    told = loading(there, machine(torch_cuda="12.6", loads=("BNB_CUDA_VERSION=121",)))
    assert told.always == ("bitsandbytes/libbitsandbytes_cuda121.so",)
    verdict = judge(there, machine(torch_cuda="12.6", loads=("BNB_CUDA_VERSION=122",)))
    assert verdict.outcome == "fails"
    assert verdict.predicted_error is None
    (finding,) = verdict.findings
    assert "No compatible CUDA binary found" in finding.message
    assert "BNB_CUDA_VERSION=122" in finding.message


def test_no_library_of_another_major_is_loaded() -> None:
    verdict = judge(_bitsandbytes("11.8", "12.6"), machine(torch_cuda="13.0"))
    assert (verdict.outcome, [each.rule for each in verdict.findings]) == ("fails", ["no-library-to-load"])


def test_case_2_a_wheel_for_two_gpus_runs_there_and_nowhere_else() -> None:
    wheel = _bitsandbytes("12.8")
    machines = machines_named(["h100, l40, t4, a100, b200, 'rtx 5090'".replace("'", "")])
    outcomes = {each.name: judge(wheel, each) for each in machines}
    assert {name: verdict.outcome for name, verdict in outcomes.items()} == {
        "h100": "native",
        "l40": "native",
        "t4": "fails",
        "a100": "fails",
        "b200": "fails",
        "rtx 5090": "fails",
    }
    assert {verdict.predicted_error.code for verdict in outcomes.values() if verdict.predicted_error} == {500}


def _server_build_on_orin(**known: Any) -> Verdict:
    wheel = _bitsandbytes("11.8", "12.6", "13.0", code="sm_75 sm_80 sm_90", platform="sbsa", machine="aarch64")
    (orin,) = machines_named(["orin"], None)
    return judge(wheel, machine("8.7", gpu=orin.gpu, tegra=orin.tegra, cpu=orin.cpu, os=orin.os, **known))


def test_what_of_a_server_build_on_an_orin_is_not_known_is_a_condition_or_unknown() -> None:
    """Only the library for CUDA 13 could run there, with an L4T that has joined the one distribution."""
    choice, jetpack = "torch is built for CUDA 13.0 (fails with 11.8, 12.6)", "JetPack 7.2 (L4T 39.2) or later"
    untold = _server_build_on_orin()
    assert untold.outcome == "compatible"
    assert untold.conditions[0] == choice
    assert any(each.startswith(jetpack) for each in untold.conditions)
    older = _server_build_on_orin(l4t="36.4.3")
    assert older.outcome == "unknown", "two libraries fail, but the third may run"
    assert older.conditions[0] == choice
    assert older.predicted_error is None
    joined = _server_build_on_orin(l4t="39.2")
    assert joined.outcome == "compatible"
    assert joined.conditions[-1] == (
        "what CUDA 13.0 built for servers runs on this Jetson, which joined them with 13.2 (not confirmed)"
    )
    assert not any(jetpack in each for each in joined.conditions)


def test_case_3_a_server_build_on_an_orin() -> None:
    verdict = _server_build_on_orin(torch_cuda="12.6")
    assert verdict.outcome == "fails"
    assert verdict.predicted_error
    assert (verdict.predicted_error.code, verdict.predicted_error.name) == (500, "cudaErrorSymbolNotFound")
    reason = next(each for each in verdict.findings if each.severity == "error")
    assert reason.rule == "sbsa-on-l4t"
    assert "the architecture list is not the problem" in reason.message
    loaded = [each for each in verdict.libraries if each.loaded is not False and each.outcome == "fails"]
    assert loaded
    assert all(each.containers.compatible == 1 for each in loaded)


def test_a_framework_that_is_not_known_makes_the_choice_a_condition() -> None:
    wheel = _bitsandbytes("11.8", "12.8", code="sm_60")
    wheel = survey(
        *(each for each in wheel.libraries if "118" in each.path),
        *(each for each in _bitsandbytes("12.8", code="sm_70").libraries if "128" in each.path),
        name="bitsandbytes",
    )
    verdict = judge(wheel, machine("6.1"))
    assert verdict.outcome == "compatible"
    assert "torch is built for CUDA 11.8 (fails with 12.8)" in verdict.conditions
    assert [(each.severity, each.message[:27]) for each in verdict.findings] == [
        ("warning", "with torch for CUDA 12.8: i")
    ]
    assert {each.loaded for each in verdict.libraries} == {None}


def test_one_library_is_left_and_is_for_one_cuda_all_the_same() -> None:
    """As `slim --cuda 12.8` leaves it: with another torch it has no library to load."""
    verdict = judge(_bitsandbytes("12.8"), machine())
    assert verdict.conditions == ("torch is built for CUDA 12.8", "driver 525.60.13 or later (CUDA 12)")
    assert verdict.requires[0].parts.cuda == ("12.8",)
    assert judge(_bitsandbytes("12.8"), machine(torch_cuda="13.0")).outcome == "fails"


@pytest.mark.parametrize(
    ("names", "format_"),
    [(("torch_cuda.dll", "cudart64_12.dll"), "pe"), (("libtorch_cuda.so", "libcudart.so.12"), "elf")],
)
def test_an_extension_asks_for_the_cuda_of_its_torch(names: tuple[str, ...], format_: Any) -> None:
    """As xformers, whether or not it requires torch: `--torch-cuda 13.0` fails."""
    for requires in ((), ("torch>=2.8",)):
        wheel = survey(library("sm_90", needed=names, format=format_), requires=requires)
        told = judge(wheel, machine()).requires
        assert "torch is built for CUDA 12" in [each.text for each in told]
        assert not [each for each in told if each.id == "library-found"]
        assert judge(wheel, machine(torch_cuda="13.0")).outcome == "fails"
        known = judge(wheel, machine(torch_cuda="12.8")).requires
        assert "torch-cuda" not in [each.id for each in known]


def test_what_serves_the_gpu_no_better_is_not_offered_in_its_place() -> None:
    """As `set BNB_CUDA_VERSION=124` on an A100, of a library that has nothing for it either."""

    def offered(code: str) -> set[str]:
        wheel = _bitsandbytes("12.4", code=code)
        old = survey(*wheel.libraries, name="bitsandbytes", version="0.45.0", requires=("torch<3,>=2.2",))
        (finding,) = [each for each in judge(old, machine(torch_cuda="12.8")).findings if each.severity == "error"]
        return {change for fix in finding.fixes for change in fix.changes}

    assert {"variable", "file", "release"} == offered("sm_89 sm_90")
    assert offered("sm_100") == {"release"}


def test_libraries_that_must_be_found_are_named_once_and_together() -> None:
    wheel = survey(
        library("sm_90", needed=("liba.so.1", "libb.so.2")), library("sm_90", path="x/b.so", needed=("libb.so.2",))
    )
    assert "liba.so.1, libb.so.2 can be found" in judge(wheel, machine()).conditions


def test_conditions_that_differ_by_candidate_say_so() -> None:
    verdict = judge(_bitsandbytes("12.8", "13.0"), machine())
    assert verdict.outcome == "native"
    assert verdict.conditions == (
        "with torch for CUDA 12.8: driver 525.60.13 or later (CUDA 12)",
        "with torch for CUDA 13.0: driver 580 or later (CUDA 13)",
    )


def test_folders_for_each_major() -> None:
    wheel = survey(
        library("sm_90", path="jaxmg/cu12/libjaxmg.so"), library("sm_80", path="jaxmg/cu13/libjaxmg.so"), name="jaxmg"
    )
    assert judge(wheel, machine(jax_cuda="12")).outcome == "native"
    assert judge(wheel, machine(jax_cuda="13")).outcome == "fails"
    assert judge(wheel, machine()).outcome == "native"


def test_an_optional_library_leaves_the_rest_working() -> None:
    wheel = survey(
        library("sm_75", path="torch/lib/libtorch_cuda.so"),
        library("sm_80", path="torch/lib/libtorch_cuda_linalg.so"),
        name="torch",
        version="2.11.0",
    )
    verdict = judge(wheel, machine("7.5", driver="580.65.06"))
    assert verdict.outcome == "partial"
    assert verdict.predicted_error
    assert [each.severity for each in verdict.findings] == ["warning"]


def _side_by_side(*libraries: Library, imported: tuple[str, ...] = ()) -> Survey:
    return replace(survey(*libraries), imported=imported)


def test_what_import_loads_together_must_serve_together() -> None:
    first, second = library("sm_80 sm_90"), library("sm_80", path="pkg/libother.so")
    both = _side_by_side(first, second, imported=(first.path, second.path))
    verdict = judge(both, machine(driver="580.65.06"))
    assert verdict.outcome == "fails"
    assert [each.severity for each in verdict.findings] == ["error"]
    assert [each.loaded for each in verdict.libraries] == [True, True]


def test_what_a_linked_library_lacks_only_those_miss_that_call_it() -> None:
    first = library("sm_80 sm_90", needed=("libother.so.1",))
    second = library("sm_80", path="pkg/libother.so", soname="libother.so.1")
    linked = _side_by_side(first, second, imported=(first.path,))
    verdict = judge(linked, machine())
    assert (verdict.outcome, verdict.main) == ("partial", "native")
    assert verdict.summary == "runs; an optional part does not: libother.so"
    glue = _side_by_side(
        library(needed=("libother.so.1",)), second, library("sm_90", path="pkg/x.so"), imported=(first.path,)
    )
    assert judge(glue, machine()).outcome == "fails", "what imports it has no code: it is what the package is for"
    missing = _side_by_side(first, replace(second, needed=("libcublas.so.12",)), imported=(first.path,))
    assert judge(missing, machine(libraries=(), os="linux")).outcome == "fails", "it must still be there"
    assert (
        judge(_side_by_side(first, replace(second, soname=None), imported=(first.path,)), machine()).outcome
        == "partial"
    )


def test_a_torch_whose_cusparselt_lacks_the_gpu_runs_in_part() -> None:
    """As torch 2.2.2 on a T4 and 2.5.1 on a V100, where it was said to fail."""
    cuda = library("sm_75 sm_80", path="torch/lib/libtorch_cuda.so", needed=("libcusparseLt-f8b4a9fb.so.0",))
    path = "torch/lib/libcusparseLt-f8b4a9fb.so.0"
    lacking = replace(
        survey(cuda, library("sm_80", path=path), name="torch", version="2.2.2"), imported=("torch/_C.so",)
    )
    verdict = judge(lacking, machine("7.5"))
    assert (verdict.outcome, verdict.main) == ("partial", "native")
    assert verdict.summary == f"runs; an optional part does not: {path[10:]} (semi-structured sparsity)"
    fixes = [each.fix for each in verdict.findings if each.rule == "no-code-for-gpu"]
    assert [each.rpartition(": ")[2] for each in fixes] == ["NVIDIA alone builds this library"]
    compiled = survey(cuda, library("compute_52@8.5", path=path), name="torch", version="2.2.2")
    verdict = judge(compiled, machine("7.5"))
    assert verdict.outcome == "native", "how a linked library runs does not matter beside the rest"
    assert any(each.startswith("for semi-structured sparsity: driver 555") for each in verdict.conditions)
    fails = survey(library("sm_80", path=cuda.path), library("sm_80", path=path), name="torch", version="2.2.2")
    assert judge(fails, machine("7.5")).outcome == "fails", "nothing else runs"


def test_what_torch_links_but_seldom_calls_differs_by_release() -> None:
    """From 2.9 on libtorch_nvshmem.so must be there, and what its code lacks only symmetric memory misses."""
    path = "torch/lib/libtorch_nvshmem.so"
    cuda = library("sm_75 sm_90", path="torch/lib/libtorch_cuda.so", needed=("libtorch_nvshmem.so",))
    linalg = library("sm_90", path="torch/lib/libtorch_cuda_linalg.so")
    verdict = judge(survey(cuda, library("sm_90", path=path), name="torch", version="2.11.0"), machine("7.5"))
    assert verdict.summary == f"runs; an optional part does not: {path[10:]} (symmetric memory over NVSHMEM)"
    detectron = library("sm_90", path="torch/lib/libcaffe2_detectron_ops_gpu.so")
    verdict = judge(survey(cuda, detectron, name="torch", version="1.10.2"), machine("7.5"))
    assert (verdict.outcome, verdict.main) == ("partial", "native")
    for release in ("1.12.1", "2.0.1", "2.5.1", "2.6.0", "2.11.0"):
        verdict = judge(survey(cuda, linalg, name="torch", version=release), machine("7.5"))
        assert verdict.summary == "runs; an optional part does not: libtorch_cuda_linalg.so (torch.linalg)"
    lost = library("sm_90", path=path, needed=("libnvshmem_host.so.3",))
    verdict = judge(
        survey(cuda, lost, name="torch", version="2.11.0"),
        machine("7.5", libraries=()),
    )
    assert verdict.outcome == "fails", "it is linked, so what it needs stops the import"


def test_what_fails_in_part_and_what_is_optional_is_told_beside_the_main_part_that_fails() -> None:
    """As vllm 0.11.0 on a T4: libraries of one part are named together, and none is left out."""
    paths = (
        "_C",
        "_flashmla_C",
        "_flashmla_extension_C",
        "_moe_C",
        "vllm_flash_attn/_vllm_fa2_C",
        "vllm_flash_attn/_vllm_fa3_C",
    )
    codes = ("sm_75 sm_80", "sm_90", "sm_90", "sm_75|sm_80", "sm_80", "sm_90")
    libraries = [
        library(*code.split("|"), path=f"vllm/{path}.abi3.so") for path, code in zip(paths, codes, strict=True)
    ]
    verdict = judge(survey(*libraries, name="vllm", version="0.11.0"), machine("7.5"))
    assert (verdict.outcome, verdict.main) == ("partial", "fails")
    assert verdict.summary == (
        "starts, but its main part fails: _vllm_fa2_C.abi3.so (attention: FlashAttention 2); so do 2 optional parts: "
        "_flashmla_C.abi3.so and _flashmla_extension_C.abi3.so (FlashMLA, attention of DeepSeek's models), "
        "_vllm_fa3_C.abi3.so (FlashAttention 3, which Hopper takes instead of 2); "
        "some kernels of _moe_C.abi3.so (mixtures of experts) have no code for this GPU"
    )


def test_of_two_libraries_by_cuda_torch_chooses_one() -> None:
    """As torch_memory_saver: without device code, but a driver of CUDA 12 does not run the one for CUDA 13."""
    names = ("hook_mode_torch.abi3.so", "hook_mode_torch_cu12.abi3.so", "hook_mode_torch_cu13.abi3.so")
    wheel = survey(*(library(path=each, cuda=13 if "13" in each else 12) for each in names), name="torch_memory_saver")
    old = machine("8.0", driver="535.104.05")
    assert loading(wheel, replace(old, torch_cuda="12.8")).always == names[1:2]
    assert judge(wheel, replace(old, torch_cuda="12.8")).outcome == "unknown"
    assert judge(wheel, replace(old, torch_cuda="13.0")).outcome == "fails"
    assert "torch is built for CUDA 12 (fails with 13)" in judge(wheel, old).conditions


def test_a_library_for_chosen_gpus_leaves_the_rest_to_what_it_is_linked_with() -> None:
    """As cuequivariance_ops_torch, whose general kernels are in the libcue_ops.so of another package."""
    own = library("sm_90a", "sm_100a", needed=("libcue_ops.so",))
    verdict = judge(survey(own), machine("8.0"))
    assert verdict.outcome == "partial"
    assert verdict.summary == "runs if libcue_ops.so has code for this GPU: its own kernels are for others"
    assert "libcue_ops.so has code for this GPU" in verdict.conditions
    verdict = judge(survey(own), machine("9.0"))
    assert verdict.summary == "runs; kernels compiled for other GPUs alone do not: sm_100a (in .nv_fatbin)"
    assert [each.fix.partition(";")[0] for each in verdict.findings if each.rule == "code-for-gpu-in-part"] == [
        "none needed where it takes its kernels by the GPU"
    ]
    mixed = judge(survey(library("sm_90a", "sm_100a", "sm_80")), machine("9.0"))
    assert mixed.summary.startswith("runs, but not all of its kernels"), "code for 8.0 alone is nobody's choice"
    assert judge(survey(replace(own, needed=("libtorch.so", "libcublas.so.12"))), machine("8.0")).outcome == "fails"
    assert judge(survey(library("sm_90", needed=("libcue_ops.so",))), machine("8.0")).outcome == "fails"


def test_loose_cubins_for_other_gpus_take_nothing_away() -> None:
    """As flashinfer-cubin, which has thousands for each GPU."""
    files = [
        library(f"sm_{arch}", path=f"pkg/{index}.cubin", format="cubin")
        for index, arch in enumerate(("100f", "103a", "103a"))
    ]
    assert judge(survey(*files), machine("10.0")).outcome == "native"
    assert judge(survey(*files), machine("9.0")).outcome == "fails"


@pytest.mark.parametrize(
    ("code", "requires", "outcome"),
    [
        ("compute_80@8.8 lto_80", (), "jit"),  # as cudf's: LTO-IR is for a linker alone
        ("compute_80@8.8", ("numba-cuda[cu12]<0.31.0,>=0.22.2",), "jit"),
        ("compute_80@8.8", ('numba-cuda; extra == "test"',), "fails"),
        ("compute_80@8.8", ("numba-cudart",), "fails"),
        ("compute_100@8.8 lto_100", (), "fails"),
    ],
)
def test_what_goes_through_nvjitlink_is_not_held_against_the_driver(
    code: str, requires: tuple[str, ...], outcome: str
) -> None:
    shim = library(code, path="pkg/shim.fatbin", format="fatbin", runtime=False)
    on = machine("9.0", driver="535.104.05", jit="disabled")
    verdict = judge(survey(shim, requires=requires), on)
    assert verdict.outcome == outcome
    by_linker = "nvJitLink of CUDA 12.9 or later, which links its PTX (ISA 8.8)"
    assert (by_linker in verdict.conditions) == (outcome == "jit")
    assert judge(survey(shim, name=None), on).outcome == "fails", "what loads a bare file is not known"


def test_what_a_bundled_profiler_holds_decides_nothing() -> None:
    """As triton, which compiles its kernels and brings CUPTI."""
    cupti = library("sm_90", path="triton/lib/cupti/libcupti.so", soname="libcupti.so.12")
    for capability in ("9.0", "12.0"):
        verdict = judge(survey(cupti, library(path="triton/libtriton.so"), name="triton"), machine(capability))
        (finding,) = [each for each in verdict.findings if each.rule == "no-device-code"]
        assert (verdict.outcome, "only in libraries of a profiler" in finding.message) == ("unknown", True)
    assert judge(survey(cupti, name="nvidia-cuda-cupti-cu12"), machine("9.0")).outcome == "native"
    assert judge(survey(cupti, library("sm_90"), name="pkg"), machine("12.0")).predicted_error is not None


def test_cubins_that_a_library_loads_itself_do_not_say_how_it_runs() -> None:
    """As onnxruntime, native on a T4 but for a cubin for 7.0 among its data."""
    plain = library("sm_75", "sm_70")
    own = replace(plain.containers[1], section=".rodata")
    wrappers = plain.registration.wrappers[:1]
    stray = replace(
        plain, containers=(plain.containers[0], own), registration=replace(plain.registration, wrappers=wrappers)
    )
    assert judge(survey(stray), machine("7.5")).outcome == "native"
    assert judge(survey(plain), machine("7.5")).outcome == "compatible"


@pytest.mark.parametrize("imported", [(), ("pkg/libpkg.so",)])
def test_what_may_be_opened_on_demand_leaves_the_rest_working(imported: tuple[str, ...]) -> None:
    wheel = _side_by_side(library("sm_90"), library("sm_100f", path="pkg/_other.abi3.so"), imported=imported)
    verdict = judge(wheel, machine(driver="580.65.06"))
    assert verdict.outcome == "partial"
    assert verdict.predicted_error
    assert verdict.predicted_error.code == 209
    (finding,) = verdict.findings
    assert (finding.rule, finding.severity) == ("no-code-for-gpu", "warning")
    assert finding.evidence[0].startswith("pkg/_other.abi3.so: ")
    assert [(each.loaded, each.optional) for each in verdict.libraries][1] == (None, True)
    # Where none of them has anything, it does not matter which is opened.
    nowhere = judge(wheel, machine("8.0", driver="580.65.06"))
    assert nowhere.outcome == "fails"
    assert {each.severity for each in nowhere.findings} == {"error"}


def test_libraries_that_no_gpu_runs_together_are_not_meant_to() -> None:
    wheel = _side_by_side(
        library("sm_90a"),
        library("sm_100f", path="pkg/_C100.so"),
        imported=("pkg/libpkg.so", "pkg/_C100.so"),
    )
    outcomes = [judge(wheel, machine(each)).outcome for each in ("8.0", "9.0", "10.0")]
    assert outcomes == ["fails", "partial", "partial"]


def test_of_libraries_for_one_gpu_each_the_right_one_is_opened() -> None:
    wheel = survey(*(library(f"sm_{sm}", path=f"pkg/sm{sm}/ops.abi3.so") for sm in (80, 90, 100)))
    assert [judge(wheel, machine(each)).outcome for each in ("7.5", "8.9", "9.0")] == ["fails", "compatible", "native"]
    assert judge(wheel, machine("9.0")).findings == ()
    others = survey(
        *(library("sm_80", path=f"pkg/{name}.so") for name in ("plasma90", "libsm", "sm")), library("sm_90")
    )
    assert judge(others, machine("9.0")).outcome == "partial"


def test_a_library_that_is_missing_something_stops_only_what_needs_it() -> None:
    plain, provider = library("sm_90"), library("sm_90", path="pkg/libtensor.so", needed=("libcublas.so.12",))
    here = machine(driver="580.65.06", libraries=(), os="linux")
    assert judge(_side_by_side(plain, provider, imported=(plain.path,)), here).outcome == "partial"
    assert judge(_side_by_side(plain, provider, imported=(plain.path, provider.path)), here).outcome == "fails"
    both = _side_by_side(replace(plain, needed=("libcublas.so.12",)), provider)
    assert judge(both, here).outcome == "fails"


def test_static_archives_and_programs_in_a_wheel_are_not_loaded() -> None:
    wheel = survey(library("sm_90"), library("sm_80", path="pkg/libdevice.a", type="relocatable", format="archive"))
    verdict = judge(wheel, machine(driver="580.65.06"))
    assert verdict.outcome == "native"
    assert [each.loaded for each in verdict.libraries] == [True, False]


def test_a_program_alone_is_judged() -> None:
    assert judge(survey(library("sm_80", type="executable"), name=None), machine(driver="580.65.06")).outcome == "fails"


def test_outcomes_in_order() -> None:
    assert worst_outcome(ORDER) == "fails"
    assert worst_outcome(()) == best_outcome(()) == "unknown"
    assert worst_outcome(("native", "unknown")) == "unknown"
    assert best_outcome(("unknown", "jit", "partial")) == "jit"
    assert best_outcome(("unknown", "fails")) == "unknown"
    assert worst_outcome(("unknown", "fails")) == "fails"


@pytest.mark.parametrize(
    ("needed", "fields", "known", "place"),
    [
        ("libhelper.so", {"runpath": ("$ORIGIN/../pkg.libs",)}, {}, "wheel"),
        ("libhelper.so", {"rpath": ("${ORIGIN}/../pkg.libs",)}, {}, "wheel"),
        ("libhelper.so", {}, {}, "loaded"),
        ("libstdc++.so.6", {}, {}, "system"),
        ("ld-linux-x86-64.so.2", {}, {}, "system"),
        ("libcuda.so.1", {}, {}, "driver"),
        ("libcublas.so.12", {}, {}, "unknown"),
        ("libcublas.so.12", {}, {"libraries": ("libcublas.so.12",)}, "environment"),
        ("libcublas.so.12", {}, {"libraries": ()}, "nowhere"),
        ("libcublas.so.12", {}, {"libraries": (), "toolkits": ("12.6",)}, "toolkit"),
        ("libcublas.so.12", {}, {"torch_cuda": "12.8"}, "framework"),
        ("libcublas.so.12", {}, {"torch_cuda": "13.0"}, "unknown"),
        ("libcusparse.so.12", {}, {"libraries": ()}, "required"),
        ("libtorch.so", {}, {}, "unknown"),
        ("libtorch.so", {}, {"torch": "2.11"}, "framework"),
        ("libtorch.so", {}, {"libraries": ()}, "nowhere"),
        ("libfrob.so.1", {}, {"libraries": ()}, "unknown"),
        ("KERNEL32.dll", {"format": "pe"}, {}, "system"),
        ("cublas64_12.dll", {"format": "pe"}, {"libraries": ()}, "nowhere"),
        ("cuBLAS64_12.DLL", {"format": "pe"}, {"libraries": ("cublas64_12.dll",)}, "environment"),
        ("CUFFT64_11.dll", {"format": "pe"}, {"libraries": ()}, "loaded"),
        ("LIBHELPER.SO", {}, {"libraries": ()}, "unknown"),
    ],
)
def test_where_needed_libraries_come_from(
    needed: str, fields: dict[str, Any], known: dict[str, Any], place: str
) -> None:
    wheel = survey(
        library("sm_90", path="pkg/libpkg.so", needed=(needed,), **fields),
        library(path="pkg.libs/libhelper.so", runtime=False),
        library(path="pkg.libs/cufft64_11.dll", runtime=False, format="pe"),
        requires=("nvidia-cusparse-cu12==12.5", 'nvidia-cublas-cu12; extra == "all"'),
    )
    (found,) = resolve_needed(wheel.libraries[0], surroundings(wheel, machine(**known)))
    assert found.place == place


def test_windows_does_not_tell_case_apart() -> None:
    """A module that an import loads, and the library that it is linked with."""
    code = [library("sm_90", path=f"pkg/{name}", format="pe") for name in ("Kernels.dll", "spare.dll")]
    module = library(path="pkg/own.cp311-win_amd64.pyd", needed=("KERNELS.DLL",), runtime=False, format="pe")
    wheel = replace(survey(*code, module), imported=(module.path,))
    assert loading(wheel, machine()).optional == {"pkg/spare.dll"}


def test_what_a_required_framework_brings() -> None:
    def place(needed: str, kind: str = "wheel", requires: str = "torch<3,>=2.2", **known: Any) -> str:
        wheel = replace(survey(library("sm_90", needed=(needed,)), requires=(requires,)), kind=kind)
        return resolve_needed(wheel.libraries[0], surroundings(wheel, machine(libraries=(), **known)))[0].place

    assert place("libcublas.so.12") == "required"
    assert place("libtorch.so") == "required"
    assert place("libcublas.so.12", kind="distribution") == "nowhere"
    assert place("libcublas.so.12", torch="2.11", torch_cuda="13.0") == "nowhere"
    assert place("libcublas.so.12", requires="jax==0.10.1") == "nowhere"
    # By its release, where it is pinned: 2.15 brings no cuRAND any more.
    assert place("libcurand.so.10", requires="torch (==2.14.0)") == "required"
    assert place("libcurand.so.10", requires="torch==2.15.0") == "nowhere"
    assert place("libcurand.so.10", requires="torch>=2") == "required"


def test_what_comes_with_a_framework() -> None:
    assert packages.framework_brings("torch", "cublasLt")
    assert packages.framework_brings("torch", "cudnn_adv")
    assert not packages.framework_brings("jax", "cusolverMp")
    wheel = survey(
        library("sm_90", path="jaxmg/cu12/x.so", needed=("libcublas.so.12", "libcusolverMp.so.0")), name="jaxmg"
    )
    assert "libcusolverMp.so.0 can be found" in judge(wheel, machine(driver="580.65.06")).conditions


def test_a_wheel_with_libraries_nobody_can_read_is_not_said_to_run() -> None:
    from cuwheel_core.support.finding import Finding

    broken = Finding(rule="library-unreadable", severity="error", message="it is cut short")
    wheel = replace(survey(library("sm_90")), findings=(broken,))
    verdict = judge(wheel, machine(driver="580.65.06"))
    assert broken in verdict.findings
    assert verdict.outcome == "unknown"
    assert judge(wheel, machine("6.1")).outcome == "fails"
    bare = judge(replace(wheel, libraries=()), machine())
    assert (bare.outcome, [each.rule for each in bare.findings]) == ("unknown", ["library-unreadable"])
    noted = replace(wheel, findings=(replace(broken, severity="note"),))
    assert judge(noted, machine(driver="580.65.06")).outcome == "native"


def test_a_finding_of_some_candidates_names_these_alone() -> None:
    verdict = judge(_bitsandbytes("11.8", "12.6", "13.0", "13.2", code="sm_90"), machine("9.0", driver="575.51.03"))
    assert verdict.outcome == "native"
    (floor,) = [each for each in verdict.findings if each.rule == "driver-below-cuda-floor"]
    assert floor.severity == "warning"
    assert floor.message.startswith("with torch for CUDA 13.0, 13.2: driver 575.51.03 is too old for CUDA 13")


def _loaded(path: str, *, guarded: bool, at_import: bool, file: str = "pkg/__init__.py") -> PythonLoad:
    return PythonLoad(path=path, file=file, guarded=guarded, at_import=at_import)


def test_a_library_that_is_imported_in_a_try_leaves_the_rest_working() -> None:
    """Of a package that a profile describes, too: xformers' flash attention."""
    main, flash = library("sm_61", path="xformers/_C.so"), library("sm_80", path="xformers/_C_flash.so")
    wheel = survey(main, flash, name="xformers")
    assert judge(wheel, machine("6.1")).outcome == "fails"
    tried = replace(wheel, python_loads=(_loaded("xformers/_C_flash.so", guarded=True, at_import=False),))
    verdict = judge(tried, machine("6.1"))
    assert verdict.outcome == "partial"
    (finding,) = [each for each in verdict.findings if each.rule == "no-code-for-gpu"]
    assert finding.severity == "warning"
    assert any("in a `try` or under a condition: the rest works without it" in each for each in finding.evidence)
    assert judge(tried, machine("5.2")).outcome == "fails"  # neither serves
    bare = replace(wheel, python_loads=(_loaded("xformers/_C_flash.so", guarded=False, at_import=False),))
    assert judge(bare, machine("6.1")).outcome == "fails"
    linked = replace(tried, imported=("xformers/_C.so",), libraries=(replace(main, needed=("_C_flash.so",)), flash))
    assert judge(linked, machine("6.1")).outcome == "fails"  # what is loaded for certain needs it


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (
            (True, True),
            "pkg/__init__.py loads it at import, in a `try` or under a condition: the rest works without it",
        ),
        ((False, True), "pkg/__init__.py loads it at import, but other libraries run"),
        ((True, False), "pkg/__init__.py loads it, in a `try` or under a condition: the rest works without it"),
        ((False, False), "pkg/__init__.py loads it, which importing the package does not run"),
        (None, "nothing loads it when the package is imported"),
    ],
)
def test_what_is_true_of_a_library_that_need_not_serve_is_told(load: tuple[bool, bool] | None, told: str) -> None:
    wheel = survey(library("sm_80", path="pkg/_C.so"), library("sm_90a", path="pkg/_C_90a.so"))
    if load:
        wheel = replace(wheel, python_loads=(_loaded("pkg/_C_90a.so", guarded=load[0], at_import=load[1]),))
    verdict = judge(wheel, machine("8.0"))
    assert verdict.outcome == "partial"
    (finding,) = verdict.findings
    assert any(each.startswith(f"pkg/_C_90a.so: {told}") for each in finding.evidence), finding.evidence


def test_a_sentence_that_is_true_of_one_library_names_it() -> None:
    several = [library("sm_90a", path=f"pkg/_C_{name}.so") for name in ("90a", "x", "y", "z")]
    main = library("sm_80", path="pkg/_C.so")

    def told(*libraries: Library) -> str:
        (finding,) = [each for each in judge(survey(*libraries), machine("8.0")).findings if "code" in each.rule]
        return finding.message

    assert told(main, several[0]).startswith("_C_90a.so has no code for the GPU of capability 8.0: error 209")
    assert told(main, *several[:2]).startswith("each of _C_90a.so, _C_x.so has no code for the")
    assert told(main, *several).startswith("each of _C_90a.so, _C_x.so, _C_y.so and 1 more has no code")
    assert told(*several).startswith("it has no code for the")
    assert told(main, replace(several[0], path="other/_C.so")).startswith("other/_C.so has no code")
    mixed = library("sm_80", "sm_90", path="pkg/mixed.so")
    assert told(main, mixed).startswith("mixed.so: 1 of 2 containers have nothing")


@pytest.mark.parametrize(
    ("needed", "known", "outcome"),
    [
        (("libc10.so", "libcudart.so.11.0"), {"torch_cuda": "12.1"}, "fails"),
        (("libc10.so", "libcudart.so.11.0"), {"torch_cuda": "11.8"}, "native"),
        (("libc10.so", "libcudart.so.11.0"), {"torch_cuda": "12.1", "toolkits": ("11.8",)}, "native"),
        (("libc10.so", "libcublas.so.13"), {"torch_cuda": "12.8"}, "fails"),
        (("libc10.so", "libcusolver.so.11"), {"torch_cuda": "12.8"}, "native"),  # that is CUDA 12's
        (("libc10.so", "libnppc.so.11"), {"torch_cuda": "12.8"}, "native"),  # torch brings none
        (("libcudart.so.11.0",), {"torch_cuda": "12.1"}, "native"),  # no extension of torch: it may come from elsewhere
    ],
)
def test_an_extension_of_torch_finds_torchs_cuda_major_alone(
    needed: tuple[str, ...], known: dict[str, Any], outcome: str
) -> None:
    wheel = survey(library("sm_80", cuda=11, needed=needed), requires=("torch>=2.0.0",))
    verdict = judge(wheel, machine("8.0", **known))
    assert verdict.outcome == outcome
    if outcome == "fails":
        (finding,) = verdict.findings
        assert finding.rule == "cuda-major-differs"
        assert needed[1] in finding.message
        assert "torch for CUDA 12 brings another major: it fails at import" in finding.message
        assert any(f"{needed[1]} comes with nvidia-" in each for each in finding.evidence)


def test_a_variable_that_chooses_another_major_than_torchs_finds_nothing() -> None:
    wheel = _bitsandbytes("11.8", "12.8")
    chosen = machine("9.0", torch_cuda="12.8", loads=("BNB_CUDA_VERSION=118",))
    assert judge(wheel, chosen).outcome == "fails"
    assert judge(wheel, machine("9.0", torch_cuda="12.8")).outcome == "native"


def test_requirements_are_parsed_once_for_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def counted(text: str) -> Requirement | None:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr("cuwheel.wheel.requirements.parse", counted)
    subject = Judge(survey(library("sm_90"), requires=("only-of-this-test", "numpy>=2")))
    assert {subject.on(machine(driver=driver)).outcome for driver in ("570.86.10", "575.51.03", None)} == {"native"}
    assert parsed == ["only-of-this-test", "numpy>=2"]


def test_machines_that_are_alike_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str | None] = []
    verdict = Judge._judge

    def counted(self: Judge, on: Machine) -> Verdict:
        judged.append(on.driver)
        return verdict(self, on)

    wheel = survey(library("sm_90"))
    drivers = ("470.57.02", "575.51.03", None)
    fleet = [machine(name=f"node{n}", driver=drivers[n % 3], count=n + 1) for n in range(3000)]
    monkeypatch.setattr(Judge, "_judge", counted)
    found = judge_all(wheel, fleet)
    assert judged == list(drivers)
    assert [each.machine for each in found] == [each.name for each in fleet]
    assert list(found[:3]) == [judge(wheel, each) for each in fleet[:3]]


def test_a_machine_without_a_known_gpu_is_told_of_by_its_name_alone() -> None:
    found = judge_all(survey(library("sm_90")), [machine(None, name=name) for name in ("a", "b")])
    assert [each.machine for each in found] == ["a", "b"]
    assert all("gpu-not-known" in {one.rule for one in each.findings} for each in found)
