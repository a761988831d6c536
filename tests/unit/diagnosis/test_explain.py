"""What is made of the signatures: order, facts, consequences, ways out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.diagnosis import known
from cuwheel.diagnosis.explain import commands_in, explain
from cuwheel.diagnosis.text import parse
from cuwheel.verdicts.verdict import Verdict
from cuwheel_core.verdicts.choice import NO_KERNEL_IMAGE
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from cuwheel.diagnosis.case import Diagnosis

NVCC_FAILED = "error: command '/usr/local/cuda/bin/nvcc' failed with exit status 1\n"


def of(log: str) -> Diagnosis:
    return explain(parse(log))


def ids(log: str) -> list[str]:
    """What the log shows, without what it may be instead."""
    found = of(log).causes
    return [cause.id for cause in found if found[0].when or not cause.when]


def test_fifty_errors_are_one_cause() -> None:
    lines = "".join(
        f'/usr/include/stdlib.h({index}): error: identifier "_Float64" is undefined\n' for index in range(50)
    )
    found = of(lines + 'Error limit reached.\n100 errors detected in the compilation of "a.cu".\n' + NVCC_FAILED)
    assert [cause.id for cause in found.causes if not cause.when] == ["float-n-types-undefined"]
    assert len(found.causes[0].evidence) <= 4


@pytest.mark.parametrize(
    "log",
    [
        "",
        "all tests passed\n",
        'x.cu(12): warning #177-D: variable "a" was declared but never referenced\n',
        "nvcc warning : Support for offline compilation for architectures prior to '<compute/sm>_75' will be removed\n",
        "[100%] Built target ops\nSuccessfully installed fastops-1.0\n",
        "warning: unused variable 'x' [-Wunused-variable]\nCUDA_HOME=/usr/local/cuda\n",
        "TypeError: forward() missing 1 required positional argument: 'mask'\n",
        "FAILED tests/test_model.py::test_loss - assert 0.31 < 0.3\n",
        "npm ERR! missing script: build\n",
        "KeyError: 'hidden_size'\n",
        "error: failed to push some refs\n",
        "java.lang.NullPointerException\n\tat com.example.Main.main(Main.java:5)\n",
    ],
)
def test_no_cause_is_better_than_a_wrong_one(log: str) -> None:
    assert set(ids(log)) <= {"not-cuda"}


@pytest.mark.parametrize(
    "line",
    [
        "  Running command git submodule update --init --recursive -q",
        "warning: 'at::DeprecatedTypeProperties& at::Tensor::type() const' is deprecated [-Wdeprecated-declarations]",
        "cl.exe /nologo /O2 /permissive- /Zc:preprocessor /Zc:__cplusplus /bigobj -c a.cpp",
        "nvcc -DTORCH_EXTENSION_NAME=_C -D_GLIBCXX_USE_CXX11_ABI=0 -gencode arch=compute_80,code=sm_80 -c a.cu",
        'warning #1444-D: function "cudaThreadSynchronize" was declared deprecated',
        "nvcc warning : The 'compute_50' architectures are deprecated, and may be removed in a future release",
        "UserWarning: we could not find ninja.. Falling back to using the slow distutils backend.",
        "CUDA version (12.2) has a minor version mismatch with the version that was used to compile PyTorch (12.1)",
        "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
        "CMake Deprecation Warning: Compatibility with CMake < 3.10 will be removed from a future version of CMake.",
        "TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation.",
        "UserWarning: Failed to initialize NumPy: numpy.core.multiarray failed to import",
        '-- Found CUDAToolkit: /usr/local/cuda/include (found version "12.4.131")',
        "Defaulting to user installation because normal site-packages is not writeable",
        "DEPRECATION: Building 'x' using the legacy setup.py bdist_wheel mechanism",
    ],
)
def test_what_builds_always_say_is_hardly_a_cause(line: str) -> None:
    found = of(f"{line}\n{line}\n").causes
    assert all(cause.confidence < 0.35 for cause in found), found


def test_a_failure_without_a_word_yields_to_every_other_cause() -> None:
    assert ids(NVCC_FAILED) == ["nvcc-silent-failure"]
    assert (
        ids("nvcc fatal   : Unsupported gpu architecture 'compute_90a'\n" + NVCC_FAILED)[0]
        == "unsupported-gpu-architecture"
    )
    assert ids("src/a.cu(7): error: expected a ';'\n" + NVCC_FAILED) == []


@pytest.mark.parametrize(
    ("nvcc", "arch", "cause"),
    [
        ("11.0.221", "compute_86", "unsupported-gpu-architecture"),
        ("13.0.48", "compute_70", "gpu-architecture-removed"),
        ("12.4.131", "compute_35", "gpu-architecture-removed"),
        ("12.4.131", "compute_100", "unsupported-gpu-architecture"),
        (None, "compute_20", "gpu-architecture-removed"),
        (None, "compute_120", "unsupported-gpu-architecture"),
    ],
)
def test_too_new_or_removed_is_told_by_the_tables(nvcc: str | None, arch: str, cause: str) -> None:
    told = f"Cuda compilation tools, release {nvcc}\n" if nvcc else ""
    assert ids(f"{told}nvcc fatal   : Unsupported gpu architecture '{arch}'\n")[0] == cause


def test_versions_in_the_log_make_the_fix_specific() -> None:
    found = of(
        "-- The CXX compiler identification is GNU 13.3.0\n-- The CUDA compiler identification is NVIDIA 12.2.140\n"
        "#error -- unsupported GNU version! gcc versions later than 12 are not supported!\n"
    )
    first = found.causes[0].fixes[0]
    assert first.text.startswith("nvcc 12.2 takes GCC up to 12, the build found 13.3.0")
    assert first.commands[0] == ("apt", "install", "g++-12")
    assert {(each.name, each.value, each.line) for each in found.versions} == {
        ("gcc", "13.3.0", 1),
        ("nvcc", "12.2.140", 2),
    }


def test_a_profile_says_what_the_log_does_not() -> None:
    profile = next(each for each in MACHINES if each.name.startswith("case 1: CMake")).profile
    log = parse("error: #error -- unsupported GNU version!\n")
    alone, told = explain(log).causes[0], explain(log, profile).causes[0]
    assert told.confidence > alone.confidence
    assert "takes GCC up to" not in alone.fix[0]
    assert "takes GCC up to" in told.fix[0]


def test_a_jetson_raises_and_a_desktop_lowers() -> None:
    symbol = "RuntimeError: CUDA error: named symbol not found\n"
    sure = {machine: of(f"{machine}\n{symbol}").causes for machine in ("Jetson AGX Orin", "some machine", "C:/Windows")}
    confidence = {
        machine: next((cause.confidence for cause in found if cause.id == "l4t-vs-sbsa"), 0.0)
        for machine, found in sure.items()
    }
    assert confidence["Jetson AGX Orin"] > confidence["some machine"] > confidence["C:/Windows"]


def test_ways_out_are_those_that_exist() -> None:
    windows = of("nvcc fatal   : Cannot find compiler 'cl.exe' in PATH\n")
    assert "wsl2" in [way.id for way in windows.ways_out]
    assert "another-compiler" not in [way.id for way in windows.ways_out]
    jetson = of("Jetson Orin Nano\nRuntimeError: CUDA error: named symbol not found\n")
    assert [way.id for way in jetson.ways_out][:4] == [
        "newer-jetpack",
        "jetpack-wheels",
        "jetson-index",
        "build-on-device",
    ]
    unfit = of("Jetson AGX Orin\nERROR: No matching distribution found for torch==2.1.0+cu121\n").causes[0]
    assert unfit.id == "no-compatible-wheel"
    assert any("the wheels for your JetPack" in each for each in unfit.fix)
    elsewhere = of("RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    assert not {"jetpack-wheels", "jetson-index", "wsl2"} & {way.id for way in elsewhere.ways_out}
    assert of("fine\n").ways_out == ()


def verdict(outcome: str) -> Verdict:
    error = NO_KERNEL_IMAGE if outcome == "fails" else None
    return Verdict(
        target="dist/x.whl",
        machine="rtx 5060 ti",
        outcome=outcome,  # type: ignore[arg-type]
        predicted_error=error,
        libraries=(),
        findings=(),
    )


def test_a_wheel_that_check_approves_is_the_first_way_out() -> None:
    log = parse("RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    approved = explain(log, verdicts=[verdict("native")]).ways_out
    assert (approved[0].id, approved[0].text) == ("prebuilt-wheel", "x.whl runs on rtx 5060 ti (native)")
    assert sum(way.id == "prebuilt-wheel" for way in approved) == 1
    refused = explain(log, verdicts=[verdict("fails")])
    assert refused.ways_out[-1].title == "not a prebuilt wheel"
    assert "error 209" in refused.ways_out[-1].text
    assert refused.causes[0].confidence > explain(log).causes[0].confidence


def test_a_gpu_that_was_named_makes_the_fix_specific() -> None:
    log = parse("RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    facts = {"gpu": "GeForce RTX 5060 Ti", "capability": "12.0"}
    assert "made with CUDA 12.8 or later" in explain(log, facts=facts).causes[0].fix[0]


def test_what_is_concluded_has_a_name_that_fixes_may_use() -> None:
    versions = {
        "nvcc": "12.4", "gcc": "13.2", "arch": "sm_90", "gpu": "H100", "library": "libcublas.so.12",
        "torch_cuda": "12.4", "python": "3.11.2", "wanted": "122", "found": "12.0", "missing_part": "cublas_v2",
        "standard": "20", "toolkit_parts": "cudart cublas", "glibcxx_needed": "3.4.32",
    }  # fmt: skip
    concluded: set[str] = set()
    for module in (
        {"missing_module": "yaml"},
        {"library": "libcublasLt.so.12", "listed_library": "cublaslt.13"},
        {"arch": "sm_35", "arch_flags": "APPEND:35"},
        {"missing_module": "x.y"},
        {"missing_module": "x", "own_modules": "w x"},
        {"library": "libcufft.so.10.0"},
        {"gpu_named": "Tesla P40"},
        {"nvcc": "11.4", "torch_cuda": "12.4"},
        {"library": "cudnn64_7.dll", "building": "flash-attn==2.8.3", "torch": "2.5", "cudnn_needed": "9.3.0"},
        {"bnb_library": "124", "bnb_shipped": "12.1", "torch_cuda": "12.4", "driver_cuda": "12.4"},
        {
            "toolkit_root": "/usr/local/cuda-12.8",
            "torch_cuda": "12.8",
            "wanted": "12.8",
            "gcc": "13.2",
            "arch": "sm_90",
        },
        {"gpu": "RTX 5090", "driver": "550.54.14", "vllm": "0.9.1"},
        {
            "gpu": "GTX 1080",
            "vllm": "0.9.1",
            "tensorflow": "2.13",
            "cudnn": "91002",
        },
    ):
        told = known.Known(
            versions=tuple(
                known.Version(name=name, value=text, line=0) for name, text in {**versions, **module}.items()
            ),
            situations=frozenset({"windows"}),
        )
        concluded |= told.filled().keys()
        assert told.filled().keys() - versions.keys() - module.keys() <= known.CONCLUDED
    assert concluded >= known.CONCLUDED - {"msc_ver_max", "held_dll", "record", "wheel_at_hand"}


def test_facts_about_nothing_are_not_so() -> None:
    nothing = known.Known(versions=(), situations=frozenset())
    assert not [name for name, holds in known.CONDITIONS.items() if holds(nothing)]


def test_commands_that_were_tried() -> None:
    log = parse(
        "$ pip install flash-attn\nroot@box:/src# MAX_JOBS=4 python setup.py install\n+ cmake -S . -B build\n"
        "(venv) C:\\src> nvcc --version\nCollecting torch\npython is great...\nmake: *** [all] Error 2\n"
        "$ pip install flash-attn\n"
    )
    assert [each.text for each in commands_in(log)] == [
        "pip install flash-attn",
        "MAX_JOBS=4 python setup.py install",
        "cmake -S . -B build",
        "nvcc --version",
    ]


def test_cargo_does_not_say_that_nvcc_is_missing() -> None:
    log = (
        "error: failed to run custom build command for `tracer-kernels v0.2.0`\n\n"
        "  nvcc error while compiling:\n\n  # stdout\n\n  # stderr\n"
    )
    assert ids(log) == ["nvcc-silent-failure"]


def test_what_followed_from_a_cause_says_so() -> None:
    log = (
        "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
        "RuntimeError: Error compiling objects for extension\n"
        "Could not load bitsandbytes native library: libbitsandbytes_cuda122.so: cannot open shared object file\n"
    )
    found = of(log).causes
    assert found[0].follows == ""
    assert all(each.follows in {cause.id for cause in found} for each in found if each.follows)
    consequence = of("docker: Error response from daemon: could not select device driver\nCUDA_ERROR_UNKNOWN\n").causes
    assert [(each.id, each.follows) for each in consequence] == [
        ("container-without-gpu-runtime", ""),
        ("driver-state-broken", "container-without-gpu-runtime"),
    ]


def test_where_no_cause_is_known_it_is_said_who_failed() -> None:
    found = of("x.cu(3): error: something odd happened\nmake: *** [x.o] Error 1\n")
    assert found.causes == ()
    assert [(each.speaker, each.line) for each in found.understood] == [("cudafe++", 1), ("make", 2)]
