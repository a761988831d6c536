"""What is advised: for this GPU, this system, these versions, and inside a build its own options."""

# ruff: noqa: E501 - lines as programs print them
from __future__ import annotations

import io
import itertools
import json
import re
from typing import TYPE_CHECKING

import pytest

from cuwheel import __version__, api
from cuwheel.cli import main
from cuwheel.diagnosis import failures
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel.report import investigation
from cuwheel.support import quoting
from tests.unit.building.recording import records
from tests.unit.changes.slim.packages import fixture, make_wheel

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.support.cause import Cause
    from cuwheel_core.support.finding import Fix

SYMBOL = "RuntimeError: CUDA error: named symbol not found\nbitsandbytes/csrc/ops.cu\n"


def causes(log: str, **more: object) -> dict[str, Cause]:
    """What the log shows, without what it may be instead."""
    found = explain(parse(log), **more).causes  # type: ignore[arg-type]
    return {each.id: each for each in found if found[0].when or not each.when}


def shown(fix: Fix) -> str:
    """Text and commands as a person reads them, in the shell that the log is of."""
    return ": ".join(
        filter(None, (fix.text, " ".join(quoting.command_of_fix(each, fix.shell) for each in fix.commands)))
    )


def fixes(log: str, **more: object) -> str:
    return "\n".join(map(shown, next(iter(causes(log, **more).values())).fixes))


@pytest.mark.parametrize("gpu", ["h100", "rtx 4090", "9.0"])
def test_a_gpu_that_is_given_rules_a_jetson_out(gpu: str) -> None:
    assert "l4t-vs-sbsa" in causes(SYMBOL)
    answer = api.explain(io.BytesIO(f"JetPack\n{SYMBOL}".encode()), on=gpu)
    assert "l4t-vs-sbsa" not in [each.id for each in answer.causes]
    assert "jetson" not in answer.situations
    assert "l4t-vs-sbsa" in [each.id for each in api.explain(io.BytesIO(SYMBOL.encode()), on="orin").causes]


def test_error_500_on_such_a_gpu_is_no_container_without_its_driver() -> None:
    assert list(causes("Error 500: named symbol not found\nNVIDIA H200\n")) == ["no-kernel-image"]
    assert "container-without-gpu-runtime" in causes("Error 500: named symbol not found\nl4t-pytorch container\n")


@pytest.mark.parametrize("line", ["GPU 0: NVIDIA H100 80GB HBM3", "|   0  NVIDIA GeForce RTX 3090  On |", "Tesla V100"])
def test_so_does_one_that_the_log_names(line: str) -> None:
    assert "l4t-vs-sbsa" not in causes(f"{line}\n{SYMBOL}")
    assert "l4t-vs-sbsa" in causes(f"NVIDIA Jetson AGX Orin\n{SYMBOL}")


@pytest.mark.parametrize(
    "log",
    [
        "RuntimeError: CUDA error: device kernel source is invalid",
        "CUDA error 300",
        "cudaErrorInvalidSource",
        "CUDA_ERROR_INVALID_SOURCE",
    ],
)
def test_error_300_has_an_answer(log: str) -> None:
    assert "relocatable code (-rdc=true)" in fixes(log)


@pytest.mark.parametrize(
    "log", ["CUDA error: named symbol not found", "cudaErrorSymbolNotFound", "CUDA error 500", f"Jetson Orin\n{SYMBOL}"]
)
def test_error_500_has_its_readings_and_what_tells_them_apart(log: str) -> None:
    told = fixes(log)
    for word in ("relocatable code", "SBSA", "L4T", "is not in the binary", "cuwheel check", "--kernels"):
        assert word in told


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "You've specified CUDA version 122 however the CUDA compiler found is 120.",
            ("install 12.2", "CMake found 12.0"),
        ),
        (
            "C:\\b> You've specified CUDA version 128 however the CUDA compiler found is 124.",
            ("install 12.8", "CUDA\\v12.8"),
        ),
        ("nvcc: command not found", ("cuwheel toolchain install ",)),
    ],
)
def test_versions_stand_in_the_fix(log: str, words: tuple[str, ...]) -> None:
    told = fixes(log)
    assert all(word in told for word in words), told
    assert not re.search(r"X\.Y|vX\b", told)


def test_no_fix_has_a_version_to_fill_in() -> None:
    assert [
        id_ for id_, file in knowledge().causes.items() for fix in file.fix if re.search(r"\bv?X\.Y", fix.text)
    ] == []


# Programs, files and variables that Windows has not, cuwheel's own verbs that do not run there among them.
NOT_ON_WINDOWS = re.compile(
    r"\b(?:apt|apt-get|dnf|yum|sudo|ldconfig|ldd|chmod|chown|usermod|modprobe|nvidia-modprobe|systemctl|dkms|dmesg|lsmod"
    r"|rmmod|nvidia-ctk|update-alternatives|auditwheel|patchelf|objdump|readelf|strace|gcc|g\+\+|glibc|libstdc\+\+)\b"
    r"|`(?:export|unset|which|ls|env|df|free|source|find|grep|ln|rm|ulimit) |`ls`|\bLD_(?:LIBRARY_PATH|PRELOAD)\b"
    r"|\.bashrc|\$(?:CUDA_HOME|PATH|CONDA_PREFIX|HOME)|(?<![\w.:])/(?:usr|etc|opt|lib|lib64|dev|proc|sys|tmp|var)\b|\.so\b"
    r"|\bcuwheel (?:toolchain|build|repair|slim|verify)\b|\b(?:NVCC_CCBIN|CUDAHOSTCXX)\b"
)


def runs_on_windows(text: str) -> bool:
    return not NOT_ON_WINDOWS.search(text)


LINUX_ONLY = {
    *("auditwheel-repair-failed", "cut-to-workload", "glibc-too-old", "libcuda-stub-loaded", "wsl-libcuda-path"),
}


def test_on_windows_nothing_is_advised_that_does_not_run_there() -> None:
    without = set()
    for (id_, file), drive in zip(knowledge().causes.items(), itertools.cycle(["C:\\", "E:\\", "z:/"]), strict=False):
        for example in file.example:
            found = explain(parse(f"{drive}src\\build>\n{drive}src\\a\n{drive}src\\b\n{example.log}"))
            if "linux" in found.situations or ".so" in example.log:
                continue
            if found.causes and found.causes[0].id == id_:
                assert all(map(runs_on_windows, map(shown, found.causes[0].fixes))), (id_, found.causes[0].fix)
                without |= {id_} if not found.causes[0].fix else set()
    assert without <= LINUX_ONLY


def test_what_runs_there_is_told_apart() -> None:
    assert not runs_on_windows("`apt install g++-12`")
    assert not runs_on_windows("`export CUDA_HOME=/usr/local/cuda`")
    assert not runs_on_windows("`cuwheel toolchain install 12.2`")
    assert runs_on_windows("`pip install ninja`, and say which one is meant")
    assert "apt" in fixes(
        "/mnt/c/Users/me\nC:\\x\n-- The CXX compiler identification is GNU 13.3.0\n-- The CUDA compiler identification is NVIDIA 12.2.140\n#error -- unsupported GNU version!"
    )


@pytest.mark.parametrize(("nvcc", "arch"), [("13.0", "sm_60"), ("13.0", "compute_70"), ("12.9", "compute_37")])
def test_an_architecture_that_was_dropped_asks_for_no_newer_toolkit(nvcc: str, arch: str) -> None:
    found = causes(f"Cuda compilation tools, release {nvcc}\nnvcc fatal   : Unsupported gpu architecture '{arch}'\n")
    assert "unsupported-gpu-architecture" not in found
    assert "newer toolkit" not in " ".join(fix for each in found.values() for fix in each.fix)


@pytest.mark.parametrize(("nvcc", "arch"), [("11.4", "compute_90"), ("12.4", "sm_120")])
def test_one_that_is_too_new_was_not_dropped(nvcc: str, arch: str) -> None:
    found = causes(f"Cuda compilation tools, release {nvcc}\nnvcc fatal   : Unsupported gpu architecture '{arch}'\n")
    assert "gpu-architecture-removed" not in found
    assert f"this one is {nvcc}" in found["unsupported-gpu-architecture"].fix[0]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("Configured CUDA binary not found", "native-binary-missing"),
        ("https://developer.download.nvidia.com/compute/cudnn/9/cudnn.tar.xz\nHTTP request sent, awaiting response... 404 Not Found", "missing-cudnn-lib"),
        ("curl: (22) The requested URL returned error: 404\n+ curl -fLO https://developer.download.nvidia.com/compute/redist/cudnn/v8/x.tgz", "missing-cudnn-lib"),
        ("urllib.error.HTTPError: HTTP Error 404: Not Found\nhttps://developer.download.nvidia.com/compute/cudnn/x.tgz", "missing-cudnn-lib"),
        ("g++: error: unrecognized command-line option '-std=c++20'", "host-compiler-too-old"),
        ('cc1plus: error: unrecognized command line option "-std=gnu++20"', "host-compiler-too-old"),
    ],
)  # fmt: skip
def test_wordings_of_the_cases(log: str, cause: str) -> None:
    assert next(iter(causes(log))) == cause


def test_a_compiler_too_old_is_not_a_standard_too_new() -> None:
    told = fixes("c++: error: unrecognized command-line option '-std=c++20'")
    assert "does not know C++20" in told
    assert "-std=c++11" not in told


@pytest.mark.parametrize(
    ("log", "option"),
    [
        (
            "ModuleNotFoundError: No module named 'torch'\nERROR Backend subprocess exited when trying to invoke get_requires_for_build_wheel",
            "--require torch",
        ),
        ("x.cpp:1:10: fatal error: cusparse.h: No such file or directory", "--with cusparse"),
        ("x.cpp:1:10: fatal error: cublas_v2.h: No such file or directory", "--with cublas"),
        ("/usr/bin/ld: cannot find -lcufft: No such file or directory", "--with cufft"),
        (
            "Cuda compilation tools, release 13.0\nnvcc fatal   : Unsupported gpu architecture 'compute_60'",
            "--set force-archs=true",
        ),
        ("RuntimeError: Ninja is required to load C++ extensions", "--require ninja"),
    ],
)
def test_inside_a_build_its_own_options_are_advised_first(log: str, option: str) -> None:
    assert option in next(iter(causes(log, building=True).values())).fix[0]
    assert "cuwheel build" not in fixes(log)


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("pkg_resources", "'setuptools<81'"),
        ("pkg_resources.extern", "'setuptools<81'"),
        ("yaml", "pyyaml"),
        ("skbuild", "scikit-build"),
        ("fancy_tools.sub", "fancy_tools"),
    ],
)
def test_a_missing_module_is_asked_for_by_the_name_of_its_distribution(module: str, distribution: str) -> None:
    log = f"Traceback (most recent call last):\nModuleNotFoundError: No module named '{module}'\n"
    first = next(iter(causes(log, building=True).values())).fix[0]
    assert f"--require {distribution}`" in first
    assert ("if that is the name" in first) == (distribution == "fancy_tools")


def test_no_distribution_is_advised_for_what_python_or_the_project_itself_has() -> None:
    """A name of the project's own may be anybody's on an index."""
    log = "ModuleNotFoundError: No module named '{}'\n"
    assert "--require" not in fixes(log.format("imp"), building=True)
    own = fixes(log.format("build_helpers"), facts={"own_modules": "src build_helpers"}, building=True)
    assert "--require" not in own
    assert "PYTHONPATH={source}" in own


@pytest.mark.parametrize(
    ("log", "component", "variable"),
    [
        ("x.cpp:1:10: fatal error: nvjpeg.h: No such file or directory", "nvjpeg", "CPATH={toolkit}/include"),
        ("/usr/bin/ld: cannot find -lcufft: No such file or directory", "cufft", "LIBRARY_PATH={toolkit}/lib"),
    ],
)
def test_a_part_that_the_toolkit_has_is_not_asked_for_again(log: str, component: str, variable: str) -> None:
    there = fixes(log, facts={"toolkit_parts": f"cudart {component}"}, building=True)
    assert "--with" not in there
    assert variable in there
    assert f"--with {component}" in fixes(log, facts={"toolkit_parts": "cudart"}, building=True)


@pytest.mark.parametrize(
    "words",
    [
        'CMake Error: The source directory "/b/src" does not appear to contain CMakeLists.txt.',
        "cc1plus: fatal error: csrc/m.cpp: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: 'requirements.txt'",
        "error: package directory 'fancy' does not exist",
    ],
)
def test_an_incomplete_source_is_not_taken_for_a_missing_gpu(words: str) -> None:
    log = f"No CUDA runtime is found, using CUDA_HOME='/b/toolkit'\n{words}\n"
    assert list(causes(log, building=True)) == ["source-incomplete"]
    assert "git clone" in fixes(log, building=True)
    assert "no-nvidia-driver-or-gpu" in causes("No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n")


def test_the_upstream_report_has_what_maintainers_ask_for(tmp_path: Path) -> None:
    error = "src/kernels/attention_forward.cu(12): error: " + "a very long message " * 6 + "that ends here"
    words = ["-c", "a.cu", "-o", "a.o"]
    made = records.record(
        tmp_path / "r",
        records.call(words, status=1, err="nvcc fatal   : Unsupported gpu architecture 'compute_120'"),
        status=1,
    )
    (tmp_path / "r" / "blame-1.json").write_text(
        json.dumps({"answer": "In r it fails: with CUDA_HOME unset it works."})
    )
    told = investigation.markdown(api.explain(made.folder, on="rtx 5060 ti")).partition("## Draft")[2]
    assert "with CUDA" in told
    assert "unset it works" in told
    assert "/opt/cuda/bin/nvcc -c a.cu -o a.o" in told
    assert "gpu: GeForce RTX 5060 Ti" in told
    assert "- system: " in told
    assert f"- cuwheel: {__version__}" in told
    call = records.call(
        ["-c", "a.cu"],
        status=1,
        cwd=r"C:\two words",
        program=r"C:\Program Files\nvcc.exe",
        changed={"INCLUDE": r"C:\x"},
    )
    made = records.record(tmp_path / "windows", call, status=1)
    told = investigation.markdown(api.explain(made.folder)).partition("## Draft")[2]
    assert 'cd /d "C:\\two words"\nset "INCLUDE=C:\\x"\n"C:\\Program Files\\nvcc.exe" -c a.cu' in told
    log = f"OS: Ubuntu 24.04.1 LTS (x86_64)\n/usr/local/cuda-12.4/bin/nvcc -O3 -c attention.cu -o attention.o\nRuntimeError: CUDA error: no kernel image is available {error}\n"
    told = investigation.markdown(api.explain(io.BytesIO(log.encode()))).partition("## Draft")[2]
    assert told.splitlines()[2] == "**Title:** The binary holds no code for this GPU (nvcc 12.4)"
    assert "that ends here" in told
    assert "system: Ubuntu 24.04.1" in told
    assert "nvcc -O3 -c attention.cu" in told
    assert "gpu: not known" in told


def test_a_damaged_blame_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.record(
        tmp_path / "r",
        records.call(["-c", "a.cu"], status=1, err="nvcc fatal   : Unsupported gpu architecture 'sm_120'"),
        status=1,
    )
    (tmp_path / "r" / "blame-1.json").write_text("[[[")
    assert main(["explain", str(tmp_path / "r"), "--report", str(tmp_path / "x.md")]) == 0
    capsys.readouterr()
    assert "Not tried yet: `cuwheel record diff" in (tmp_path / "x.md").read_text()


@pytest.mark.parametrize(
    ("gpu", "made_with"),
    [("GTX 1080", "CUDA 8.0 to 12.9"), ("RTX 5090", "CUDA 12.8 or later"), ("RTX 3090", "CUDA 11.1 or later")],
)
def test_the_toolkits_that_compile_for_a_gpu_have_two_ends(gpu: str, made_with: str) -> None:
    log = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    assert f"made with {made_with})" in fixes(f"NVIDIA GeForce {gpu}\n{log}")


def test_what_cmake_kept_back_is_in_the_record(tmp_path: Path) -> None:
    """CMake tries nvcc, says that it is broken and not why; the record has why."""
    trial = records.call(
        ["-c", "/b/CMakeFiles/CMakeScratch/TryCompile-1/main.cu", "-o", "main.o"],
        status=1,
        err="nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    )
    said = "CMake Error at CMakeLists.txt:3 (message):\n  Error compiling the kernels: nvcc failed\n"
    made = records.record(tmp_path / "r", trial, records.call(["-c", "a.cu", "-o", "a.o"]), status=1)
    found = failures.stop(made, said)
    assert [each.id for each in found.causes[:1]] == ["unsupported-gpu-architecture"]
    assert found.call is not None
    assert found.call.number == 1


def test_a_wheel_at_hand_can_be_compiled_ahead(tmp_path: Path) -> None:
    """By which command, and in about how long."""
    log = tmp_path / "x.log"
    log.write_text("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.")
    wheel = make_wheel(tmp_path, {"foo/libfoo.so": fixture("ptx-130.so")}, version="1.0")
    found = api.explain(log, on="h100", wheel=wheel)
    (way,) = (each for each in found.ways_out if each.id == "prebuilt-wheel")
    assert "first start takes longer (less than a second" in way.text
    assert f"cuwheel graft {wheel.name} --compile sm_90 -o OUT" in way.text
