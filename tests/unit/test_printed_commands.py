"""Commands of rules, causes and ways out: each is one that its program takes."""

from __future__ import annotations

import re

import msgspec
import pytest

from cuwheel.diagnosis import causes
from cuwheel.diagnosis.explain import explain
from cuwheel.diagnosis.text import parse
from cuwheel.support import finding as rules
from cuwheel.support import quoting
from tests.fixtures.printed import commands_in, has_stand_in, problem_of


@pytest.fixture(scope="module")
def printed() -> set[tuple[str, ...]]:
    """All that rules and the answers to every example have."""
    table = msgspec.toml.decode(rules.RULES_FILE.read_bytes())
    found = {tuple(words) for group in table["group"] for row in group["rule"] for words in row.get("commands", ())}
    logs = (example.log for file in causes.knowledge().causes.values() for example in file.example)
    for log in logs:
        found |= set(commands_in(msgspec.to_builtins(explain(parse(log)).causes)))
    return found


def test_each_command_of_cuwheel_is_one(printed: set[tuple[str, ...]]) -> None:
    own = sorted(each for each in printed if each[0] == "cuwheel" and not has_stand_in(each))
    assert own
    assert {each: problem for each in own if (problem := problem_of(each))} == {}


def test_each_command_is_words_that_a_shell_gives_back(printed: set[tuple[str, ...]]) -> None:
    for words in printed:
        assert all(words), words
        assert not any(re.search(r"[{}](?![^{]*\})|\s{2}|[\n\r]", each) for each in words if "$" not in each), words
        if words[0] not in ("export", "unset") and not any("$" in each for each in words):
            assert quoting.split(quoting.command_of_fix(words, "posix")) == words


def test_pip_takes_the_options_of_each_of_its_commands(printed: set[tuple[str, ...]]) -> None:
    commands = pytest.importorskip("pip._internal.commands")
    own = sorted(each for each in printed if each[0] == "pip")
    assert own
    for words in own:
        commands.create_command(words[1]).parse_args(list(words[2:]))
