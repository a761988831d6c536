"""The first fix is the one that the facts leave open: each of these was refuted by its own log once."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse

LACKING = "cannot open shared object file: No such file or directory"
OF_FLASH = "/venv/lib/python3.11/site-packages/flash_attn/ops.so"


def commands(log: str) -> list[str]:
    return [" ".join(command) for fix in explain(parse(log)).causes[0].fixes for command in fix.commands]


@pytest.mark.parametrize("value", ["'-ccbin g++-12'", "--threads=4", ""])
def test_a_variable_without_the_architecture_is_not_blamed_for_it(value: str) -> None:
    call = f"NVCC_PREPEND_FLAGS={value} nvcc -gencode arch=compute_120,code=sm_120 -c a.cu"
    refused = "nvcc fatal   : Unsupported gpu architecture 'compute_120'"
    assert not [each for each in commands(f"{call}\n{refused}\n") if each.startswith("unset")]
    asking = call.replace(f"={value} ", "='-arch=sm_120' ")
    assert commands(f"{asking}\n{refused}\n")[0] == "unset NVCC_PREPEND_FLAGS"


@pytest.mark.parametrize(
    "call",
    [
        r"C:\CUDA\v12.1\bin\nvcc.exe -IC:\CUDA\v12.9\include -c a.cu",
        "nvcc -I/usr/local/cuda-12.9/include -c a.cu\nCuda compilation tools, release 12.1, V12.1.105",
    ],
)
def test_a_folder_of_headers_says_nothing_of_nvcc(call: str) -> None:
    found = explain(parse(f"{call}\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"))
    assert [each.value for each in found.versions if each.name == "nvcc"] == ["12.1"]


def test_a_header_in_a_message_does() -> None:
    log = "/usr/local/cuda-12.4/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version!\n"
    assert [each.value for each in explain(parse(log)).versions if each.name == "nvcc"] == ["12.4"]


def test_what_wsl_has_is_not_advised_as_outside_of_it() -> None:
    log = f"Linux 5.15.167.4-microsoft-standard-WSL2\nOSError: libcuda.so: {LACKING}\n"
    fixes = explain(parse(log)).causes[0].fixes
    assert fixes[0].commands[0][0] == "export"
    assert not [each.text for each in fixes if "outside WSL" in each.text]


def test_another_major_that_is_there_comes_before_the_library() -> None:
    log = f"torch 2.9.1+cu130\n/opt/x/nvidia/cu13/lib/libcublasLt.so.13\nImportError: libcublasLt.so.12: {LACKING}\n"
    found = explain(parse(log)).causes[0]
    assert found.id == "package-built-for-other-cuda"
    told = [each.text for each in found.fixes]
    assert any("here is CUDA 13" in each for each in told[:2]), told


def test_a_package_is_built_again_without_its_dependencies() -> None:
    log = f"ImportError: {OF_FLASH}: undefined symbol: _ZN3c105ErrorC2E\n"
    building = [each for each in commands(log) if each.startswith("pip install")]
    assert building
    assert all("--no-deps" in each and ":all:" not in each for each in building)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("JetPack 6.2\nRuntimeError: operator torchvision::nms does not exist\n", "torch-torchvision-mismatch"),
        (
            "JetPack 6.2\nERROR: torch-2.5.0-cp310-cp310-linux_x86_64.whl is not a supported wheel on this platform.\n",
            "no-compatible-wheel",
        ),
    ],
)
def test_on_a_jetson_no_servers_wheel_is_advised(log: str, cause: str) -> None:
    found = explain(parse(log)).causes[0]
    assert found.id == cause
    assert "JetPack" in found.fixes[0].text
    assert not [each for each in commands(log) if "index-url" in each or each.startswith("pip install")]


@pytest.mark.parametrize("program", ["nvcc", "nvcc.exe"])
def test_nvcc_that_ends_without_a_word_is_known_by_both_its_names(program: str) -> None:
    assert explain(parse(f"{program} exited with status 1\n")).causes[0].id == "nvcc-silent-failure"


def test_what_is_recorded_need_not_be_recorded() -> None:
    log = parse("$ nvcc -c a.cu\n\nnvcc exited with status 1\n")
    (first, *_) = explain(log, facts={"record": "my record"}).causes[0].fixes
    assert first.commands[0] == ("cuwheel", "record", "replay", "my record")
    assert all(
        "--" not in command[:3]
        for each in explain(log, facts={"record": "x"}).causes[0].fixes
        for command in each.commands
    )
    assert "cuwheel record --" in explain(log).causes[0].fixes[0].text


def test_a_toolkit_that_is_there_is_not_installed() -> None:
    mismatch = "The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8).\n"
    assert "cuwheel toolchain install 11.8" in commands(f"RuntimeError:\n{mismatch}")
    there = commands(f"/usr/local/cuda-11.8/lib64\nRuntimeError:\n{mismatch}")
    assert there[0] == "export CUDA_HOME=/usr/local/cuda-11.8"
    assert not [each for each in there if "install" in each]


def test_arguments_that_changed_with_a_toolkit_are_told() -> None:
    log = "a.cu(7): error: too few arguments in function call\n      cudaMemPrefetchAsync(p, n, 0);\n"
    found = explain(parse(log)).causes[0]
    assert found.id == "toolkit-too-new"
    assert "cudaMemLocation" in found.fixes[0].text
