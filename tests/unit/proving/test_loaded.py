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
        {"event": "load", "time": 1, "file": path, "offset": 4096, "handle": "L2"},
        {"event": "handle", "time": 2, "api": "cuLibraryGetKernel", "of": "L1", "handle": "K1", "name": "fill"},
        {"event": "handle", "time": 2, "api": "cuKernelGetFunction", "of": "K1", "handle": "F1"},
        {"event": "launch", "time": 3, "kernel": "F1"},
        {"event": "launch", "time": 3, "kernel": "unknown"},
        {"event": "load", "time": 4, "kind": "cubin", "caller": "/usr/lib/libother.so", "handle": "M"},
    )
    assert loaded.read_loaded(tmp_path, str(root)) == [
        {"library": "foo/libfoo.so", "offsets": [64, 4096], "images": 0, "kernels": ["fill"]},
        {"library": "libother.so", "offsets": [], "images": 1, "kernels": []},
    ]


@pytest.mark.parametrize("line", ["", "[]", "{", "3", '{"event": []}', '{"event": "load", "file": 3, "offset": "x"}'])
def test_any_line(tmp_path: Path, line: str) -> None:
    written(tmp_path, line, {"event": "load", "file": "/x/liba.so", "offset": 1, "handle": "h"})
    assert {"library": "liba.so", "offsets": [1], "images": 0, "kernels": []} in loaded.read_loaded(tmp_path, "/env")


def test_several_checks_as_one() -> None:
    one = {"library": "a.so", "offsets": [5, 1], "images": 1, "kernels": ["k"]}
    two = {"library": "a.so", "offsets": [1, 9], "images": 0, "kernels": ["k", "l"]}
    (row,) = loaded.merge_loaded([{"loaded": [one]}, {"loaded": [two]}, {}])
    assert row == {"library": "a.so", "offsets": [1, 5, 9], "images": 1, "kernels": ["k", "l"]}
    assert loaded.loaded_in_words([row]) == ["a.so: 3 pieces, 2 kernels launched, 1 made in memory"]


def test_nothing_was_written(tmp_path: Path) -> None:
    assert loaded.read_loaded(tmp_path / "absent", "/env") == []
