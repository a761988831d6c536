"""What the report of a trace says of a start: only what was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.cli import main
from cuwheel.report import html
from cuwheel.report import trace as report
from cuwheel.report.tables import Amount, Table
from cuwheel.tracing import traced
from tests.unit.tracing.test_workload import LIBRARY, load, process, written

if TYPE_CHECKING:
    from pathlib import Path


def rows(folder: Path, *loads: dict[str, object], first: float = 6.0) -> list[str]:
    return [each.value for each in report._start(answer(folder, [process(first_launch=first)], *loads))]


def answer(folder: Path, processes: list[dict[str, object]], *loads: dict[str, object]) -> traced.Traced:
    return traced.read_trace(written(folder, loads=list(loads), processes=processes))


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
    assert later.startswith("later the driver was compiling for 0.3 s: 1 PTX module of libfoo.so")


def test_what_came_from_the_cache_or_took_no_time_is_not_told(tmp_path: Path) -> None:
    assert len(rows(tmp_path, compiled(1.0, 900.0, cached=True), compiled(1.0, 3.0))) == 1


def test_of_many_processes_the_slowest_starts_are_told(tmp_path: Path) -> None:
    many = answer(tmp_path, [process(first_launch=number / 100) for number in range(900)])
    told = [each.value for each in report._start(many)]
    assert told[0].startswith("900 processes launched kernels")
    assert [each.partition(";")[0] for each in told[1:]] == ["first kernel after 9.0 s"] * 3


def test_a_timeline_for_perfetto_has_one_clock_and_the_threads_apart(tmp_path: Path) -> None:
    found = answer(
        tmp_path,
        [process(began=0.0), process(began=2.0)],
        {**compiled(1.0, 900.0), "thread": 7, "process": 0},
        {**load(2, LIBRARY, at=1.0, seconds=0.5), "thread": 8, "process": 1},
    )
    spans = [each for each in json.loads(report.timeline_json(found))["traceEvents"] if each["ph"] == "X"]
    assert [(each["ts"], each["dur"], each["pid"], each["tid"], each["name"]) for each in spans] == [
        (1e6, 9e5, 0, 7, "libfoo.so"),
        (1e6, 9e5, 0, 7, "compiling PTX"),
        (3e6, 5e5, 1, 8, "libfoo.so"),
    ]


def test_a_failure_without_a_failed_call_says_what_is_not_seen(tmp_path: Path) -> None:
    found = replace(answer(tmp_path, [process(kernels=3)]), exit_status=209)
    shown = str(report.document(found, verbose=False).blocks)
    assert "CUDA 11's loads its code in private" in shown
    assert "where some kernels came from" in shown


def test_a_timeline_of_no_time_is_drawn(tmp_path: Path) -> None:
    found = answer(tmp_path, [process(seconds=0.0, first_launch=None)], load(1, LIBRARY, at=0.0, seconds=0.0))
    assert "Loads over time" in html.page(report.document(found, verbose=True))


def test_the_bar_of_a_library_is_the_share_of_it_that_was_loaded(tmp_path: Path) -> None:
    found = answer(tmp_path, [process()], load(1, LIBRARY, at=1.0, seconds=0.1))
    (library,) = found.libraries
    table = report._libraries([replace(library, bytes=400, loaded_bytes=100)])
    assert [cell.share for row in table.rows for cell in row if isinstance(cell, Amount)] == [0.25]


def _used(kernel: str, path: str | None, launches: int | None, number: int = 0) -> traced.KernelUse:
    return traced.KernelUse(
        process=number, kernel=kernel, demangled=None, library=path, package=None, launches=launches
    )


def test_kernels_are_a_table_over_all_processes_with_their_time_where_it_is_known(tmp_path: Path) -> None:
    time = traced.KernelTime(process=0, kernel="slow", demangled=None, launches=4, seconds=0.002)
    found = replace(
        answer(tmp_path, [process()], load(1, LIBRARY)),
        kernels=(
            _used("fast", LIBRARY, 900),
            _used("slow", LIBRARY, 3),
            _used("fast", LIBRARY, 100, 1),
            _used("k", None, None),
        ),
    )
    (table,) = [each for each in report._kernels(found, verbose=False) if isinstance(each, Table)]
    shown = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    assert shown == [["fast", "libfoo.so", "1,000"], ["slow", "libfoo.so", "3"], ["k", "", "not told"]]
    (table,) = [
        each for each in report._kernels(replace(found, times=(time,)), verbose=False) if isinstance(each, Table)
    ]
    assert [column.title for column in table.columns] == ["kernel", "library", "launches", "together", "each"]
    first = [cell if isinstance(cell, str) else cell.text for cell in table.rows[0]]
    assert first == ["slow", "libfoo.so", "4", "2.000 ms", "500.0 µs"]  # CUPTI sees those of graphs too


def test_what_threads_load_at_the_same_time_is_drawn_one_below_the_other(tmp_path: Path) -> None:
    loads = [load(number, LIBRARY, at=at, seconds=1.0) for number, at in enumerate((0.0, 0.5, 1.0))]
    drawn = report._timeline(answer(tmp_path, [process(seconds=2.0)], *loads))
    assert [[bar.began for bar in row] for row in drawn.rows] == [[0.0, 1.0], [0.5]]
    assert drawn.labels == ("1: python train.py", "")


def test_a_trace_that_was_kept_is_read_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(tmp_path, [process(first_launch=1.0)], compiled(0.5, 300.0))
    api.save_trace(replace(found, status=3, exit_status=3), output=tmp_path / "again.json")
    assert main(["trace", "--read", str(tmp_path / "again.json"), "--json"]) == 3
    assert capsys.readouterr().out == (tmp_path / "again.json").read_text()
    (tmp_path / "lines").mkdir()
    assert main(["trace", "--read", str(tmp_path / "lines"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["processes"] == []


def test_of_a_command_that_runs_there_is_no_json_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--json", "--", "true"]) == 2
    shown = capsys.readouterr()
    assert "--json is for --read alone" in shown.err
    assert json.loads(shown.out)["hint"] == "cuwheel trace -o trace.json -- COMMAND"
    with pytest.raises(SystemExit):
        main(["trace", "--help"])
    assert "--json             with --read: " in capsys.readouterr().out
