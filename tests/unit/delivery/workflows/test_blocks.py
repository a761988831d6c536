"""Marked blocks: ours is renewed, what somebody changed stays, and so does everything else."""

from __future__ import annotations

import pytest

from cuwheel.delivery.workflows import rendering

pytestmark = pytest.mark.unit


def _text(**contents: str) -> str:
    parts = [
        f"{rendering.begin_mark(name)}\n{content}\n{rendering.end_mark(name)}\n" for name, content in contents.items()
    ]
    return rendering.seal_blocks("\n".join(parts))


def test_a_new_text_of_the_same_is_left_as_it_is() -> None:
    there = _text(plan="a: 1", build="b: 1")
    assert rendering.merge_blocks(there, there) == (there, {"plan": "same", "build": "same"})


def test_what_nobody_changed_is_renewed_and_all_around_it_stays() -> None:
    there = f"# mine\n{_text(plan='a: 1')}own:\n  job: 1 # with a comment\n{_text(build='b: 1')}# the end\n"
    made, states = rendering.merge_blocks(there, _text(plan="a: 2", build="b: 1"))
    assert states == {"plan": "renewed", "build": "same"}
    assert made == f"# mine\n{_text(plan='a: 2')}own:\n  job: 1 # with a comment\n{_text(build='b: 1')}# the end\n"


def test_what_somebody_changed_stays() -> None:
    there = _text(plan="a: 1", build="b: 1").replace("a: 1", "a: 7")
    made, states = rendering.merge_blocks(there, _text(plan="a: 2", build="b: 2"))
    assert states == {"plan": "edited", "build": "renewed"}
    assert "a: 7" in made
    assert "b: 2" in made


def test_a_block_that_is_new_comes_behind_the_one_before_it() -> None:
    there = f"{_text(plan='a: 1', publish='c: 1')}own: 1\n"
    made, states = rendering.merge_blocks(there, _text(plan="a: 1", build="b: 1", publish="c: 1"))
    assert states["build"] == "added"
    assert [each.name for each in rendering.find_blocks(made)] == ["plan", "build", "publish"]
    assert made.endswith("own: 1\n")


def test_one_that_nothing_asks_for_goes_unless_somebody_changed_it() -> None:
    there = _text(plan="a: 1", prove="b: 1", watch="c: 1").replace("c: 1", "c: 9")
    made, states = rendering.merge_blocks(there, _text(plan="a: 1"))
    assert states == {"plan": "same", "prove": "removed", "watch": "edited"}
    assert "b: 1" not in made
    assert "c: 9" in made


def test_line_ends_of_windows_are_no_change() -> None:
    there = _text(plan="a: 1\nb: 2").replace("\n", "\r\n")
    assert rendering.merge_blocks(there, _text(plan="a: 1\nb: 3"))[1] == {"plan": "renewed"}


@pytest.mark.parametrize(
    "text", ["", "# >>> cuwheel plan 000000000000\na", "# <<< cuwheel plan", "# >>> cuwheel PLAN x"]
)
def test_a_mark_without_its_other_half_is_none(text: str) -> None:
    assert rendering.find_blocks(text) == []
