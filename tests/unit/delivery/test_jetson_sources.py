"""Where nothing is known to run on a Jetson, `find` says where its wheels come from."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement

from cuwheel.delivery.best_candidate import Choice
from cuwheel.diagnosis import causes
from cuwheel.machine.fleet import machines_named
from cuwheel.report import find


@pytest.mark.parametrize(("machine", "count"), [("orin", 5), ("thor", 5), ("h100", 0), ("gh200", 0)])
def test_a_jetson_has_sources_of_its_own(machine: str, count: int) -> None:
    found = Choice(
        name="foo", requirement=Requirement("foo"), machines=machines_named([machine]), rulings=(), taken=None
    )
    answer = found.answer
    assert len(answer.elsewhere) == count
    shown = [getattr(each, "text", "") for each in find.document(answer, verbose=False).blocks]
    assert ("Where wheels for a Jetson come from" in shown) == bool(count)


def test_no_way_out_names_the_host_of_an_index() -> None:
    for way in causes.knowledge().ways.way:
        assert not re.search(r"\b[\w-]+\.(?:io|com|org|net|dev)\b", f"{way.text} {way.general}"), way.id
