"""`inspect --coverage` and the summary of `check --report`: which kernels lack code for which GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import main
from cuwheel.device_code.coverage import CoveredKernel, KernelMatrix
from cuwheel.report import kernel_matrix, markdown

if TYPE_CHECKING:
    import pytest

    from cuwheel_core.verdicts.choice import How

BIN = Path(__file__).parents[2] / "fixtures" / "bin"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["inspect", *words]) == 0
    return capsys.readouterr().out


def test_each_capability_of_the_code_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(BIN / "names-130.so"), "--coverage")
    assert "  library       kernels  7.5  9.0" in text
    assert max(map(len, text.splitlines())) <= 80


def test_kernels_that_lack_code_are_named_as_people_read_them(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(BIN / "names-130.so"), "--coverage", "--on", "h100,v100")
    assert "4 kernels in 1 library, 4 without code for some of these GPUs" in text
    assert "  shapes::fill<int, 32>             ■     –\n" in text


def test_libraries_that_lack_something_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(BIN / "plain-130.so", tmp_path / "a.so")
    shutil.copy(BIN / "family-130.so", tmp_path / "b.so")
    text = shown(capsys, str(tmp_path), "--coverage", "--on", "h100,12.0")
    assert text.index("b.so ") < text.index("a.so ")
    page = tmp_path / "page.html"
    shown(capsys, str(tmp_path), "--coverage", "--html", str(page))
    assert "add_one" in page.read_text(encoding="utf-8")


def test_the_json_is_that_of_inspect_and_more(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, str(BIN / "names-130.so"), "--coverage", "--on", "v100", "--json"))
    plain = json.loads(shown(capsys, str(BIN / "names-130.so"), "--json"))
    matrix = found.pop("kernel_matrix")
    assert found == {name: value for name, value in plain.items() if name != "kernel_matrix"}
    assert matrix["devices"] == ["v100"]
    assert matrix["libraries"] == [{"path": str(BIN / "names-130.so"), "outcomes": ["fails"]}]
    assert {tuple(each["on"]) for each in matrix["kernels"]} == {("none",)}
    assert "void shapes::fill<int, 32>(int*, int)" in {each["demangled"] for each in matrix["kernels"]}


def test_on_is_for_coverage_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(BIN / "names-130.so"), "--on", "h100"]) == 2
    assert "--coverage" in capsys.readouterr().err


def kernels(library: str, count: int, *on: How) -> tuple[CoveredKernel, ...]:
    names = [f"{'k' * 100}{number}" for number in range(count)]
    return tuple(CoveredKernel(library=library, name=each, demangled=each, on=on) for each in names)


def test_many_are_condensed_and_all_of_them_verbose() -> None:
    rows = kernels("x/a.so", 30, "native", "none")
    other = CoveredKernel(library="x/a.so", name="other", demangled="other", on=("native", "native"))
    matrix = KernelMatrix(devices=("8.0", "9.0"), libraries=(), kernels=(*rows, other), unread=0)
    brief, full = (
        "\n\n".join(markdown.render(each) for each in kernel_matrix.blocks(matrix, (), verbose=verbose))
        for verbose in (False, True)
    )
    assert brief.count("kkk") < full.count("kkk")
    assert "and 18 more" in brief
    assert "k…k" in brief
    assert all(f"{'k' * 100}{number}" in full for number in range(30))


def test_of_a_library_without_any_code_for_a_gpu_the_row_says_all() -> None:
    matrix = KernelMatrix(
        devices=("8.0", "9.0"), libraries=(), kernels=kernels("x/a.so", 30, "native", "none"), unread=0
    )
    text = "\n\n".join(markdown.render(each) for each in kernel_matrix.blocks(matrix, (), verbose=False))
    assert "| a.so | 30 | ■ | – |" in text
    assert "kkk" not in text


def test_the_summary_of_check_has_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(BIN / "family-130.so", tmp_path / "b.so")
    assert main(["check", "b.so", "--on", "h100,12.0", "--report", "out"]) == 1
    text = (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert "### Kernels of b.so" in text
    assert "| add\\_one | – | ■ |" in text
