"""Struck at every call that changes the disk: the old file or the new one, and the next run recovers.

A few seconds of each here, evenly spread; `./run campaign` strikes them all.
"""

from __future__ import annotations

import shutil

import pytest

from tests.campaign import jobs, race
from tests.campaign.__main__ import sweep

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the interposer with")
SECONDS = 2.0


@pytest.mark.parametrize("mode", ["kill", "torn", "once", "full"])
@pytest.mark.parametrize(
    "job", ["slim-wheel", "slim-environment", "slim-undo", "record", "page", "toolchain-fetch", "trials"]
)
def test_nothing_half_done(job: str, mode: str) -> None:
    found = sweep("sweep", job, mode, SECONDS)
    assert found.problems == []
    assert found.tried > 0


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        ("install", "full"),
        ("install-undo", "kill"),
        ("catalogue", "full"),
        ("trace", "kill"),
        ("ci", "torn"),
        ("graft", "kill"),
        ("graft-split", "full"),
    ],
)
def test_nothing_half_done_where_each_try_takes_seconds(job: str, mode: str) -> None:
    """`./run campaign`, and with it `--all`, has all their modes."""
    found = sweep("sweep", job, mode, SECONDS)
    assert found.problems == []
    assert found.tried > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "full"])
@pytest.mark.parametrize("job", ["install-requirements", "install-pin", "install-lock"])
def test_nothing_half_done_of_larger_installs(job: str, mode: str) -> None:
    found = sweep("sweep", job, mode, SECONDS)
    assert found.problems == []
    assert found.tried > 0


@pytest.mark.parametrize("job", ["publish", "publish-remove"])
def test_an_index_for_which_there_is_no_room(job: str) -> None:
    """Killed at random moments it is by test_publish_killed.py."""
    found = sweep("sweep", job, "full", SECONDS)
    assert found.problems == []
    assert found.tried > 0


@pytest.mark.parametrize("mode", ["kill", "torn", "once", "full"])
def test_a_lock_is_struck_at_every_call(mode: str) -> None:
    found = sweep("sweep", "toolchain-lock", mode, seconds=600)
    assert found.complete
    assert found.problems == []


@pytest.mark.parametrize("job", ["slim-environment", "record-beside"])
def test_several_at_once(job: str) -> None:
    (chosen,) = jobs.by_name([job])
    rounds, problems = race.run(chosen, 1.0)
    assert rounds > 0
    assert problems == []
