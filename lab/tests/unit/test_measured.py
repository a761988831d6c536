"""What `lab trials`, `lab bench` and `record` say on a terminal of 80 columns: each thing once, commands whole."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from cuwheel.report import terminal
from cuwheel.report.answer import document_of
from cuwheel.report.document import Document
from cuwheel.report.tables import Facts, Row
from cuwheel_lab.measuring.analysis import Effect, Side, Trials
from cuwheel_lab.measuring.bench import Bench, Change, FirstCall, Level
from cuwheel_lab.measuring.matrix import Cell, Matrix
from cuwheel_lab.measuring.rates import Ratio

if TYPE_CHECKING:
    from cuwheel.support.answer import Answer
    from cuwheel_lab.measuring.analysis import Verdict

LEVEL = Level(concurrency=4, calls=900, errors=0, error="", throughput=900, p50=0.004, p95=0.005, p99=0.008, blocks=())


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shown(answer: Answer, *, verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    terminal.write(document_of(answer, verbose=verbose), stream)
    return stream.getvalue().splitlines()


def test_a_command_beside_a_name_stays_on_one_line() -> None:
    """Cut between its words, a shell would run the first half."""
    command = f"cuwheel record replay {'/long' * 15}/record:7"
    stream = io.StringIO()
    rows = (Row("in", "a b"), Row("again", command, "note", command=True))
    terminal.write(Document("", (Facts(rows),)), stream)
    assert stream.getvalue().splitlines() == ["  in     a b", f"  again  {command}", "         note"]


def bench(*changes: Change) -> Bench:
    return Bench(
        what="./solver",
        by="threads",
        label="this",
        levels=(LEVEL,),
        import_seconds=0.0,
        first_call=FirstCall(import_seconds=0.0, seconds=0.011),
        earlier=changes,
        earlier_file="before.json",
        noise=0.05,
        gpus=(),
        driver=None,
        moments=(),
        seconds=1.0,
        tool="cuwheel",
        line="900/s at 4 at once",
    )


def change(value: float, *, worse: bool) -> Change:
    return Change(concurrency=4, ratio=Ratio(value=value, low=value - 0.01, high=value + 0.01), worse=worse)


def test_a_bench_beside_an_earlier_one_begins_with_whether_it_is_slower() -> None:
    slower = shown(bench(change(0.9, worse=True)))
    assert slower[0] == "Slower than before.json: -10 % calls/s at 4 at once. ./solver: 900/s at 4 at"
    assert shown(bench(change(1.0, worse=False)))[0].startswith("Not slower than before.json. ./solver: 900/s")
    assert shown(bench())[0].startswith("Not measured at the same numbers at once: before.json. ./solver")


def test_a_command_imports_nothing() -> None:
    assert "  ./solver  first call 11 ms" in shown(bench())


def effect(axis: str, verdict: Verdict) -> Effect:
    side = Side(value="cold", runs=9, failures=7, rate=0.8, interval=(0.5, 0.9))
    other = Side(value="warm", runs=9, failures=0, rate=0.0, interval=(0.0, 0.3))
    sides = (side, other)
    says = f"{axis} in a sentence"
    return Effect(axis=axis, sides=sides, p=0.01, p_plain=0.01, verdict=verdict, difference=(0.2, 0.9), says=says)


def test_what_is_not_decided_is_told_once() -> None:
    answer = Trials(
        file="TRIALS.toml",
        folder=f"/srv{'/long' * 12}/cuwheel-trials",
        repeats=9,
        axes={},
        runs=18,
        failures=7,
        effects=(effect("start", "prevents"), effect("kind", "not decided")),
    )
    brief = shown(answer)
    assert brief[:2] == [
        "7 of 18 runs failed; not finished",
        f"  go on: cuwheel lab trials run TRIALS.toml -o {answer.folder} --resume",
    ]
    assert [line for line in brief if "in a sentence" in line] == ["  start  start in a sentence"]
    assert sum("in a sentence" in line for line in shown(answer, verbose=True)) == 2


def test_a_matrix_that_is_to_be_run_is_a_list_of_commands() -> None:
    answer = Matrix(
        file="matrix.toml", folder="out", axes=("file",), cells=(Cell(choices={"file": "a"}, command=("cc", "a.c")),)
    )
    assert shown(answer) == ["matrix.toml: 1 configuration", "  a:", "    cc a.c"]
