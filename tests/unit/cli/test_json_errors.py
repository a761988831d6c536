"""With `--json` there is always one object on stdout: the answer, or why there is none."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import sys
from typing import Any

import jsonschema
import pytest

import cuwheel
from cuwheel import api, errors
from cuwheel.cli import frame, main, streams
from cuwheel.report.answer import SCHEMAS, Error
from cuwheel.support import quoting
from cuwheel.support.answer import Answer
from cuwheel_core import errors as core_errors
from tests.fixtures.verbs import CALLED, ROWS

COMMANDS = [list(each.words) for each in CALLED.values()]
_SCHEMA = json.loads((SCHEMAS / "error-1.json").read_text())


def _told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The object on stdout, held to its schema, its status and the text on stderr."""
    status = main(words)
    shown = capsys.readouterr()
    found: dict[str, Any] = json.loads(shown.out)
    jsonschema.validate(found, _SCHEMA)
    assert found["schema"] == "cuwheel.error/1"
    assert found["status"] == status
    assert found["message"] in shown.err
    for fix in found["fixes"]:
        assert fix["text"] in shown.err
        assert [
            each
            for each in fix["commands"]
            if not re.search(rf"(?m)^(?:hint:|) *{re.escape(quoting.here(each))}$", shown.err)
        ] == []
    assert bool(found["hint"]) == bool(found["fixes"])
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_wrong_command_line_of_any_verb_is_told_as_an_object(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    told = _told([*words, "--json", "--no-such-option"], capsys)
    assert (told["error"], told["status"]) == ("UsageError", 2)
    assert "cuwheel " in told["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chekc", "--json"], "unknown verb 'chekc'"),
        (["--json", "check"], "options must come after the verb"),
        (["lookup", "--json"], "lookup needs gpu or cuda"),
        (["check", "--json"], "required: TARGET"),
        (["check", "a.so", "--on", "h10,h11", "--driver", "x", "--json"], "2 problems"),
        (["toolchain", "--json"], "needs an action"),
    ],
)
def test_what_is_wrong_before_a_verb_begins(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in _told(words, capsys)["message"]


@pytest.mark.parametrize(
    "words",
    [
        ["record", "--way", "no", "make", "--json"],
        ["record", "--no-such-option", "--", "make", "--json"],
        ["trace", "--no-such-option", "-o", "a.json", "--", "python", "--json"],
        ["trace", "--read", "nowhere", "pytest", "--json"],
    ],
)
def test_an_option_of_the_command_that_is_run_is_not_ours(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().out == ""


def _examples() -> list[BaseException]:
    made: dict[type[core_errors.CuwheelError], tuple[Any, ...]] = {
        errors.ConfigurationError: ("a.toml", ["no", "never"]),
        core_errors.UnknownNameError: ("GPU", "h10"),
        errors.NotInstalledError: ("torch", "/venv"),
        core_errors.AmbiguousNameError: ("GPU", "6000", ["A", "B"]),
        core_errors.UnreadableError: ("a.so", "is gone"),
        core_errors.MalformedError: ("a.so", "is no ELF file"),
        errors.NewerSchemaError: ("a.json", "cuwheel.machine/2", "cuwheel.machine/1"),
        errors.ToolError: (["nvcc"], "failed", "line\nlast"),
        errors.NotStartedError: (["make"], "was not found"),
        errors.ToolTimeoutError: (["nvcc"], 3.0),
        errors.NetworkError: ("https://user:hunter22@example.com/simple", "403"),
        core_errors.FactsError: (["one", "two"],),
        core_errors.UnsafeWheelError: ("a.whl", ["../x"]),
        errors.MissingExtraError: (["uv"], "building", "build"),
    }
    kinds = [
        each
        for each in {**vars(core_errors), **vars(errors)}.values()
        if inspect.isclass(each) and issubclass(each, core_errors.CuwheelError)
    ]
    return [
        *(
            kind(*made.get(kind, ("it went wrong", "try again")))
            for kind in kinds
            if kind is not core_errors.CuwheelError
        ),
        OSError(28, "No space left on device", "out.json"),
        ZeroDivisionError("oh"),
        KeyboardInterrupt(),
    ]


@pytest.mark.parametrize("error", _examples(), ids=lambda error: type(error).__name__)
def test_every_class_of_error_is_told_as_an_object(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_names: str) -> None:
        raise error

    monkeypatch.setattr(api, "gpus", broken)
    told = _told(["lookup", "gpu", "--json"], capsys)
    if isinstance(error, core_errors.CuwheelError):
        assert (told["error"], told["status"]) == (type(error).__name__, error.exit_code)
        assert getattr(cuwheel, told["error"]) is type(error)
    else:
        named = {OSError: ("UnreadableError", 4), KeyboardInterrupt: ("Interrupted", 130)}
        assert (told["error"], told["status"]) == named.get(type(error), ("Bug", 70))
    assert "hunter22" not in told["message"]


def test_there_is_never_a_second_object(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody interrupts, or the disk is full, when the answer is being written."""

    def write_half(text: str) -> None:
        sys.stdout.write(text[:40])
        raise KeyboardInterrupt

    monkeypatch.setattr(streams, "write_utf8", write_half)
    assert main(["lookup", "gpu", "h100", "--json"]) == errors.EXIT_INTERRUPTED
    assert capsys.readouterr().out.count("schema") == 1


def test_an_object_that_nobody_reads_is_no_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    nowhere: list[bool] = []
    monkeypatch.setattr(streams, "prepare", lambda: None)
    monkeypatch.setattr(streams, "_answered", False)
    monkeypatch.setattr(streams, "lead_stdout_nowhere", lambda: nowhere.append(True))
    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["lookup", "gpu", "rtx 4900", "--json"]) == 3
    assert nowhere
    assert "no GPU named 'rtx 4900'" in capsys.readouterr().err


def test_an_answer_gives_what_json_prints(capsys: pytest.CaptureFixture[str]) -> None:
    answer = cuwheel.gpus("h100")
    assert main(["lookup", "gpu", "h100", "--json"]) == 0
    assert answer.to_json() == capsys.readouterr().out
    assert answer.to_dict() == json.loads(answer.to_json())
    assert answer.to_dict()["schema"] == "cuwheel.gpus/1"


@pytest.mark.parametrize(("word", "verb"), ROWS.values(), ids=ROWS)
def test_every_answer_of_every_function_can_be_written(word: Any, verb: Any) -> None:
    places = [(word.module_of_answer(each), each.rpartition(".")[2]) for each in verb.answers]
    answers = [getattr(importlib.import_module(module), name) for module, name in places]
    assert [each for each in answers if not issubclass(each, Answer)] == []
    package = importlib.import_module(word.package)
    for function in verb.functions:
        returned = inspect.signature(getattr(package, function.rpartition(".")[2])).return_annotation
        if returned != "None":
            assert issubclass(getattr(package, returned), Answer), function


def test_secrets_of_an_answer_are_masked_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    answer = Error(error="NetworkError", message="refused: correct-horse-battery", status=9)
    assert "correct-horse" not in answer.to_json()
    assert answer.to_dict()["message"] == "refused: ***"


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check", "--json", "--help"])
    assert stop.value.code == 0
    assert "schema" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("record --json make", True),
        ("record -o out --json make", True),
        ("record make --json", False),
        ("record run --json -- make", True),
        ("lab matrix m.toml --json", True),
        ("toolchain --json install 13.0", True),
        ("record -- make --json", False),
        ("check a.so", False),
    ],
)
def test_who_asked_for_json(words: str, wanted: bool) -> None:  # noqa: FBT001 - of a table
    assert frame.wants_json(words.split()) == wanted
