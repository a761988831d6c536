"""What it may be instead: told beside every first cause that is not certain, with what tells the two apart."""

# ruff: noqa: E501 - lines as programs print them
from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.diagnosis import inquiry
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel.report import investigation

if TYPE_CHECKING:
    from pathlib import Path

LIBCUDA = "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n"
GENERATOR = "CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage\nC:\\build> The C compiler identification is unknown\n"


@pytest.mark.parametrize(
    ("log", "first", "instead"),
    [
        ("PreconditionNotMetError: Cannot load cudnn shared library.", "missing-cudnn-lib", "cudnn-version-mismatch"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "no-nvidia-driver-or-gpu", "container-without-gpu-runtime"),
        ("fatal error: cusparse.h: No such file or directory", "cuda-headers-missing", "wrong-nvcc-picked-up"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "out-of-memory-during-compile", "compiler-crashed"),
    ],
)  # fmt: skip
def test_the_same_message_may_have_another_cause(log: str, first: str, instead: str) -> None:
    found = explain(parse(log + "\n")).causes
    assert found[0].id == first
    assert not found[0].when
    assert len(found) <= 3
    others = {each.id: each for each in found if each.when}
    assert instead in others
    assert others[instead].fix
    assert sum(each.confidence for each in others.values()) <= 1 - found[0].confidence + 0.011  # of rounding


def test_a_cause_that_is_certain_stands_alone() -> None:
    certain = explain(
        parse(
            "-- The CUDA compiler identification is NVIDIA 12.2.140\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
        )
    ).causes
    assert certain[0].confidence == pytest.approx(0.99)
    assert len(certain) == 1


def test_only_what_is_possible_there() -> None:
    found = explain(parse("/home/u/src/a.cpp:1: error: #error This header requires at least C++17\n")).causes
    assert found[0].id == "host-compiler-too-old"
    assert len(found) > 1
    assert "msvc-missing-compile-flag" not in [each.id for each in found]
    windows = explain(
        parse("C:\\src> nvidia-smi has failed because it couldn't communicate with the NVIDIA driver\n")
    ).causes
    assert windows
    assert not [each.when for each in windows if "lsmod" in each.when or "/proc" in each.when]


def test_people_read_a_line_of_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LIBCUDA)
    assert main(["explain", str(log)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "If that is not it container-without-gpu-runtime when `nvidia-smi` works on the host, and not inside" in shown
    )
    assert main(["explain", str(log), "--verbose"]) == 0
    assert "when `nvidia-smi` works on the host" in " ".join(capsys.readouterr().out.split())


def test_the_investigation_has_them_too() -> None:
    answer = api.explain(io.BytesIO(LIBCUDA.encode()))
    written = investigation.markdown(answer)
    assert "So it is when `nvidia-smi` works on the host" in written
    assert written.count(LIBCUDA.strip()) < len(answer.causes) + 2


def test_a_failed_build_tells_what_its_output_shows() -> None:
    assert [each.id for each in explain(parse(LIBCUDA)).causes if each.when] == ["container-without-gpu-runtime"]
    assert not [each.id for each in inquiry.causes(LIBCUDA) if each.when]
