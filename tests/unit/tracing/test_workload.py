"""Traces read as a workload: what was loaded of which build, and why a trace may not be whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.errors import NewerSchemaError
from cuwheel.tracing import traced
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "/opt/site/libfoo.so"


def library(path: str = LIBRARY, **changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("containers", "loaded", "launched", "bytes", "loaded_bytes"), 1)
    found = {"library": path, "package": None, "build_id": "ab12", "size": 900, "how": ["native"], "jit_ms": 0.0}
    return {**counts, **found, **changes}


def load(offset: int | None, path: str | None = LIBRARY, **changes: Any) -> dict[str, Any]:
    found = {
        "process": 0,
        "at": 0.1,
        "seconds": 0.0,
        "library": path,
        "package": None,
        "container": 0,
        "offset": offset,
        "caller": None,
        "kind": "fatbin",
        "size": 5,
        "arch": "sm_90",
        "archs": ["sm_90"],
        "how": "native",
        "jit_ms": None,
        "cached": None,
        "kernels": [],
        "launched": ["k"],
        "error": None,
        "hash": "",
    }
    return {**found, **changes}


def process(**changes: Any) -> dict[str, Any]:
    gpu = {"name": "H200", "capability": "9.0", "cuda": "13.0"}
    found = {
        "pid": 1,
        "parent": 0,
        "program": "python",
        "script": "train.py",
        "gpus": [gpu],
        "seconds": 1.0,
        "first_launch": 0.1,
        "ended": True,
        "kernels": 1,
        "launches": 3,
        "lost": 0,
    }
    return {**found, **changes}


def written(folder: Path, name: str = "trace.json", **changes: Any) -> Path:
    whole = {
        "schema": "cuwheel.trace/1",
        "command": ["python", "train.py"],
        "status": 0,
        "exit_status": 0,
        "unread": 0,
        "processes": [process()],
        "libraries": [library()],
        "loads": [load(64)],
        "failures": [],
        **changes,
    }
    path = folder / name
    path.write_text(json.dumps(whole))
    return path


def test_traces_are_united(tmp_path: Path) -> None:
    memory = load(None, None, caller=LIBRARY, hash="00ff")
    one = written(tmp_path, loads=[load(64), load(128), memory])
    two = written(tmp_path, "two.json", loads=[load(4096)], command=["python", "serve.py"])
    found = traced.read_workload([one, two])
    (use,) = found.uses
    assert use.offsets == {64, 128, 4096}
    assert use.images == {"00ff"}
    assert found.commands == ("python train.py", "python serve.py")
    assert found.gpus == ("9.0",)
    assert not found.problems
    assert found.use_of("ab12", 900) == use
    assert found.use_of("ab12", 901) is None  # the same build, slimmed before
    assert found.use_of(None, 900) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"loads": [], "processes": [process(kernels=0)]}, "no device code was loaded"),
        ({"processes": [process(lost=3)]}, "3 of its events were lost"),
        ({"unread": 2}, "2 of its events were lost"),
        ({"processes": [process(), process(pid=2)]}, "as with the runtime of CUDA 11"),
        ({"libraries": [library(size=None)]}, "how large every library was"),
    ],
)
def test_what_may_not_be_whole(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    (told,) = traced.read_workload([written(tmp_path, **changes)]).problems
    assert problem in told


def test_a_library_that_cannot_be_known_again_is_not_used(tmp_path: Path) -> None:
    assert not traced.read_workload([written(tmp_path, libraries=[library(build_id=None)])]).uses


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 3}', '{"schema": "cuwheel.trace/1"}', "\x00\xff", "{" * 9999]
)
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(MalformedError, match="is not a trace"):
        traced.read_workload([path])


def test_a_trace_of_a_later_cuwheel(tmp_path: Path) -> None:
    with pytest.raises(NewerSchemaError):
        traced.read_workload([written(tmp_path, schema="cuwheel.trace/2")])
