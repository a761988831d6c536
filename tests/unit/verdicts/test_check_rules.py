"""Every rule of `check`: when it speaks, when it does not, and that it says what, why and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.device_code.contents import TorchExports
from cuwheel.support import codec
from cuwheel.support.finding import RULES_FILE
from cuwheel.verdicts import check_rules
from cuwheel.verdicts.judge import judge_all
from cuwheel_core.device_code.libraries import Absent, Symbols
from cuwheel_core.support.finding import Finding
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from cuwheel.verdicts.verdict import Verdict
    from cuwheel_core.device_code.libraries import Library

NEW = {"driver": "580.65.06"}
LINUX = {"os": "linux", "cpu": "x86_64", "glibc": "2.35", "python": "3.11.9"}
ORIN = {"gpu": "Jetson AGX Orin", "product": "Jetson", "os": "linux", "cpu": "aarch64", "l4t": "36.4"}
TAG = "cp311-cp311-manylinux_2_28_x86_64"


OLD_NAME = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
TORCH = TorchExports("2.14.1", frozenset({OLD_NAME, "_ZN2at5emptyEv"}), frozenset({"_ZN2at5emptyEv"}))


def _judge(
    *libraries: Library,
    on: dict[str, Any] | None = None,
    capability: str | None = "9.0",
    torch: TorchExports | None = None,
    **told: Any,
) -> Verdict:
    on_it = machine(capability, **{**NEW, **LINUX, **(on or {})})
    return judge_all(survey(*libraries, **told), [on_it], torch)[0]


FOR_AMD = library(
    path="pkg/libpkg_hip.so",
    runtime=False,
    needed=("libamdhip64.so.6",),
    findings=(Finding(rule="amd-code", severity="note", message="", evidence=("section .hip_fatbin",)),),
)
CASES: dict[str, tuple[Verdict, Verdict]] = {
    # rule: (a verdict with it, one without)
    "no-code-for-gpu": (_judge(library("sm_80")), _judge(library("sm_90"))),
    "code-for-gpu-in-part": (_judge(library("sm_80", "sm_90")), _judge(library("sm_80 sm_90", "sm_90"))),
    "device-link-without-code": (
        _judge(library(linked=("sm_80",), objects=("sm_80",))),
        _judge(library(linked=("sm_90",), objects=("sm_90",))),
    ),
    "registered-but-absent": (
        _judge(library("sm_90", absent=(Absent(entry=0, names=("gone",)),))),
        _judge(library("sm_80 sm_90", absent=(Absent(entry=0, names=("gone",)),))),
    ),
    "objects-newer-than-driver": (
        _judge(library(linked=("sm_80",), objects=("sm_90",), cuda=13, toolkits=("13.4",))),
        _judge(library(linked=("sm_90",), objects=("sm_90",), cuda=13, toolkits=("13.4",))),
    ),
    "ptx-newer-than-driver": (_judge(library("compute_90@9.4")), _judge(library("compute_90@9.0"))),
    "jit-switched-off": (
        _judge(library("compute_80"), on={"jit": "disabled"}),
        _judge(library("sm_90"), on={"jit": "disabled"}),
    ),
    "chooses-kernels-itself": (
        _judge(library("sm_80", "sm_90", path="lib/libnccl.so.2")),
        _judge(library("sm_90", "sm_90", path="lib/libnccl.so.2")),
    ),
    "linked-at-load": (
        _judge(library(linked=("sm_80",), objects=("sm_80 compute_80",))),
        _judge(library(linked=("sm_90",), objects=("sm_80 compute_80",))),
    ),
    "compiled-by-driver": (_judge(library("compute_80")), _judge(library("sm_90"))),
    "desktop-code-on-tegra": (
        _judge(library("sm_80", machine="aarch64"), on=ORIN, capability="8.7"),
        _judge(library("sm_87", machine="aarch64"), on=ORIN, capability="8.7"),
    ),
    "driver-below-cuda-floor": (
        _judge(library("sm_90", cuda=13), on={"driver": "570.26"}),
        _judge(library("sm_90", cuda=12), on={"driver": "570.26"}),
    ),
    "gpu-unknown-to-driver": (
        _judge(library("sm_90", cuda=11), on={"driver": "470.256.02"}),
        _judge(library("sm_90", cuda=11), on={"driver": "520.61.05"}),
    ),
    "gpu-not-in-driver-list": (
        _judge(library("sm_120"), on={"driver": "570.86.16", "gpu": "GeForce RTX 5060"}, capability="12.0"),
        _judge(library("sm_120"), on={"driver": "570.158.01", "gpu": "GeForce RTX 5060"}, capability="12.0"),
    ),
    "sbsa-on-l4t": (
        _judge(library("sm_80", platform="sbsa", machine="aarch64"), on=ORIN, capability="8.7"),
        _judge(library("sm_80", platform="l4t", machine="aarch64"), on=ORIN, capability="8.7"),
    ),
    "zstd-needs-newer-driver": (
        _judge(library("sm_90", compression="zstd"), on={"driver": "535.54.03"}),
        _judge(library("sm_90", compression="zstd")),
    ),
    "arm64-build-unconfirmed": (
        _judge(library("sm_80", cuda=13, platform="sbsa", machine="aarch64"), on=ORIN, capability="8.7"),
        _judge(
            library("sm_110", cuda=13, platform="sbsa", machine="aarch64"), on={**ORIN, "gpu": None}, capability="11.0"
        ),
    ),
    "wrong-processor": (_judge(library("sm_90", machine="aarch64")), _judge(library("sm_90"))),
    "wrong-system": (_judge(library("sm_90", format="pe")), _judge(library("sm_90"))),
    "glibc-newer-than-system": (_judge(library("sm_90", glibc="2.38")), _judge(library("sm_90", glibc="2.35"))),
    "libstdcxx-newer-than-system": (
        _judge(library("sm_90", glibcxx="3.4.32"), on={"glibcxx": "3.4.30"}),
        _judge(library("sm_90", glibcxx="3.4.30"), on={"glibcxx": "3.4.30"}),
    ),
    "needed-library-missing": (
        _judge(library("sm_90", needed=("libcusolver.so.11", "libc.so.6")), on={"libraries": ()}),
        _judge(library("sm_90", needed=("libcusolver.so.11",)), on={"libraries": ("libcusolver.so.11",)}),
    ),
    "cuda-major-differs": (
        _judge(library("sm_90", needed=("libcublas.so.12",)), on={"libraries": ("libcublas.so.13",)}),
        _judge(library("sm_90", needed=("libcublas.so.12",)), on={"libraries": ("libcublas.so.12",)}),
    ),
    "torch-missing": (
        _judge(library("sm_90", needed=("libc10.so",)), on={"libraries": ()}),
        _judge(library("sm_90", needed=("libc10.so",)), on={"libraries": (), "torch": "2.11.0"}),
    ),
    "torch-abi-differs": (
        _judge(library("sm_90", needed=("libc10.so",), cxx11_abi=False), on={"torch": "2.7", "torch_cxx11_abi": True}),
        _judge(library("sm_90", needed=("libc10.so",), cxx11_abi=True), on={"torch": "2.7", "torch_cxx11_abi": True}),
    ),
    "torch-symbols-missing": (
        _judge(library("sm_90", torch_symbols=(OLD_NAME,)), on={"torch": "2.14.1"}, torch=TORCH),
        _judge(library("sm_90", torch_symbols=("_ZN2at5emptyEv",)), on={"torch": "2.14.1"}, torch=TORCH),
    ),
    "wheel-tag-mismatch": (
        _judge(library("sm_90"), on={"python": "3.12.1"}, tags=(TAG,)),
        _judge(library("sm_90"), tags=(TAG,)),
    ),
    "no-library-to-load": (
        _judge(
            library("sm_90", path="bitsandbytes/libbitsandbytes_cuda118.so"),
            on={"torch_cuda": "12.8"},
            name="bitsandbytes",
        ),
        _judge(
            library("sm_90", path="bitsandbytes/libbitsandbytes_cuda118.so"),
            on={"torch_cuda": "11.8"},
            name="bitsandbytes",
        ),
    ),
    "made-for-amd": (_judge(FOR_AMD), _judge(library("sm_90"), FOR_AMD)),
    "no-device-code": (_judge(library()), _judge(library("sm_90"))),
    "driver-library-bundled": (
        _judge(library("sm_90"), library("sm_80", path="pkg.libs/libcuda-45427247.so.535.154.05")),
        _judge(library("sm_90"), library("sm_90", path="pkg.libs/libcudart-45427247.so.12.0")),
    ),
    "gpu-not-known": (_judge(library("sm_90"), capability=None), _judge(library("sm_90"))),
}
GROUPS_OF_CHECK = ("Packages", "Loading", "Device code on machines")  # of the table of rules


def _rules(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.findings}


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_speaks_where_it_should_and_nowhere_else(rule: str) -> None:
    with_it, without_it = CASES[rule]
    assert rule in _rules(with_it)
    assert rule not in _rules(without_it)


@pytest.mark.parametrize(
    ("toolkits", "l4t", "told"),
    [
        (("13.0",), "39.2", ("with CUDA 13.0, and", "what serves both is CUDA 13.2 or later")),
        (("13.0", "13.2"), "39.2", ("with CUDA 13.0, and", "what serves both is CUDA 13.2 or later")),
        (("13.2",), "39.2", ()),
        (("13.2",), "36.4", ("with CUDA 13, and", "it needs JetPack 7.2 (L4T 39.2) or later")),
        (("13.1",), "36.4", ("with CUDA 13.1, and", "it needs JetPack 7.2", ", and what serves both is CUDA 13.2")),
    ],
)
def test_an_orin_runs_what_the_cuda_built_that_it_joined_with(
    toolkits: tuple[str, ...], l4t: str, told: tuple[str, ...]
) -> None:
    built = library("sm_87", cuda=13, toolkits=toolkits, platform="sbsa", machine="aarch64")
    verdict = _judge(built, on={**ORIN, "l4t": l4t}, capability="8.7")
    found = [each for each in verdict.findings if each.rule == "arm64-build-unconfirmed"]
    assert len(found) == bool(told)
    assert all(words in each.message for each in found for words in told)
    assert any("not confirmed" in each for each in verdict.conditions) == (toolkits != ("13.2",))


def test_every_rule_has_a_case() -> None:
    groups = codec.read_toml(RULES_FILE)["group"]
    assert {row["id"] for each in groups if each["title"] in GROUPS_OF_CHECK for row in each["rule"]} == set(CASES)
    checks = (*check_rules.HOST_RULES, *check_rules.CODE_RULES, *check_rules.PACKAGE_RULES)
    assert len(set(checks)) == len(checks)


@pytest.mark.parametrize("rule", CASES)
def test_a_finding_says_what_why_and_what_to_do(rule: str) -> None:
    finding = next(each for each in CASES[rule][0].findings if each.rule == rule)
    assert finding.message
    assert finding.evidence
    assert finding.fix


@pytest.mark.parametrize("rule", CASES)
def test_an_error_means_that_it_fails_and_nothing_else_does(rule: str) -> None:
    for verdict in CASES[rule]:
        errors = [each for each in verdict.findings if each.severity == "error"]
        assert bool(errors) == (verdict.outcome in ("fails", "partial"))


def test_a_server_is_not_sent_to_an_index_for_jetson() -> None:
    judged = _judge(library("sm_90", platform="l4t", machine="aarch64"), on={"cpu": "aarch64"})
    finding = next(each for each in judged.findings if each.rule == "sbsa-on-l4t")
    assert finding.fix == "take it built for arm64 servers; by CUDA 13.0 or later one build is for both"


def _message(rule: str) -> str:
    finding = next(each for each in CASES[rule][0].findings if each.rule == rule)
    return f"{finding.message} {' '.join(finding.evidence)} {finding.fix}"


def test_what_they_say() -> None:
    assert "error 209 (cudaErrorNoKernelImageForDevice)" in _message("no-code-for-gpu")
    assert "1 of 2 containers have nothing for the GPU of capability 9.0" in _message("code-for-gpu-in-part")
    assert "error 500" in _message("device-link-without-code")
    assert "takes lacks kernels or variables that it registers" in _message("registered-but-absent")
    assert "cannot link objects written by CUDA 13.4" in _message("objects-newer-than-driver")
    assert "PTX (ISA 9.4) is newer than the driver (ISA 9.0)" in _message("ptx-newer-than-driver")
    assert "CUDA_DISABLE_PTX_JIT" in _message("jit-switched-off")
    assert "driver 570.26 is too old for CUDA 13" in _message("driver-below-cuda-floor")
    assert "the architecture list is not the problem" in _message("sbsa-on-l4t")
    assert "sm_80 fits the Jetson AGX Orin (8.7)" in _message("sbsa-on-l4t")
    assert "one package" in _message("sbsa-on-l4t")
    assert "JetPack 7.2 (L4T 39.2) or later, or the package cuda-compat" in _message("sbsa-on-l4t")
    assert "pip install nvidia-cusolver-cu12" in _message("needed-library-missing")
    assert "libcusolver.so.11, which was not found" in _message("needed-library-missing")
    assert "libcublas.so.13" in _message("cuda-major-differs")
    assert "Python is 3.12, not 3.11" in _message("wheel-tag-mismatch")
    assert "a symbol that torch 2.14.1 does not have" in _message("torch-symbols-missing")
    assert "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, unsigned int, bool)" in _message(
        "torch-symbols-missing"
    )


@pytest.mark.parametrize(
    "known",
    [{"on": {"torch": "2.14.1+cpu"}}, {"on": {"torch": "2.14.1+cpu"}, "torch": None}],
    ids=["another torch", "unread"],
)
def test_symbols_of_another_torch_say_nothing(known: dict[str, Any]) -> None:
    verdict = _judge(library("sm_90", torch_symbols=(OLD_NAME,)), **{"torch": TORCH, **known})
    assert (verdict.outcome, verdict.findings) == ("native", ())


def test_a_symbol_that_an_unknown_library_may_bring_is_not_missing() -> None:
    subject = library("sm_90", torch_symbols=(OLD_NAME,), needed=("libsomebody.so.1",))
    assert _judge(subject, on={"torch": "2.14.1"}, torch=TORCH).outcome == "native"


def test_some_objects_fit_and_others_do_not() -> None:
    mixed = _judge(library(linked=("sm_80",), objects=("sm_80", "sm_80 compute_80")))
    (finding,) = mixed.findings
    assert "error 500" in finding.message
    assert "error 300 (cudaErrorInvalidSource)" in finding.message
    assert mixed.predicted_error
    assert mixed.predicted_error.code == 500


def test_objects_whose_names_are_known() -> None:
    kernel = Symbols(kernels=("mark",), functions=(), wanted=("helper",))
    helper = Symbols(kernels=(), functions=("helper",), wanted=())
    for objects, words in (
        (("sm_90", "sm_80"), "objects that fit need others that do not: error 300"),
        (("sm_80", "sm_90"), "the relocatable objects that fit have no kernels: error 500"),
    ):
        (finding,) = _judge(library(linked=("sm_80",), objects=objects, symbols=(kernel, helper))).findings
        assert words in finding.message
    one = Symbols(kernels=("mark",), functions=(), wanted=())
    part = _judge(library(linked=("sm_80",), objects=("sm_80", "sm_90"), symbols=(one, one)))
    assert part.outcome == "partial"
    assert "error 500" in part.findings[0].message


def test_forced_jit_without_ptx() -> None:
    (finding,) = _judge(library("sm_90"), on={"jit": "forced"}).findings
    assert finding.rule == "jit-switched-off"
    assert finding.fix == "unset CUDA_FORCE_PTX_JIT"


def test_data_centre_gpus_have_a_way_out_of_an_old_driver() -> None:
    old = {"driver": "570.26"}
    (finding,) = _judge(library("sm_90", cuda=13), on={**old, "product": "data centre"}).findings
    assert "cuda-compat" in finding.fix
    (finding,) = _judge(library("sm_90", cuda=13), on={**old, "product": "GeForce"}).findings
    assert "cuda-compat" not in finding.fix


@pytest.mark.parametrize(
    "named",
    [
        {"path": "pkg.libs/libcuda-45427247.so.535.154.05"},
        {"path": "pkg.libs/driver.so", "soname": "libcuda.so.1"},
        {"path": "pkg.libs/libnvidia-ptxjitcompiler-0a1b2c3d.so.470.57"},
    ],
)
@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
def test_a_bundled_driver_decides_nothing(arch: str, named: dict[str, Any]) -> None:
    verdict = _judge(library(path="pkg/_pkg.so"), library(arch, **named))
    assert (verdict.outcome, verdict.predicted_error, verdict.libraries) == ("unknown", None, ())
    assert [each.rule for each in verdict.findings] == ["driver-library-bundled", "no-device-code"]
    assert "no CUDA device code in it" in verdict.findings[1].message


def test_what_is_linked_with_cuda_too_is_not_made_for_amd() -> None:
    """Some load what fits, and compile their kernels for NVIDIA's GPUs when they run."""
    verdict = _judge(FOR_AMD, library(path="pkg/_c.so", runtime=False, needed=("libnvrtc.so.12",)))
    assert (verdict.outcome, [each.rule for each in verdict.findings]) == ("unknown", ["no-device-code"])


@pytest.mark.parametrize("name", ["libcublas.so.13", "libcufft.so.12"])  # the soname does not tell the CUDA
def test_cudas_libraries_need_the_driver_of_their_cuda(name: str) -> None:
    linked = library(path="pkg/_c.so", runtime=False, needed=(name, "libc.so.6"))
    old = _judge(linked, on={"driver": "535.54.03"})
    (finding,) = [each for each in old.findings if each.rule == "driver-below-cuda-floor"]
    assert old.outcome == "fails"
    assert "driver 535.54.03 is too old for CUDA 13" in finding.message
    assert f"pkg/_c.so: it is linked with {name}" in finding.evidence
    assert "take a build by CUDA 11.8 to 12.9" in finding.fix
    by_12 = library("sm_90", path="pkg/_c.so", runtime=False, needed=(name,), toolkits=("12.8",))
    assert any("by CUDA 11.8 to 12.9" in each.fix for each in _judge(by_12, on={"driver": "535.54.03"}).findings)
    assert _judge(linked, on={"driver": "580.65.06"}).outcome == "unknown"
    assert "driver 580 or later (CUDA 13)" in _judge(linked, on={"driver": None}).conditions
    either = library(path="pkg/_c.so", runtime=False, needed=("libcudnn.so.9",))
    assert _judge(either, on={"driver": "535.54.03"}).outcome == "unknown", "there is one for CUDA 12"


def test_code_in_archives_alone_is_a_reason_for_not_knowing() -> None:
    verdict = _judge(library(path="pkg/_pkg.so"), library("sm_90", path="lib/libcudadevrt.a", type="relocatable"))
    (finding,) = verdict.findings
    assert (verdict.outcome, finding.rule) == ("unknown", "no-device-code")
    assert "libcudadevrt.a" in finding.message


def test_link_time_code_alone_is_a_reason_for_not_knowing() -> None:
    verdict = _judge(library("lto_90"))
    assert (verdict.outcome, [each.rule for each in verdict.findings]) == ("unknown", ["no-device-code"])


@pytest.mark.parametrize(
    ("containers", "doubted"), [(("sm_86 sm_87",), False), (("sm_87",), True), (("sm_86 sm_87", "sm_87"), True)]
)
def test_code_for_a_tegra_on_a_desktop_gpu(containers: tuple[str, ...], doubted: bool) -> None:  # noqa: FBT001
    found = [each for each in _judge(library(*containers), capability="8.9").findings if "tegra" in each.rule]
    assert bool(found) == doubted
    assert all("sm_87, code for a Tegra" in each.message and "Orin" not in each.evidence[0] for each in found)


def test_advice_names_toolkits_that_know_the_number() -> None:
    (finding,) = _judge(library("sm_90", cuda=13), capability="11.0").findings
    assert "with CUDA 13.0 to" in finding.fix
    assert "110'" in finding.fix
    old = {"torch_cuda": "12.8"}
    (finding,) = [
        each
        for each in _judge(library("sm_90", needed=("libtorch.so",)), on=old, capability="11.0").findings
        if each.rule == "no-code-for-gpu"
    ]
    assert "with CUDA 12.8 to 12.9: CMAKE_CUDA_ARCHITECTURES='…;101', TORCH_CUDA_ARCH_LIST='… 10.1'" in finding.fix


def test_nothing_starts_slowly_that_does_not_run() -> None:
    verdict = _judge(library("compute_80@7.0", cuda=11), on={"driver": "470.256.02"})
    assert (verdict.outcome, [each.rule for each in verdict.findings]) == ("fails", ["gpu-unknown-to-driver"])


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (300, "less than a second for all 600 B"),
        (6_000_000, "about 8 to 30 s for all 12.0 MB"),
        (150_000_000, "about 3 to 12 minutes for all 300 MB"),
    ],
)
def test_the_wait_for_the_driver_is_estimated_from_the_ptx_that_it_compiles(held: int, words: str) -> None:
    """Of two containers with PTX and one with machine code."""
    made = library("compute_80", "compute_80", "sm_90")
    rows = tuple(replace(each, count=2, real_bytes=2 * held) for each in made.device_code)
    findings = _judge(replace(made, device_code=rows)).findings
    (finding,) = (each for each in findings if each.rule == "compiled-by-driver")
    assert f"({words} of its PTX; each part is compiled when it is first used)" in finding.message


@pytest.mark.parametrize(
    ("target", "kind", "command"),
    [
        ("dist/foo-1.0-py3-none-any.whl", "wheel", "graft foo-1.0-py3-none-any.whl --compile sm_90 -o OUT"),
        (".venv", "folder", "graft .venv --compile sm_90"),
        ("pkg-1.0", "distribution", "graft --env ENV pkg --compile sm_90"),
        ("build/libpkg.so", "file", "graft libpkg.so --compile sm_90 -o OUT"),
    ],
)
def test_the_command_that_compiles_ahead_names_what_was_checked(target: str, kind: Any, command: str) -> None:
    """Not a library inside of it, which nobody can name on a command line."""
    of = replace(survey(library("compute_80", path="pkg/libpkg.so")), target=target, kind=kind)
    findings = judge_all(of, [machine("9.0", **NEW, **LINUX)])[0].findings
    (told,) = (each for each in findings if each.rule == "compiled-by-driver")
    assert told.fixes[-1].commands == (("cuwheel", *command.split()),)


def test_what_the_driver_compiles_or_refuses_can_be_compiled_ahead_where_a_ptxas_can() -> None:
    assert "or without its source, in less than a second: `cuwheel graft " in _message("ptx-newer-than-driver")
    assert "--compile sm_90 -o OUT" in _message("ptx-newer-than-driver")
    assert "ahead of time, in about as long: `cuwheel graft " in _message("compiled-by-driver")
    (told,) = (
        each
        for each in _judge(library("compute_60@9.0"), capability="7.0").findings
        if each.rule in ("compiled-by-driver", "ptx-newer-than-driver")
    )
    assert "cuwheel graft" not in told.fix.replace("`cuwheel graft --compile`", "")


def test_the_guess_says_that_it_is_one() -> None:
    (finding,) = _judge(library(*["sm_90"] * 20, *["sm_100"] * 5)).findings
    assert finding.rule == "chooses-kernels-itself"
    assert "its containers suggest" in finding.message
    assert "guessed" in finding.evidence[0]


def test_a_torch_of_another_major_is_a_warning_where_the_environment_is_not_known() -> None:
    verdict = _judge(library("sm_90", needed=("libcublas.so.12",)), on={"torch_cuda": "13.0"})
    (finding,) = verdict.findings
    assert (finding.rule, finding.severity) == ("cuda-major-differs", "warning")
    assert verdict.outcome == "native"
    assert "libcublas.so.12 can be found" in verdict.conditions


def test_a_library_without_device_code_can_still_be_stopped_by_the_driver() -> None:
    caller = library(path="pkg/libcaller.so", cuda=13)
    verdict = _judge(caller, library("sm_90", cuda=13), on={"driver": "570.26"})
    assert verdict.outcome == "fails"
    assert verdict.predicted_error
    assert verdict.predicted_error.code == 35
