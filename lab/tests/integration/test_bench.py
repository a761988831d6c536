"""`bench` with functions whose speed is known, and some that fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.command import Told, call

import cuwheel_lab
from cuwheel.errors import ToolTimeoutError

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("--seconds", "0.4")
WORK = """\
import os, threading, time
time.sleep(0.1)  # an import that takes a while is no part of a call
SECONDS = float(os.environ.get("SECONDS", "0.004"))
first = [True]
lock = threading.Lock()
def call():
    if first.pop() if first else False:
        time.sleep(0.2)  # as a JIT would
    time.sleep(SECONDS)
    print("noise on stdout")
def alone():
    with lock:
        time.sleep(SECONDS)
def fails():
    if threading.active_count() > 3:
        raise MemoryError("no room for a third")
    time.sleep(SECONDS)
def never():
    raise ValueError("at once")
def ends():
    os._exit(9)
def hangs():
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    return tmp_path


def bench(place: Path, *words: str) -> Told:
    return call("lab", "bench", "--json", *QUICK, *words, cwd=place)


def answer(told: Told, status: int = 0) -> dict[str, Any]:
    assert told.status == status, told.stderr
    found: dict[str, Any] = told.document
    return found


@pytest.mark.parametrize("by", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_more_at_once_do_more(place: Path, by: str) -> None:
    found = answer(bench(place, "--at-once", "1,4", "--by", by, "--with", "SECONDS=0.02", "work.py:call"))
    one, four = found["levels"]
    assert (one["concurrency"], four["concurrency"]) == (1, 4)
    assert one["throughput"] < 1 / 0.018  # nobody calls more often than a call takes, on any machine
    assert 2.5 * one["throughput"] < four["throughput"] < 4 / 0.018
    assert 0.018 < one["p50"] <= one["p95"] <= one["p99"]
    assert one["errors"] == four["errors"] == 0
    assert len(one["blocks"]) == 5
    assert found["first_call"]["seconds"] > 0.2 > four["p50"]
    assert found["import_seconds"] >= 0.1
    assert "at 4 at once" in found["line"]


@pytest.mark.slow
def test_what_holds_a_lock_does_not_scale(place: Path) -> None:
    found = answer(bench(place, "--at-once", "1,4", "--with", "SECONDS=0.01", "work.py:alone"))
    one, four = found["levels"]
    assert four["throughput"] / one["throughput"] < 1.5
    assert four["p99"] / one["p50"] > 2.5  # not p50: who has the lock may take it again before the others wake


def test_threads_stay_so_that_what_each_makes_once_is_no_part_of_a_call(place: Path) -> None:
    """Streams and handles belong to a thread: after the warm-up none is made anew."""
    (place / "own.py").write_text(
        "import threading, time\nown = threading.local()\ndef call():\n"
        "    if not hasattr(own, 'made'):\n        time.sleep(0.3)\n        own.made = True\n    time.sleep(0.005)\n"
    )
    (level,) = answer(bench(place, "--at-once", "4", "own.py:call"))["levels"]
    assert level["p99"] < 0.2


def test_two_sides_by_turns_and_their_difference(place: Path) -> None:
    words = ("--with", "SECONDS=0.01", "--against", "SECONDS=0.02", "--at-once", "1,2", "work.py:call")
    found = answer(bench(place, *words))
    for each in found["differences"]:
        assert each["ratio"]["low"] < each["ratio"]["value"] < each["ratio"]["high"]
        assert 1.5 < each["ratio"]["value"] < 2.5
    assert any(each["differs"] for each in found["differences"])
    assert "times the calls of SECONDS=0.02" in found["line"]
    assert found["against"]["label"] == "SECONDS=0.02"


@pytest.mark.slow
def test_two_environments(place: Path) -> None:
    """Whole against slimmed, official against own: here two wheels that differ."""
    from tests.fixtures.small_wheel import Wheel

    for version, seconds in (("1.0", 0.01), ("2.0", 0.03)):
        Wheel(version=version, files={"subject/__init__.py": f"SECONDS = {seconds}\n"}).write(place)
    (place / "use.py").write_text("import time\nfrom subject import SECONDS\ndef call():\n    time.sleep(SECONDS)\n")
    own, official = sorted(each.name for each in place.glob("*.whl"))
    found = answer(bench(place, "--at-once", "1", "--with", own, "--against", official, "use.py:call"))
    (level,), (other,) = found["levels"], found["against"]["levels"]
    assert level["p50"] < 0.02 < other["p50"]


def test_worse_than_the_earlier_run_ends_with_1(place: Path) -> None:
    before = bench(place, "--at-once", "1,2", "--with", "SECONDS=0.01", "work.py:call")
    (place / "before.json").write_text(before.stdout)
    worse = answer(
        bench(place, "--at-once", "1,2", "--with", "SECONDS=0.03", "--earlier", "before.json", "work.py:call"), 1
    )
    assert [each["worse"] for each in worse["earlier"]] == [True, True]
    better = bench(place, "--at-once", "2", "--with", "SECONDS=0.002", "--earlier", "before.json", "work.py:call")
    assert [each["worse"] for each in answer(better)["earlier"]] == [False]


@pytest.mark.slow
def test_failed_calls_are_counted_and_end_with_1(place: Path) -> None:
    found = answer(bench(place, "--at-once", "1,4", "work.py:fails"), 1)
    one, four = found["levels"]
    assert one["errors"] == 0
    assert four["errors"] > 0
    assert four["error"] == "MemoryError: no room for a third"
    assert four["throughput"] < one["throughput"] * 4


def test_a_command(place: Path) -> None:
    (level,) = answer(bench(place, "--at-once", "2", "--", "sh", "-c", "exit 0"))["levels"]
    assert level["calls"] > level["errors"] == 0
    failing = bench(place, "--at-once", "1", "--", "sh", "-c", "[ -e ok ] || { : > ok; exit 0; }; exit 3")
    (level,) = answer(failing, 1)["levels"]
    assert level["errors"] == level["calls"] > 0
    assert "status 3" in level["error"]


@pytest.mark.parametrize(
    ("name", "words", "status", "said"),
    [
        ("work.py:never", (), 7, "ValueError: at once"),
        ("work.py:ends", (), 7, "ended before it answered"),
        ("work.py:missing", (), 7, "has no function missing"),
        ("work.py", (), 2, "must be FILE:NAME"),
        ("nowhere.py:call", (), 2, "no such file"),
    ],
)
def test_what_cannot_be_measured_is_said(
    place: Path, name: str, words: tuple[str, ...], status: int, said: str
) -> None:
    done = bench(place, *words, name)
    assert done.status == status, done.stderr
    assert said in done.stderr
    assert "hint: " in done.stderr


def test_a_call_that_does_not_come_back_ends_it(place: Path) -> None:
    with pytest.raises(ToolTimeoutError, match="did not answer within 1 s"):
        cuwheel_lab.bench(f"{place / 'work.py'}:hangs", timeout=1)


def test_options_may_stand_behind_the_function(place: Path) -> None:
    found = answer(bench(place, "--at-once", "1", "work.py:call", "--seconds", "0.3", "--by", "threads"))
    (level,) = found["levels"]
    assert (found["what"], level["concurrency"]) == ("work.py:call", 1)
    for words, said in (
        (("--call-s", "7"), "--call-s"),
        (("work.py:alone",), "work.py:alone"),
        (("--by", "x"), "--by"),
    ):
        done = bench(place, "work.py:call", *words)
        assert done.status == 2
        assert said in done.stderr


def test_mean_deviation_and_least_beside_the_median(place: Path) -> None:
    (level,) = answer(bench(place, "--at-once", "1", "work.py:call"))["levels"]
    assert 0 < level["least"] <= level["p50"] <= level["p99"]
    assert level["least"] <= level["mean"] <= level["p99"] * 2
    assert level["deviation"] >= 0


def test_calls_that_are_too_short_to_measure_are_warned_of(place: Path) -> None:
    (place / "work.py").write_text("import time\ndef short(): pass\ndef call(): time.sleep(0.001)\n")
    for name, warned in (("short", True), ("call", False)):
        done = call("lab", "bench", f"work.py:{name}", "--seconds", "0.3", "--at-once", "1", cwd=place)
        assert done.status == 0, done.stderr
        assert ("warning: a call takes" in done.stdout) is warned
        assert re.search(r"least +median +mean +± +95 % +99 %", done.stdout)


def test_an_earlier_run_that_is_none(place: Path) -> None:
    for text, status in (("{}", 5), ("[", 5), ('{"schema": "cuwheel.bench/2"}', 6), ("7", 5)):
        (place / "earlier.json").write_text(text)
        done = bench(place, "--earlier", "earlier.json", "work.py:call")
        assert done.status == status, done.stderr


def test_the_page_has_curves(place: Path) -> None:
    answer(bench(place, "--at-once", "1,2", "--html", "page.html", "work.py:call"))
    page = (place / "page.html").read_text()
    assert page.count("<polyline") >= 3
    assert "Throughput" in page
