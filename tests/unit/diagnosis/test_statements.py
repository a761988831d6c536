"""What is said of a thing in words that no signature has: too old, too new, of another version; what else it may be."""

from __future__ import annotations

import pytest

from cuwheel.diagnosis import text
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.pattern import check_pattern
from cuwheel.diagnosis.rows import texts_of_statement


def ids(log: str) -> list[str]:
    return [each.id for each in explain(text.parse(log + "\n")).causes]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("RuntimeError: renderer needs CUDA toolkit 12.4 or newer, but 11.8 was found", "toolkit-too-old"),
        ("CMake Error at CMakeLists.txt:9 (message):\n  CUDA Version < 12.2 is not supported", "toolkit-too-old"),
        ("CMake Error at CMakeLists.txt:9 (message):\n  CUDA Version > 12 is not supported", "toolkit-too-new"),
        (
            "RuntimeError: CUDA Driver version found is 11040. Minimum requirement is 12000",
            "driver-too-old-for-runtime",
        ),
        ("ValueError: fp8 tiles require compute capability 8.9 or higher", "gpu-too-old-for-feature"),
        ("RuntimeError: cuDNN graphs require cuDNN version >= 9.7, found 9.1", "cudnn-version-mismatch"),
        ("ERROR: TensorRT engine was serialized with a different version than 10.11", "tensorrt-engine-mismatch"),
        ("NCCL WARN Mismatched NCCL version detected : rank 0 version 21805 rank 1", "cuda-lib-version-conflict"),
    ],
)
def test_in_words_of_its_own(line: str, cause: str) -> None:
    assert ids(line)[0] == cause


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA version found is 12.8. Minimum requirement is 11.8",  # it is new enough
        "Requirement already satisfied: cmake>=3.18 in /venv/lib/python3.12/site-packages (3.31)",
        "Collecting nvidia-cuda-runtime-cu12>=12.4",
    ],
)
def test_nothing_where_the_versions_are_as_wanted(line: str) -> None:
    assert ids(line) == []


def test_every_wording_can_be_searched_for() -> None:
    for says in ("too-old", "too-new", "other"):
        for each in texts_of_statement(says, ("cuDNN", "NVIDIA driver")):
            check_pattern(each)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("cannot enable executable stack as shared object requires: Invalid argument", "not-cuda"),
        ("CPU ISA level is lower than required", "not-cuda"),
        ("failed to map segment from shared object", "permission-denied"),
        ("invalid ELF header", "no-compatible-wheel"),
        ("wrong ELF class: ELFCLASS32", "no-compatible-wheel"),
        ("cannot open shared object file: No such file or directory", "missing-cuda-runtime-lib"),
    ],
)
def test_each_ending_of_the_loader_is_a_cause_of_its_own(said: str, cause: str) -> None:
    assert cause in ids(f"ImportError: libcublas.so.12: {said}")[:2]


def test_of_two_causes_that_explain_each_other_the_surer_is_first() -> None:
    log = "`CUDA extension for tuner not found`\nImportError: libcudart.so.12: cannot open shared object file"
    first = explain(text.parse(log)).causes[0]
    assert not first.follows
    assert first.confidence > 0.8


def test_a_doubtful_cause_has_others_beside_it_and_a_sure_one_has_not() -> None:
    conflict = (
        "/usr/bin/ld: warning: libcublas.so.11, needed by /opt/lib/libsolver.so, may conflict with libcublas.so.12"
    )
    doubtful = explain(text.parse(conflict)).causes
    assert [each.id for each in doubtful[:2]] == ["cuda-lib-version-conflict", "package-built-for-other-cuda"]
    assert doubtful[0].confidence > doubtful[1].confidence
    assert all(each.evidence for each in doubtful)
    assert len(ids("nvcc fatal   : Unsupported gpu architecture 'compute_120'")) == 1
