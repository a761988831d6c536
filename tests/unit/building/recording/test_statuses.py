from __future__ import annotations

import pytest

from cuwheel.building.recording import calls


@pytest.mark.parametrize(
    ("status", "words", "shell"),
    [
        (0, "0", 0),
        (2, "2", 2),
        (-11, "-11", 139),
        (0xC0000135, "0xC0000135 (a DLL was not found)", 0xC0000135 - 2**32),
        (0xC0FFEE00, "0xC0FFEE00", 0xC0FFEE00 - 2**32),
        (2**40, str(2**40), 2**40),
    ],
)
def test_an_end_in_words_and_for_a_shell(status: int, words: str, shell: int) -> None:
    assert calls.status_words(status) == words
    assert calls.shell_status(status) == shell


def test_an_end_that_is_not_known() -> None:
    assert calls.status_words(None) == "None"
