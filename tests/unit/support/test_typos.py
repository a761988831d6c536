from __future__ import annotations

import pytest

from cuwheel_core.facts import gpus
from cuwheel_core.support import wording


@pytest.mark.parametrize(
    ("one", "other", "slips"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("", "abc", 3),
        ("4900", "4090", 0.5),
        ("h1oo", "h100", 0.5),
        ("chek", "check", 1),
    ],
)
def test_slips_are_counted(one: str, other: str, slips: float) -> None:
    assert gpus.slips_between(one, other) == gpus.slips_between(other, one) == slips


def test_the_nearest_of_some_names_or_none() -> None:
    names = ("inspect", "check", "doctor")
    assert wording.nearest_name("Chekc", names) == "check"
    assert wording.nearest_name("instal", names) is None
    assert wording.nearest_name("x", ()) is None


def test_a_long_word_takes_no_time() -> None:
    assert wording.nearest_name("x" * 1_000_000, ("check",)) is None
