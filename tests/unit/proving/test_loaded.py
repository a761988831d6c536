"""What a check loaded, from lines that come from inside of programs: whatever they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.proving.runner import loaded
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.12/site-packages"


def row(library: str, **known: Any) -> dict[str, Any]:
    plain = {"offsets": [], "images": 0, "kernels": [], "compiled": 0, "compile_ms": 0.0}
    return {"library": library, **plain, **known}


def written(folder: Path, *events: dict[str, Any] | str, name: str = "trace-1-2.jsonl") -> Path:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    (folder / name).write_text("\n".join([*lines, ""]))
    return folder


@systems.LINUX_PATHS
def test_loads_and_launches_by_library(tmp_path: Path) -> None:
    """As the runtime of CUDA 13 goes: a library, its kernel, the function of that, a launch."""
    root = tmp_path.resolve()
    path = f"{root}/{SITE}/foo/libfoo.so"
    written(
        tmp_path,
        {"event": "process", "time": 0},
        {"event": "load", "time": 1, "file": path, "offset": 64, "handle": "L1"},
        {"event": "load", "time": 1, "file": path, "offset": 4096, "handle": "L2", "jit": 700_000_000},
        {"event": "handle", "time": 2, "api": "cuLibraryGetKernel", "of": "L1", "handle": "K1", "name": "fill"},
        {"event": "handle", "time": 2, "api": "cuKernelGetFunction", "of": "K1", "handle": "F1", "jit": 8_000_000},
        {"event": "launch", "time": 3, "kernel": "F1"},
        {"event": "launch", "time": 3, "kernel": "unknown"},
        {"event": "load", "time": 4, "kind": "cubin", "caller": "/usr/lib/libother.so", "handle": "M"},
    )
    assert loaded.read_loaded(tmp_path, str(root)) == [
        row("foo/libfoo.so", offsets=[64, 4096], kernels=["fill"], compiled=2, compile_ms=708.0),
        row("libother.so", images=1),
    ]


@pytest.mark.parametrize("line", ["", "[]", "{", "3", '{"event": []}', '{"event": "load", "file": 3, "offset": "x"}'])
def test_any_line(tmp_path: Path, line: str) -> None:
    written(tmp_path, line, {"event": "load", "file": "/x/liba.so", "offset": 1, "handle": "h"})
    assert row("liba.so", offsets=[1]) in loaded.read_loaded(tmp_path, "/env")


def test_several_checks_as_one() -> None:
    one = row("a.so", offsets=[5, 1], images=1, kernels=["k"], compiled=2, compile_ms=250.0)
    two = row("a.so", offsets=[1, 9], kernels=["k", "l"], compiled=1, compile_ms=1000.0)
    merged = loaded.merge_loaded([{"loaded": [one]}, {"loaded": [two]}, {}])
    wanted = row("a.so", offsets=[1, 5, 9], images=1, kernels=["k", "l"], compiled=3, compile_ms=1250.0)
    assert merged == [wanted]
    assert loaded.loaded_in_words(merged) == ["a.so: 3 pieces, 2 kernels launched, 1 made in memory"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], ""),
        ([{"compiled": 0, "compile_ms": 0.0}], "nothing"),
        ([{"compiled": 3, "compile_ms": 1250.0}, {"compiled": 0, "compile_ms": 0.0}], "3 pieces of PTX, 1.2 s"),
        ([{"compiled": 3, "compile_ms": 1250.0}, {}], "unknown: it was not measured"),
    ],
)
def test_what_the_driver_compiled(rows: list[dict[str, Any]], words: str) -> None:
    """An older kit did not measure it."""
    known = [{**row(str(number)), "compiled": None, **each} for number, each in enumerate(rows)]
    assert loaded.compiling_in_words(known) == words
    assert loaded.compiling_in_words(loaded.merge_loaded([{"loaded": known}])) == words


def test_nothing_was_written(tmp_path: Path) -> None:
    assert loaded.read_loaded(tmp_path / "absent", "/env") == []
