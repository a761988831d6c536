from __future__ import annotations

import pytest

from cuwheel.cli import values
from cuwheel.errors import UsageError


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.5", "٣"])
def test_what_is_no_count_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="is not a positive integer"):
        values.count(text)


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "nan", "inf"])
def test_what_is_no_time_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="seconds"):
        values.seconds(text)


def test_numbers() -> None:
    assert values.count("12") == 12
    assert values.seconds("1.5") == 1.5
