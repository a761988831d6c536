"""Words behind which other words are commands: `lookup gpu`, `record diff`, `lab trials`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from cuwheel.cli import frame, main
from tests.fixtures.verbs import CALLED, WORDS

if TYPE_CHECKING:
    from cuwheel.support.verbs import Family


def test_a_program_that_is_called_like_a_command_is_recorded_behind_dashes() -> None:
    _, args = frame.understood(["record", "--", "replay", "this"])
    assert args.command == ["replay", "this"]


@pytest.mark.parametrize("words", [["lookup", "--help"], ["lab", "-h"]])
def test_a_family_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {word} " in shown for word in cast("Family", WORDS[words[0]].shown).commands)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", [["lookup"], ["lab", "nothing"]])
def test_a_family_needs_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"cuwheel {words[0]} --help" in capsys.readouterr().err


ACTIONS = [(*each.words, action) for each in CALLED.values() for action in each.command.actions]


@pytest.mark.parametrize("words", ACTIONS, ids=" ".join)
def test_an_action_shows_its_own_options(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: cuwheel {' '.join(words)} ")
    assert f"cuwheel {' '.join(words)}" in shown.partition("examples:")[2]
    assert max(map(len, shown.splitlines())) <= 80


def test_an_action_shows_no_option_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["toolchain", "list", "--help"])
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--to" not in shown
    assert "--lock" not in shown
