from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fixtures.lab_files import CASE_3

from cuwheel.errors import ConfigurationError, UsageError
from cuwheel_core.errors import UnreadableError
from cuwheel_lab.measuring import campaign, trials_file

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, text: str) -> trials_file.Plan:
    path = folder / "TRIALS.toml"
    path.write_text(text, encoding="utf-8")
    return trials_file.load_trials(path)


def test_one_axis_at_a_time(tmp_path: Path) -> None:
    plan = load(tmp_path, CASE_3)
    assert [tuple(each.choices.values()) for each in plan.conditions] == [
        ("cold", "--mixed", "nf4"),
        ("warm", "--mixed", "nf4"),
        ("cold", "--equal", "nf4"),
        ("cold", "--mixed", "fp4"),
    ]
    base, warm, _, other = plan.conditions
    assert base.command == ("python", "layers.py", "--mixed")
    assert (base.start, warm.start) == ("cold", "warm")
    assert other.environment == {"MODEL": "small", "QUANT": "fp4"}
    assert other.unset == ("BNB_X",)
    assert plan.failure.kinds == ("machine",)


def test_every_combination_less_what_is_excluded(tmp_path: Path) -> None:
    text = CASE_3.replace('vary = "one at a time"\n', "") + '[[exclude]]\nstart = "warm"\nquant = ["fp4"]\n'
    assert len(load(tmp_path, text).conditions) == 8 - 2


def test_a_function_gets_the_words_of_its_axes(tmp_path: Path) -> None:
    (tmp_path / "work.py").touch()
    plan = load(tmp_path, 'function = "work.py:run"\naxes.size = [1, 2]\n')
    assert [each.function.arguments for each in plan.conditions if each.function] == [{"size": "1"}, {"size": "2"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give either 'command' or 'function'"),
        ("command = 'a'\nfunction = 'b.py:c'", "give either 'command' or 'function'"),
        ("command = ''", "it is empty"),
        ("command = 'a {x}'", "unknown axis 'x'"),
        ("command = 'a'\naxes.x = ['1', '2']", "does not say where the words of 'x' go"),
        ("command = 'a \"'", "no closing quotation"),
        ("command = 'a'\nrepeats = 0", "repeats: must be from 1"),
        ("command = 'a'\nrepeats = 'many'", "repeats"),
        ("command = 'a'\ntimeout = inf", "timeout: must be a positive number"),
        ("command = 'a'\nmemory = 'lots'", "is not a size"),
        ("command = 'a'\nfailure.kinds = ['smoke']", "'smoke' is not one of status, signal"),
        ("command = 'a'\nfailure.kinds = []", "nothing would count"),
        ("command = 'a'\nfailure.tolerance = -1.0", "must be 0 or more"),
        ("command = 'a'\naxes.start = ['hot']", "'hot' is not one of cold, warm"),
        ("command = 'a'\naxes.x = []", "with at least one"),
        ("command = 'a'\naxes.x = [true]", "expected text, a number or a table"),
        ("command = 'a'\nrepeat = 3", "did you mean 'repeats'?"),
        ("command = 'a'\ndirectory = 'nowhere'", "no such folder"),
        ("command = 'a'\nenv = 'nowhere'", "not a Python environment"),
        ("command = 'a'\ncold.reboot = ''", "cold.reboot: it is empty"),
        ("function = 'work.py'", "must be FILE:NAME"),
        ("function = 'nowhere.py:run'", "no such file"),
        ("command = 'a'\naxes.x.y = {}\n[[exclude]]\nz = '1'", "unknown axis 'z'"),
        ("command = 'a'\naxes.x.y = {}\n[[exclude]]\nx = 'y'", "everything is excluded"),
        ("command = [", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert words in caught.value.message
    assert "cuwheel lab trials --help" in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        trials_file.load_trials(tmp_path / "TRIALS.toml")


def test_each_round_has_every_condition_once_in_an_order_of_its_own() -> None:
    turns = list(campaign.shuffled_turns(range(20), 3, seed=7))
    rounds = [[each.condition for each in turns if each.repeat == number] for number in range(3)]
    assert all(sorted(each) == list(range(20)) for each in rounds)
    assert len({tuple(each) for each in [*rounds, list(range(20))]}) == 4
    assert turns == list(campaign.shuffled_turns(range(20), 5, seed=7))[: len(turns)]
    assert turns != list(campaign.shuffled_turns(range(20), 3, seed=8))


def test_only_some_conditions(tmp_path: Path) -> None:
    plan = load(tmp_path, CASE_3)
    assert campaign.chosen_conditions(plan, {"start": "warm"}) == [1]
    with pytest.raises(UsageError, match="the trials have no start=hot") as caught:
        campaign.chosen_conditions(plan, {"start": "hot"})
    assert "start=cold" in caught.value.hint
    with pytest.raises(UsageError, match="no condition has all"):
        campaign.chosen_conditions(plan, {"start": "warm", "quant": "fp4"})


def test_what_makes_a_trial_what_it_is(tmp_path: Path) -> None:
    """How often it is run does not: more repeats are added to what is there."""
    plan = load(tmp_path, CASE_3)
    assert load(tmp_path, CASE_3.replace("repeats = 9", "repeats = 15\nseed = 3")).fingerprint == plan.fingerprint
    assert load(tmp_path, CASE_3.replace("small", "large")).fingerprint != plan.fingerprint
