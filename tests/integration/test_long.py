"""`./run test --all`, `./run gpu` and `./run wine`: what passed is remembered, and what is missing is named."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import long
from tests.gpu import __main__ as gpu
from tests.gpu import windows_code
from tests.wine import __main__ as wine
from tests.wine import windows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TESTS = """
import os, pytest
def test_good(): pass
def test_bad(): assert os.path.exists({mended!r}), "not yet"
def test_absent(): pytest.skip("no such thing here")
@pytest.fixture
def broken(): raise OSError("no disk")
def test_of_broken(broken): pass
def test_crash(): os.path.exists({mended!r}) or os._exit(3)
"""


@pytest.fixture
def journal(tmp_path: Path) -> long.Journal:
    (tmp_path / "tree" / "tests" / "unit").mkdir(parents=True)
    return long.Journal(tmp_path / "state" / "all.jsonl", long.Contents(tmp_path / "tree"))


def test_a_second_run_goes_on(tmp_path: Path) -> None:
    """Under several workers, one of which dies: what passed is left out, all else is tried again."""
    mended, results, passed = tmp_path / "mended", tmp_path / "all.jsonl", tmp_path / "passed"
    (tmp_path / "test_it.py").write_text(TESTS.format(mended=str(mended)))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.long",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:anyio",
        "-n",
        "2",
        "-c",
        tmp_path / "pytest.ini",
    ]
    words += ["--rootdir", tmp_path, "--results", results, "--part", "it", "--passed", passed, tmp_path / "test_it.py"]
    journal = long.Journal(results, long.Contents())
    told = []
    for _ in range(2):
        passed.write_text("\n".join(journal.done()))
        done = subprocess.run(words, cwd=long.ROOT, capture_output=True, text=True, check=False, timeout=600)
        told.append(done.stdout)
        mended.touch()
    first, last = results.read_text(), {row.name.rpartition("::")[2]: row for row in journal.rows()}
    assert first.count("test_good") == 1, told
    assert first.count('"name": "test_it.py::test_bad"') == 2, told
    assert {name for name, row in last.items() if row.passed} == {"test_good", "test_bad", "test_crash"}, told
    assert last["test_absent"].skipped == {"no such thing here": 1}
    assert list(last["test_of_broken"].failed.values()) == ["OSError: no disk"]
    rows = [json.loads(line) for line in first.splitlines() if line]
    assert any("crashed" in why for row in rows for why in row["failed"].values())


_TEST_FILES = ("tests/unit/test_a.py", "tests/unit/test_b.py", "lab/tests/unit/test_c.py")


@pytest.mark.parametrize(
    ("changed", "stale"),
    [
        ("tests/unit/test_a.py", {"tests/unit/test_a.py::test", "the whole"}),
        ("tests/unit/test_b.py", {f"{name}::test" for name in _TEST_FILES} | {"the whole"}),
        ("lab/tests/unit/test_c.py", {"lab/tests/unit/test_c.py::test", "the whole"}),
        ("src/x.py", {f"{name}::test" for name in _TEST_FILES} | {"the whole"}),
        ("build/x.py", set()),
        ("src/prebuilt/x.exe", set()),
    ],
)
def test_a_result_holds_for_what_it_depends_on(tmp_path: Path, changed: str, stale: set[str]) -> None:
    """A test file is its own tests' matter, unless another imports it."""
    for name in (*_TEST_FILES, "src/x.py", "build/x.py", "src/prebuilt/x.exe"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("from tests.unit.test_b import x\n" if name.endswith("_a.py") else "")
    names = (*(f"{name}::test" for name in _TEST_FILES), "the whole")
    before = {name: long.Contents(tmp_path).of(name) for name in names}
    (tmp_path / changed).write_text("from tests.unit.test_b import y\n")
    assert {name for name in names if long.Contents(tmp_path).of(name) != before[name]} == stale


def test_the_table_counts_everything(journal: long.Journal, capsys: pytest.CaptureFixture[str]) -> None:
    def parts(name: str, **counts: object) -> None:
        journal.end(name, 0.0, **counts)

    def stops() -> None:
        raise KeyboardInterrupt

    every = {
        "good": lambda: parts("good", passed=3),
        "poor": lambda: parts("poor", passed=1, failed={"x": "why"}, skipped={"no Wine": 2}),
        "stopped": stops,
        "never": lambda: parts("never", passed=1),
    }
    assert long.go(every, journal, head="head") == 130
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:4] for line in lines if line.startswith(("| good", "| poor", "| st", "| nev"))] == [
        ["| good", "3", "0", "0"],
        ["| poor", "1", "1", "2"],
        ["| stopped (not to its end)", "0", "0", "0"],
        ["| never (not to its end)", "0", "0", "0"],
    ]
    assert "- `x`: why" in lines
    assert "| 2 | no Wine |" in lines
    assert lines[-1] == "4 passed, 1 failed, 2 skipped"
    # Once more: the good part is not run again, and there is no time for a long one.
    every["good"] = stops
    every["stopped"] = lambda: parts("stopped", passed=1)
    assert long.go(every, journal, head="head") == 1
    del every["poor"]
    assert long.go(every, journal, head="head") == 0
    every["more"] = stops
    assert long.go(every, journal, head="head", within=60.0, part_s=61.0) == 1


def test_files_that_change_meanwhile_make_no_table(
    journal: long.Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edited() -> None:
        journal.end("a", 0.0, passed=1)
        (tmp_path / "tree" / "changed.py").write_text("x = 1")

    (tmp_path / "tree").mkdir(exist_ok=True)
    assert long.go({"a": edited}, journal, head="head") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "files changed while the tests ran" in shown.err


def test_a_line_that_was_cut_short_is_passed_over(journal: long.Journal) -> None:
    journal.end("a", 0.0, passed=1)
    with journal.path.open("a") as file:
        file.write('{"part": "b", "na')
    assert [row.part for row in journal.rows()] == ["a"]
    journal.end("c", 0.0, passed=1)
    assert [row.part for row in journal.rows()] == ["a", "c"]


@pytest.mark.parametrize(
    ("words", "needs", "expected"),
    [
        (["-c", "import sys; open(sys.argv[1], 'w').write('2')", "{out}"], (), {"passed": 2}),
        (["-c", "raise SystemExit(3)"], (), {"failed": ["it: ended with status 3"]}),
        (["-c", "import sys; open(sys.argv[1], 'w').write('2'); sys.exit(1)", "{out}"], (), {"failed": ["status 1"]}),
        (["-c", "import time; time.sleep(600)"], (), {"failed": ["ended with status 124"]}),
        ([], ("nothing_of_this_name",), {"skipped": ["it: there is no nothing_of_this_name"]}),
    ],
)
def test_a_part_on_a_gpu(
    journal: long.Journal,
    monkeypatch: pytest.MonkeyPatch,
    words: Sequence[str],
    needs: Sequence[str],
    expected: dict[str, object],
) -> None:
    monkeypatch.setattr(gpu, "HOME", journal.path.parent)
    monkeypatch.setattr(gpu, "PART_S", 1.0 if "time" in str(words) else 600.0)
    journal.path.parent.mkdir()
    part = gpu.Part(name="it", words=words, needs=needs, counts=lambda report: {"passed": int(report.read_text())})
    gpu.run_part(part, journal)
    (row,) = journal.rows()
    told = {"failed": list(row.failed.items()), "skipped": list(row.skipped), "passed": row.passed}
    for name, wanted in expected.items():
        found = told.pop(name)
        assert found == wanted if name == "passed" else str(wanted)[2:-2].rpartition("it: ")[2] in str(found)
    assert not any(told.values())


def test_a_report_of_no_library_is_no_success(tmp_path: Path) -> None:
    """As where what was to be examined did not travel."""
    report = tmp_path / "code.json"
    assert windows_code.tell(report, {}) == 1
    assert gpu.of_code(report) == {"passed": 0, "failed": {"device code": "no library was examined"}}
    assert windows_code.tell(report, {"a.dll": {"refused": [], "right": [True]}}) == 0
    assert gpu.of_code(report) == {"passed": 1, "failed": {}}


def test_what_wine_skips_is_told(journal: long.Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    piece = wine.Piece(name="a", seconds=1.0, passed=2, skipped=("no links", "no links", "no GPU"), failed=("x",))
    monkeypatch.setattr(wine, "prepare", lambda: None)
    monkeypatch.setattr(wine, "pieces", lambda _: [("a",)])
    monkeypatch.setattr(wine, "run_whole", lambda *_: [piece])
    long.run_under_wine("under-wine", journal, tmp_path / "log")
    row, end = journal.rows()
    assert (row.passed, row.skipped, list(row.failed)) == (2, {"no links": 2, "no GPU": 1}, ["x"])
    assert end.name == long.ended("under-wine")


def test_what_wine_lacks_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert windows.missing() == ("Wine and MinGW are not installed: apt install wine wine64 gcc-mingw-w64-x86-64-win32")
    _program(tmp_path / "wine", "wine-8.0")
    assert windows.missing() == "MinGW is not installed: apt install gcc-mingw-w64-x86-64-win32"


def test_wines_folder_is_of_the_programs_that_made_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that was made without MinGW, or by another Wine, is not taken."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CUWHEEL_TEST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    found = []
    for version, mingw in (
        ("wine-8.0", "gcc 12"),
        ("wine-9.0", "gcc 12"),
        ("wine-9.0", "gcc 13"),
        ("wine-8.0", "gcc 12"),
    ):
        for name in ("wine", "wineboot", "wineserver"):
            _program(tmp_path / "bin" / name, version)
        _program(tmp_path / "bin" / windows.COMPILER, mingw)
        windows.prefix.cache_clear()
        found.append(windows.prefix())
    windows.prefix.cache_clear()
    assert len(set(found)) == 3
    assert found[0] == found[3]


def _program(path: Path, version: str) -> None:
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
