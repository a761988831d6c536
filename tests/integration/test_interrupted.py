"""Struck at calls that change the disk: the old file or the new one, and the next run recovers.

Some calls of each here, evenly spread; `./run campaign` strikes them all.
"""

from __future__ import annotations

import shutil

import pytest

from tests.campaign.__main__ import race_of, sweep

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler to build the interposer with")
MODES = ["kill", "torn", "once", "full"]


def struck(job: str, mode: str, strikes: int | None) -> None:
    found = sweep("sweep", job, mode, 600, strikes)
    assert found.problems == []
    assert found.tried == strikes or found.complete
    assert found.tried > 0


JOBS = ("slim-wheel", "slim-environment", "slim-undo", "record", "page", "toolchain-fetch")


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        # Every job in one mode, the next one in the next; in the other modes with `--all`.
        pytest.param(job, mode, marks=[pytest.mark.slow] if (number - MODES.index(mode)) % len(MODES) else [])
        for number, job in enumerate(JOBS)
        for mode in MODES
    ],
)
def test_nothing_half_done(job: str, mode: str) -> None:
    struck(job, mode, 8)


@pytest.mark.parametrize(
    ("job", "mode"),
    [
        ("trials", "once"),
        ("install", "full"),
        ("install-undo", "kill"),
        ("publish", "full"),  # killed at random moments it is by test_publish_killed.py
        # These write as the others do: through the same file that is renamed, or the same journal.
        *(
            pytest.param(job, mode, marks=pytest.mark.slow)
            for job, mode in (
                ("catalogue", "full"),
                ("trace", "kill"),
                ("ci", "torn"),
                ("graft", "kill"),
                ("graft-split", "full"),
                ("publish-remove", "full"),
            )
        ),
    ],
)
def test_nothing_half_done_where_each_try_takes_long(job: str, mode: str) -> None:
    """`./run campaign`, and with it `--all`, has all their modes."""
    struck(job, mode, 4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "full"])
@pytest.mark.parametrize("job", ["install-requirements", "install-pin", "install-lock"])
def test_nothing_half_done_of_larger_installs(job: str, mode: str) -> None:
    struck(job, mode, 4)


@pytest.mark.parametrize(
    ("mode", "strikes"),
    [
        ("kill", 8),
        ("full", 8),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("kill", None), ("torn", 8), ("once", 8))),
    ],
)
def test_a_lock_is_struck(mode: str, strikes: int | None) -> None:
    struck("toolchain-lock", mode, strikes)


@pytest.mark.parametrize("job", ["slim-environment", pytest.param("record-beside", marks=pytest.mark.slow)])
def test_several_at_once(job: str) -> None:
    found = race_of(job, 300, most=1, at_once=2 if job == "record-beside" else 3)
    assert found.problems == []
    assert found.tried == 1


@pytest.mark.parametrize(
    "pair",
    [
        "slim+slim-undo",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("slim+slim-folder", "slim-recompress+slim-folder-undo", "slim-folder+install-undo")
        ),
    ],
)
def test_two_verbs_at_once_are_as_one_after_the_other(pair: str) -> None:
    """`./run campaign race` has all pairs."""
    found = race_of(pair, 300, most=6)
    assert found.problems == []
    assert found.tried == 6
