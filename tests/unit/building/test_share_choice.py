"""Shares where they pay, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.building import shares
from cuwheel.building.request import BuildRequest
from cuwheel.verdicts.planning import plans
from cuwheel.verdicts.planning.plan import PlanOptions

if TYPE_CHECKING:
    from cuwheel.verdicts.planning.plan import Job

THREE = plans.plan_for(["8.0", "8.9", "9.0"], ("13.0",), PlanOptions(native=True)).jobs
ONE = plans.plan_for(["9.0"], ("13.0",), PlanOptions(native=True, ptx=False)).jobs


@pytest.mark.parametrize(
    ("plan", "slots", "by_shares", "why"),
    [
        (THREE, 8, True, "1 wheel would leave 7 of 8 workers idle"),
        (THREE, 1, False, "1 wheel keeps the only worker busy"),
        (THREE, 0, False, "no worker is there yet"),
        (THREE * 4, 4, False, "4 wheels keep 4 workers busy"),
        (ONE, 8, False, "one architecture each"),
    ],
)
def test_on_a_cluster(plan: tuple[Job, ...], slots: int, by_shares: bool, why: str) -> None:  # noqa: FBT001
    found = shares.choose_on_cluster(BuildRequest("."), plan, slots)
    assert found.by_shares is by_shares
    assert why in found.findings[0].message


def test_here_it_needs_a_cache_that_has_most_of_them() -> None:
    assert shares.reason_for_shares(3, 2)
    assert not shares.reason_for_shares(3, 1)
    assert not shares.reason_for_shares(1, 1)


@pytest.mark.parametrize("said", [True, False])
def test_what_somebody_says_is_done(said: bool) -> None:  # noqa: FBT001
    request = BuildRequest(".", shares=said)
    assert shares.choose_on_cluster(request, THREE, 1).by_shares is said
    assert shares.choose_on_cluster(BuildRequest(".", providers=["container"]), THREE, 9).by_shares is False
