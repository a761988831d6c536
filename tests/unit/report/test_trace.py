"""What the report of a trace says of a start: only what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report import trace as report
from cuwheel.tracing import workload
from tests.unit.tracing.test_workload import LIBRARY, load, process, written

if TYPE_CHECKING:
    from pathlib import Path


def rows(folder: Path, *loads: dict[str, object], first: float = 6.0) -> list[str]:
    found = workload._read(written(folder, loads=list(loads), processes=[process(first_launch=first)]))
    answer = report.Traced(
        command=(),
        status=0,
        exit_status=0,
        processes=found.processes,
        libraries=found.libraries,
        loads=found.loads,
        failures=(),
        unread=0,
    )
    return [each.value for each in report._start(answer)]


def compiled(at: float, milliseconds: float, *, cached: bool = False) -> dict[str, object]:
    return load(1, LIBRARY, at=at, seconds=milliseconds / 1000, how="jit", jit_ms=milliseconds, cached=cached)


def test_the_share_of_a_start_that_was_compiling(tmp_path: Path) -> None:
    start, share = rows(tmp_path, compiled(1.0, 900.0), compiled(2.0, 1000.0), load(2, LIBRARY, at=3.0, seconds=0.1))
    assert start == "first kernel after 6.0 s; loading code took 2,000 ms of that"
    assert share.startswith(
        "1.9 s of these 6.0 s are the driver compiling 2 PTX modules of libfoo.so: it has no machine"
    )


def test_what_is_compiled_after_the_start_is_no_part_of_it(tmp_path: Path) -> None:
    start, later = rows(tmp_path, compiled(7.0, 300.0))
    assert "loading code took 0 ms" in start
    assert later.startswith("later the driver compiled 1 PTX module of libfoo.so")


def test_what_came_from_the_cache_or_took_no_time_is_not_told(tmp_path: Path) -> None:
    assert len(rows(tmp_path, compiled(1.0, 900.0, cached=True), compiled(1.0, 3.0))) == 1
