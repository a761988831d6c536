"""What a fix states comes from the tables, and is held against what is known: each of these was wrong once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel.support import quoting
from cuwheel.verdicts.machine_rules import examine
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Fix

NOT_FOUND = "cannot open shared object file: No such file or directory"


def shown(fix: Fix) -> str:
    """Text and commands as a person reads them, in the shell that the log is of."""
    return ": ".join(
        filter(None, (fix.text, " ".join(quoting.command_of_fix(each, fix.shell) for each in fix.commands)))
    )


def fixes(log: str, cause: str) -> str:
    found = explain(parse(log)).causes[0]
    assert found.id == cause
    return "\n".join(map(shown, found.fixes))


@pytest.mark.parametrize(
    ("log", "cause", "said", "unsaid"),
    [
        pytest.param(
            "nvcc fatal   : Unsupported gpu architecture 'compute_75'\n",
            "unsupported-gpu-architecture",
            "sm_75 is known from CUDA 10.0 on",
            "11.0",
            id="architectures of toolkits before 11.0",
        ),
        pytest.param(
            f"ImportError: libcufft.so.10.0: {NOT_FOUND}\n",
            "missing-cuda-runtime-lib",
            "libcufft.so.10.0 is CUDA 10.0's",
            "nvidia-cufft",
            id="a soname that no package has",
        ),
        pytest.param(
            f"ImportError: libcufft.so.10: {NOT_FOUND}\n",
            "missing-cuda-runtime-lib",
            "pip install nvidia-cufft-cu11",
            "CUDA 10",
            id="a soname whose number is not CUDA's",
        ),
        pytest.param(
            f'Found CUDA: /usr/local/cuda-11.8 (found version "11.8")\nImportError: libcusparse.so.12: {NOT_FOUND}\n',
            "package-built-for-other-cuda",
            "libcusparse.so.12 belongs to CUDA 12 or 13",
            "CUDA 13:",
            id="a soname of two CUDAs",
        ),
        pytest.param(
            "RuntimeError: Configured CUDA binary not found at /venv/bitsandbytes/libbitsandbytes_cuda122.so\n",
            "native-binary-missing",
            "unset BNB_CUDA_VERSION",
            "empty",
            id="bitsandbytes 0.50 takes no empty version",
        ),
        pytest.param(
            f"Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so: {NOT_FOUND}\n",
            "missing-cuda-runtime-lib",
            "libnvrtc.so",
            "nvidia-cudnn",
            id="what cuDNN needs is not cuDNN",
        ),
        pytest.param(
            "GH200 aarch64\nNVIDIA H200\nRuntimeError: CUDA error: named symbol not found\n",
            "no-kernel-image",
            "error 500 has three readings",
            "jetson-index",
            id="500 on a GPU that is no Jetson",
        ),
        pytest.param(
            "ImportError: /opt/conda/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /x/ops.so)\n",
            "glibcxx-too-old",
            "GLIBCXX_3.4.32 came with GCC 13.2",
            ">=12",
            id="the libstdc++ that has it",
        ),
        pytest.param(
            "error: failed to run custom build command for `kernels v0.8`\n"
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n",
            "unsupported-gpu-architecture",
            "12.8",
            "TORCH_CUDA_ARCH_LIST",
            id="a Rust build reads no variable of torch",
        ),
        pytest.param(
            "PS C:\\src> python setup.py install\nOSError: CUDA_HOME environment variable is not set.\n",
            "cuda-home-unset",
            '$env:CUDA_HOME = "$env:CUDA_PATH"',
            "set CUDA_HOME=",
            id="PowerShell's own words",
        ),
        pytest.param(
            "NVCC_APPEND_FLAGS='-gencode arch=compute_35,code=sm_35'\n"
            "nvcc fatal   : Unsupported gpu architecture 'compute_35'\n"
            "Cuda compilation tools, release 12.4, V12.4.131\n",
            "gpu-architecture-removed",
            "take sm_35 out of it: unset NVCC_APPEND_FLAGS",
            "nobody",
            id="the variable that asks for it",
        ),
    ],
)
def test_what_fixes_state(log: str, cause: str, said: str, unsaid: str) -> None:
    told = fixes(log, cause)
    assert said in told
    assert unsaid not in told


def test_fabric_manager_before_modules_for_802() -> None:
    told = explain(parse("RuntimeError: Error 802: system not yet initialized\n")).causes[0].fix
    assert "nvidia-fabricmanager" in told[0]
    assert "rmmod" not in told[0]


def test_a_toolkit_that_is_new_enough_is_not_too_old() -> None:
    log = "fastops requires CUDA 11.4 or later\n"
    older, newer = "release 11.2, V11.2.152", "release 11.7, V11.7.64"
    assert explain(parse(f"Cuda compilation tools, {older}\n{log}")).causes[0].id == "toolkit-too-old"
    assert explain(parse(f"Cuda compilation tools, {newer}\n{log}")).causes == ()


@pytest.mark.parametrize(
    ("rule", "log"),
    [
        (
            "bitsandbytes-library-missing",
            "RuntimeError: Configured CUDA binary not found at /venv/bitsandbytes/libbitsandbytes_cuda122.so\n",
        ),
        ("driver-older-than-framework", "The NVIDIA driver on your system is too old (found version 11040).\n"),
    ],
)
def test_one_machine_one_answer(rule: str, log: str) -> None:
    """With a profile, `explain` says what `doctor` says of the same machine."""
    for machine in (each for each in MACHINES if rule in each.expected):
        doctor = next(each for each in examine(machine.profile) if each.rule == rule)
        assert explain(parse(log), machine.profile).causes[0].fixes[0] == doctor.fixes[0]


@pytest.mark.parametrize("id_", [id_ for id_, file in knowledge().causes.items() if file.rules])
def test_what_doctor_finds_on_a_machine_is_what_explain_says_first_there(id_: str) -> None:
    """Of every cause that `doctor` has a rule for, on every machine where that rule speaks."""
    file = knowledge().causes[id_]
    for machine in (each for each in MACHINES if {*each.expected} & {*file.rules}):
        doctor = [fix for each in examine(machine.profile) if each.rule in file.rules for fix in each.fixes]
        for example in file.example:
            found = next((each for each in explain(parse(example.log), machine.profile).causes if each.id == id_), None)
            assert found is None or not doctor or found.fixes[0] in doctor, (machine.name, example.log)
