"""Old spellings of verbs: each gives the same JSON, and ends with the same status, as the one that help shows today."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.cli import frame, main
from cuwheel.cli.options import command_of
from cuwheel.support.verbs import FAMILIES, SHOWN, VERBS
from tests.unit.building.recording.records import call, record

if TYPE_CHECKING:
    from collections.abc import Iterator

BIN = Path(__file__).parents[2] / "fixtures" / "bin"
OLD, NEW = str(BIN / "names-124.so"), str(BIN / "names-130.so")
TRIALS = 'command = "true"\nrepeats = 2\n[axes]\nstart = ["cold", "warm"]\n'
MATRIX = 'command = "true"\n[axes]\nstart = ["cold", "warm"]\n'
SPELLINGS = [
    ("kernels {OLD}", "inspect {OLD} --kernels"),
    ("kernels {OLD} add", "inspect {OLD} --kernels add"),
    ("kernels {OLD} nowhere", "inspect --kernels=nowhere {OLD}"),
    ("compare {OLD} {NEW}", "inspect {OLD} --against {NEW}"),
    ("compare {OLD} {NEW}", "inspect {OLD} --against {NEW}"),
    ("gpus", "lookup gpu"),
    ("gpus h100 9.0", "lookup gpu h100 9.0"),
    ("gpus nothing", "lookup gpu nothing"),
    ("toolkits 12.8", "lookup cuda 12.8"),
    ("toolkits --compiles 100f", "lookup cuda --compiles 100f"),
    ("replay rec --list", "record replay rec --list"),
    ("replay rec --print --here", "record replay rec --here --print"),
    ("replay rec:1 --diff --max-runs 0", "record diff rec:1 --max-runs 0"),
    ("replay rec:1 --diff :2 --max-runs 0", "record diff rec:1 :2 --max-runs 0"),
    ("record --matrix matrix.toml --dry-run", "record matrix matrix.toml --dry-run"),
    ("record", "record run"),
    ("trials run TRIALS.toml --dry-run", "lab trials run TRIALS.toml --dry-run"),
    ("trials report nowhere", "lab trials report nowhere"),
    ("bench nowhere.py:call", "lab bench nowhere.py:call"),
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    record(tmp_path / "rec", call(["-c", "a.cu"], status=1), call(["-c", "b.cu"]), status=1, cwd=tmp_path)
    (tmp_path / "TRIALS.toml").write_text(TRIALS)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin", "HOME": "/home/me"})
    yield
    assert {each.name for each in tmp_path.iterdir()} == {"rec", "TRIALS.toml", "matrix.toml"}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(("old", "new"), SPELLINGS)
def test_the_same_answer(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (old, new):
        status = main([*words.format(OLD=OLD, NEW=NEW).split(), "--json"])
        shown = capsys.readouterr()
        assert shown.out or shown.err
        said.append((status, shown.out, shown.err.partition("\nhint: ")[0]))
    assert said[0] == said[1]


def test_every_old_spelling_is_tried() -> None:
    hidden = VERBS.keys() - SHOWN.keys()
    assert hidden - {old.split()[0] for old, _ in SPELLINGS} == set()
    words = {f"{name} {word}" for name, family in FAMILIES.items() for word in family.commands}
    assert words - {" ".join(new.split()[:2]) for _, new in SPELLINGS} == set()


def test_a_program_that_is_called_like_a_command_is_recorded_behind_dashes() -> None:
    _, args = frame.understood(["record", "--", "replay", "this"])
    assert args.command == ["replay", "this"]


@pytest.mark.parametrize("words", [["lookup", "--help"], ["lab", "-h"]])
def test_a_family_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {word} " in shown for word in FAMILIES[words[0]].commands)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", [["lookup"], ["lab", "nothing"]])
def test_a_family_needs_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"cuwheel {words[0]} --help" in capsys.readouterr().err


WORDS = [(name, word) for name, family in FAMILIES.items() for word in family.commands]


@pytest.mark.parametrize(("name", "word"), WORDS)
def test_a_command_of_a_family_explains_itself(
    name: str, word: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([name, word, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    spelled = "record" if (name, word) == ("record", "run") else f"{name} {word}"
    assert f"  cuwheel {spelled} " in shown.partition("examples:")[2]
    assert max(map(len, shown.splitlines())) <= 80


ACTIONS = [(verb, action) for verb in VERBS for action in command_of(verb).actions]


@pytest.mark.parametrize(("verb", "action"), ACTIONS)
def test_an_action_shows_its_own_options(
    verb: str, action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([verb, action, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: cuwheel {verb} {action} ")
    assert f"cuwheel {verb} {action}" in shown.partition("examples:")[2]
    assert max(map(len, shown.splitlines())) <= 80


def test_an_action_shows_no_option_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["toolchain", "list", "--help"])
    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--to" not in shown
    assert "--lock" not in shown
