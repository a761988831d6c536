"""Work in copies of the process gives what it gives in one, and a copy that dies loses nothing."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from cuwheel.support import process as process_module
from cuwheel_core.errors import UnreadableError

HERE = os.getpid()


def _prepare() -> None:
    assert os.getpid() != HERE


def _square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def _die_in_a_copy(number: int) -> int:
    if os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _refuse(number: int) -> int:
    raise UnreadableError(f"file {number}", "cannot be read")


@pytest.fixture(autouse=True)
def _several_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_processors", lambda: 4)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # pytest's own aside


def test_in_order_and_elsewhere() -> None:
    found = process_module.map_in_copies(_square, range(20), _prepare)
    assert [value for value, _ in found] == [number * number for number in range(20)]
    assert HERE not in {process for _, process in found}


def test_one_processor_or_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert {process for _, process in process_module.map_in_copies(_square, range(4), _prepare)} == {HERE}
    assert process_module.map_in_copies(_square, [], _prepare) == []


def test_a_copy_that_is_killed() -> None:
    assert process_module.map_in_copies(_die_in_a_copy, range(4), _prepare) == [0, 1, 2, 3]


def test_an_error_is_the_one_that_happened() -> None:
    with pytest.raises(UnreadableError, match="file 0: cannot be read"):
        process_module.map_in_copies(_refuse, range(4), _prepare)
