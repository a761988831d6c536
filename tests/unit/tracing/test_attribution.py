"""From lines that processes wrote to loads and failures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cuwheel.report.answer import document_of
from cuwheel.report.tables import Facts
from cuwheel.tracing import attribution, events

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.tracing.traced import Failure, Traced

pytestmark = pytest.mark.unit

PROCESS = {"event": "process", "time": 0, "pid": 7, "parent": 1, "program": "/usr/bin/python3", "at": 1}
H200 = {"event": "device", "time": 1, "device": 0, "major": 9, "minor": 0, "driver_cuda": 13000, "name": "NVIDIA H200"}
PTX = {"event": "load", "time": 10, "took": 9_000_000, "api": "cuModuleLoadData", "kind": "ptx", "target": " sm_75"}


def attributed(folder: Path, *lines: object, succeeded: bool = True) -> Traced:
    text = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in (PROCESS, H200, *lines))
    (folder / "trace-7-1.jsonl").write_text(text)
    return attribution.attributed(events.read_events(folder), succeeded=succeeded)


def test_a_kernel_is_followed_from_its_module_to_its_launch(tmp_path: Path) -> None:
    found = attributed(
        tmp_path,
        {**PTX, "handle": "a", "ptx_isa": " 8.0", "jit": 8_500_000},
        {"event": "handle", "time": 20, "api": "cuLibraryGetModule", "handle": "b", "of": "a"},
        {"event": "handle", "time": 21, "api": "cuModuleGetFunction", "handle": "c", "of": "b", "name": "_Z1fv"},
        {"event": "launch", "time": 22, "kernel": "c"},
    )
    load = found.loads[0]
    assert (load.how, load.arch, load.jit_ms, load.cached) == ("jit", "compute_75", 8.5, False)
    assert load.launched == ("_Z1fv",)
    assert found.processes[0].kernels == 1


def test_what_the_driver_had_compiled_before_is_told_apart(tmp_path: Path) -> None:
    load = attributed(tmp_path, {**PTX, "ptx_isa": " 8.0", "jit": 1_730}).loads[0]
    assert load.cached is True


def test_time_in_the_compiler_means_nothing_where_machine_code_fits(tmp_path: Path) -> None:
    """The driver calls its compiler for every load."""
    head = bytearray(64)
    head[:4], head[8], head[48:52] = b"\x7fELF", 7, (90).to_bytes(4, "little")
    cubin = {**PTX, "kind": "cubin", "head": head.hex(), "jit": 23_000_000}
    load = attributed(tmp_path, cubin).loads[0]
    assert (load.how, load.arch, load.jit_ms, load.cached) == ("native", "sm_90", None, None)


def test_ptx_that_is_newer_than_the_driver_says_so(tmp_path: Path) -> None:
    found = attributed(
        tmp_path,
        {**PTX, "handle": "a", "ptx_isa": " 9.3"},
        {"event": "failure", "time": 30, "api": "cuModuleGetFunction", "error": 222, "library": "a", "name": "_Z1fv"},
        succeeded=False,
    )
    failure = found.failures[0]
    assert failure.demangled == "f()"
    assert "PTX ISA 9.3" in failure.reason
    assert "compiles up to 9.0" in failure.reason


def test_lines_that_are_damaged_are_counted(tmp_path: Path) -> None:
    found = attributed(
        tmp_path, '{"event": "load", "time"', "[]", '{"event": "dance", "time": 1}', {**PTX, "size": "x"}
    )
    assert found.unread == 4
    assert not found.loads


def test_times_that_no_clock_has_are_damage(tmp_path: Path) -> None:
    found = attributed(tmp_path, PTX | {"time": 10**400}, PTX | {"took": 10**400}, PTX | {"jit": -1})
    assert found.unread == 3
    assert not found.loads


def test_the_same_failure_is_told_once_with_its_number(tmp_path: Path) -> None:
    line = {"event": "failure", "time": 30, "api": "cuMemAlloc_v2", "error": 2, "bytes": 4_000_000_000}
    found = attributed(tmp_path, line, line, line, succeeded=False)
    assert [(each.times, each.reason) for each in found.failures] == [
        (3, "4.0 GB were asked for, and so much in one piece is not free")
    ]


def test_names_that_are_not_ascii_come_back(tmp_path: Path) -> None:
    name = "/opt/modèles/libé.so"
    line = {**PTX, "caller": "".join(map(chr, name.encode()))}
    assert attributed(tmp_path, line).loads[0].caller == name


def test_an_error_that_no_table_knows_is_shown_by_its_number(tmp_path: Path) -> None:
    failure = attributed(tmp_path, {"event": "failure", "time": 3, "api": "cuInit", "error": 12345}).failures[0]
    assert failure.error.name == "error 12345"


def test_a_report_of_nothing_says_what_cannot_be_seen(tmp_path: Path) -> None:
    answer = attribution.attributed((), succeeded=True, command=("./program", "--token", "hunter2hunter2"), status=0)
    assert answer.command == ("./program", "--token", "***")
    shown = str(document_of(answer, verbose=False).blocks)
    assert "linked statically" in shown
    assert events.read_events(tmp_path) == ()


def test_compiling_that_took_long_is_told(tmp_path: Path) -> None:
    found = attributed(
        tmp_path,
        {**PTX, "handle": "a", "ptx_isa": " 8.0", "jit": 1_900_000_000, "caller": "/x/libcufft.so.12"},
        {"event": "launch", "time": 6_000_000_000, "kernel": "c", "name": "k"},
    )
    shown = document_of(found, verbose=False)
    rows = [row.value for block in shown.blocks if isinstance(block, Facts) for row in block.rows]
    assert "1.9 s of these 6.0 s are the driver compiling 1 PTX module of libcufft.so.12" in "\n".join(rows)


def test_a_launch_that_is_told_of_a_late_error_is_not_blamed(tmp_path: Path) -> None:
    line = {"event": "failure", "time": 3, "api": "cuLaunchKernel", "error": 710, "name": "_Z1gv", "last": ["_Z1fv"]}
    failure = attributed(tmp_path, line, succeeded=False).failures[0]
    assert (failure.kernel, failure.last) == (None, ("f()",))


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    line = {"event": "failure", "time": 3, "api": "cuModuleLoad", "error": 209, "path": "/nowhere/code80.cubin"}
    assert attributed(tmp_path, line, succeeded=False).failures[0].library == "/nowhere/code80.cubin"


def test_what_the_runtime_returns_names_the_kernel_of_what_the_driver_said(tmp_path: Path) -> None:
    driver = {"event": "failure", "time": 3, "thread": 1, "api": "cuLibraryGetModule", "error": 209}
    runtime = {"event": "failure", "time": 4, "thread": 1, "api": "cudaLaunchKernel", "error": 209, "name": "_Z1fv"}
    found = attributed(tmp_path, driver, runtime, {**runtime, "error": 98, "name": "_Z1gv"}, succeeded=False)
    assert [(each.api, each.error.code, each.demangled) for each in found.failures] == [
        ("cuLibraryGetModule", 209, "f()"),
        ("cudaLaunchKernel", 98, "g()"),
    ]


def failed(folder: Path, error: int, **facts: object) -> Failure:
    """In a process of which these facts are known."""
    line = {"event": "failure", "time": 3, "api": "cuMemAlloc_v2", "error": error}
    (folder / "trace-8-1.jsonl").write_text(f"{json.dumps({**PROCESS, **facts})}\n{json.dumps(line)}\n")
    return attribution.attributed(events.read_events(folder), succeeded=False).failures[0]


def test_a_child_of_a_process_with_cuda_is_told_to_be_spawned(tmp_path: Path) -> None:
    assert failed(tmp_path, 3).fix == ""
    failure = failed(tmp_path, 3, forked=1)
    assert "before the fork" in failure.reason
    assert "spawn" in failure.fix


@pytest.mark.parametrize(("value", "words"), [("", "hides every GPU"), ("-1", "hides every GPU"), ("7", "is '7'")])
def test_a_variable_that_hides_gpus_is_named(tmp_path: Path, value: str, words: str) -> None:
    assert failed(tmp_path, 100).reason == ""
    assert words in failed(tmp_path, 100, visible=value).reason


def test_the_last_launches_are_told_with_their_libraries(tmp_path: Path) -> None:
    found = attributed(
        tmp_path,
        {"event": "load", "time": 1, "api": "cuModuleLoad", "path": "/opt/a.cubin", "handle": "a"},
        {"event": "handle", "time": 2, "api": "cuModuleGetFunction", "handle": "b", "of": "a", "name": "_Z1fv"},
        {"event": "launch", "time": 3, "kernel": "b"},
        {"event": "graph", "time": 4, "handle": "c", "names": ["_Z1fv"]},
        {
            "event": "failure",
            "time": 5,
            "api": "cuMemFree_v2",
            "error": 700,
            "last": [["_Z1fv", "_Z1gv"], "_Z1fv", "x"],
        },
        succeeded=False,
    )
    (failure,) = found.failures
    assert failure.last == ("a CUDA graph of f(), g()", "f()", "x")
    assert failure.last_libraries == ("/opt/a.cubin", "/opt/a.cubin", None)


def test_processes_share_a_clock(tmp_path: Path) -> None:
    for number, at in ((1, 5_000_000_000), (2, 7_000_000_000)):
        line = {**PROCESS, "pid": number, "at": at, "time": 1_000_000_000}
        (tmp_path / f"trace-{number}-1.jsonl").write_text(json.dumps(line) + "\n")
    found = attribution.attributed(events.read_events(tmp_path), succeeded=True)
    assert [(each.pid, each.began) for each in found.processes] == [(1, 0.0), (2, 2.0)]


def test_a_failure_that_was_dealt_with_is_told_in_full_when_asked(tmp_path: Path) -> None:
    end = {"event": "end", "time": 9}
    line = {
        "event": "failure",
        "time": 3,
        "api": "cuModuleLoad",
        "error": 2,
        "bytes": 5000,
        "python": '  File "a.py", line 3 in f',
    }
    answer = attributed(tmp_path, line, end)
    assert answer.failures[0].swallowed
    assert "a.py:3 in f" not in str(document_of(answer, verbose=False).blocks)
    assert "a.py:3 in f" in str(document_of(answer, verbose=True).blocks)
