"""A verb that another distribution brings is as good as one of cuwheel's own, and costs those nothing."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.building import config
from cuwheel.cli import frame, main
from cuwheel.errors import ConfigurationError
from cuwheel.support import extensions
from cuwheel.support.verbs import SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERBS = """\
from cuwheel.support.verbs import Verb, Word

ROW = Verb("frob", "say how a file frobs", "FILE", ("frob",), ("frob.Frob",))
FROB = Word(package="cuwheel_frob", shown=ROW, verbs=(ROW,), table="settings.Settings")
BROKEN = 7
"""
_CLI = """\
from cuwheel.cli import places
from cuwheel.cli.options import Command, Option


def _frob(args):
    from cuwheel_frob.report.frob import Frob

    return Frob(file=str(args.file), twice=args.twice, succeeded=not args.twice)


FROB = Command(
    "  cuwheel frob a.so    once",
    (Option("FILE", "what frobs", places.file), Option("--twice", "once more")),
    _frob,
)
"""
_REPORT = """\
from typing import Literal

from cuwheel.report.document import Document, Heading
from cuwheel.support.answer import Answer


class Frob(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.frob/1"] = "cuwheel.frob/1"
    file: str
    twice: bool
    succeeded: bool


def document(answer, *, verbose):
    return Document("frob", (Heading(f"{answer.file} frobs"),))
"""
_SETTINGS = """\
from msgspec import Struct


class Settings(Struct, frozen=True, kw_only=True):
    depth: int = 1
"""


@pytest.fixture
def frob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed distribution with the verb `frob`; one whose verb cannot be loaded, and one that takes `check`."""
    package = tmp_path / "site" / "cuwheel_frob"
    (package / "report").mkdir(parents=True)
    texts = {"__init__": "", "verbs": _VERBS, "cli": _CLI, "settings": _SETTINGS}
    for name, text in {**texts, "report/__init__": "", "report/frob": _REPORT}.items():
        (package / f"{name}.py").write_text(text)
    info = tmp_path / "site" / "cuwheel_frob-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cuwheel-frob\nVersion: 1.0\n")
    lines = ("frob = cuwheel_frob.verbs:FROB", "lost = cuwheel_frob.nowhere:X", "odd = cuwheel_frob.verbs:BROKEN")
    taken = "check = cuwheel_frob.verbs:FROB"
    (info / "entry_points.txt").write_text("\n".join((f"[{extensions.GROUP}]", *lines, taken)))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.so").touch()
    for each in (extensions._entry_points, extensions.find_word):
        each.cache_clear()
    yield
    for each in (extensions._entry_points, extensions.find_word):
        each.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == "cuwheel_frob"]:
        del sys.modules[name]


@pytest.mark.usefixtures("frob")
def test_it_answers_as_every_verb_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frob", "a.so"]) == 0
    assert "a.so frobs" in capsys.readouterr().out
    assert main(["frob", "a.so", "--twice", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "schema": "cuwheel.frob/1", "file": "a.so", "twice": True, "succeeded": False,
    }  # fmt: skip


@pytest.mark.usefixtures("frob")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["frob", "a.so", "--twise"], 2, "unknown option --twise; did you mean --twice?"),
        (["frob", "nowhere.so", "--x"], 2, "problems"),
        (["frbo"], 2, "did you mean 'cuwheel frob'?"),
        (["lost"], 5, "cuwheel-frob: its verb `cuwheel lost` cannot be loaded: ModuleNotFoundError"),
        (["odd"], 5, "is no cuwheel.support.verbs.Word"),
    ],
)
def test_mistakes(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("frob")
def test_help_and_completion_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "frob" in capsys.readouterr().out.partition("more: ")[2]
    with pytest.raises(SystemExit):
        main(["frob", "--help"])
    shown = capsys.readouterr().out
    assert "Say how a file frobs." in shown
    assert "--twice" in shown
    assert main(["completion", "bash"]) == 0
    assert "twice" in capsys.readouterr().out


@pytest.mark.usefixtures("frob")
def test_no_word_of_cuwheel_is_taken() -> None:
    assert "check" not in extensions.words()
    command, _ = frame.understood(["check", "a.so", "--on", "h100"])
    assert command.run.__module__ == "cuwheel.cli.cmd_check"


@pytest.mark.usefixtures("frob")
@pytest.mark.parametrize("line", ["depth = 2", "depth = 'deep'", "deepth = 2"])
def test_its_table_of_a_configuration_is_checked(tmp_path: Path, line: str) -> None:
    (tmp_path / "cuwheel.toml").write_text(f'for = ["h100"]\n[frob]\n{line}\n')
    if line != "depth = 2":
        with pytest.raises(ConfigurationError, match="frob"):
            config.find_configuration(tmp_path, None, {})
        return
    assert config.find_configuration(tmp_path, None, {}).table.for_ == ("h100",)
    settings = importlib.import_module("cuwheel_frob.settings").Settings
    assert config.table_of_verb("frob", settings, tmp_path).depth == 2


def test_what_is_missing_is_asked_for_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extensions, "find_word", lambda _name: None)
    assert main(["lab", "trials", "run", "TRIALS.toml", "--json"]) == 14
    told = json.loads(capsys.readouterr().out)
    assert told["message"] == "cuwheel-lab is not installed, and cuwheel lab needs it"
    assert told["hint"] == "pip install 'cuwheel[lab]'"


@pytest.mark.parametrize("verb", SHOWN)
def test_nothing_is_looked_up_for_a_verb_of_cuwheel(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`importlib.metadata` alone takes longer to import than `cuwheel --version` may."""

    def looked_up(**_group: object) -> None:
        pytest.fail(f"entry points were looked up for {verb}")

    monkeypatch.setattr(metadata, "entry_points", looked_up)
    extensions._entry_points.cache_clear()
    for words in ([verb, "--no-such-option"], [verb, "--help"]):
        with contextlib.suppress(SystemExit):
            assert main(words) in (0, 2)
