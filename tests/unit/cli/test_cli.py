from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import __version__, api, errors
from cuwheel.cli import frame, main
from cuwheel.cli.options import Group, command_of, flat
from cuwheel.machine import probe, profile
from cuwheel.report import schemas
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from cuwheel.support.verbs import SECTIONS, VERBS
from tests.fixtures.verbs import CALLED, WORDS
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.verbs import Called

HEALTHY = next(machine for machine in MACHINES if machine.name == "a healthy H200").profile
BROKEN = next(machine for machine in MACHINES if machine.name.startswith("case 1: CMake")).profile


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: HEALTHY)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cuwheel {__version__}\n"


@pytest.mark.parametrize("words", [[], ["--help"], ["help"]])
def test_help_lists_every_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    *everyday, more = SECTIONS.values()
    assert all(f"\n  {verb} " in shown for section in everyday for verb in section)
    assert f"more: {', '.join((*more, 'lab'))}\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert len(shown.splitlines()) <= 40


def test_help_starts_with_a_command_for_each_kind_of_user(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three are verbs that there are, with options that they take."""
    (tmp_path / "fleet.toml").write_text("[[machine]]\nname = 'a'\ngpu = 'h100'\n")
    monkeypatch.chdir(tmp_path)
    main(["--help"])
    shown = capsys.readouterr().out.split("usage:")[0]
    commands = [line.split("cuwheel ", 1)[1].split() for line in shown.splitlines() if line.startswith("  ")]
    assert len(commands) == 3
    for verb, *words in commands:
        frame.understood([verb, *words])


@pytest.mark.parametrize("called", CALLED.values(), ids=CALLED)
def test_each_verb_explains_itself(
    called: Called, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([*called.words, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"  cuwheel {' '.join(called.words)}" in shown.partition("examples:")[2]
    assert "--json" in shown
    assert max(map(len, shown.splitlines())) <= 80


*EVERYDAY, _ = SECTIONS.values()


@pytest.mark.parametrize("verb", [verb for section in EVERYDAY for verb in section if verb in VERBS])
def test_help_shows_what_people_need_and_all_of_it_on_demand(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = []
    for words in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit):
            main([verb, *words])
        shown.append(capsys.readouterr().out)
    assert len(shown[0].splitlines()) <= 40
    assert max(map(len, shown[0].splitlines())) <= 80
    command = command_of(verb)
    assert command.actions or [row.name for row in flat(command.options) if row.name not in shown[1]] == []
    assert ("--help all" in shown[0]) == any(isinstance(row, Group) and row.more for row in command.options)


ACTIONS = [(*each.words, action) for each in CALLED.values() for action in each.command.actions]


@pytest.mark.parametrize("words", ACTIONS, ids=" ".join)
def test_each_action_has_a_help_of_its_own_on_one_screen(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert f"cuwheel {' '.join(words)}" in shown.split("examples:")[1]
    assert shown.count("exit status: 0 ") == 1
    assert len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) <= 80


def test_an_option_of_the_command_behind_it_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--trace", "--", "make", "--resume"]) == 2
    told = capsys.readouterr().err
    assert "--trace: expected one argument" in told
    assert "--resume" not in told


@pytest.mark.parametrize("words", [["help", "check"], ["help", "lab"], ["help", "toolchain", "fetch"]])
def test_help_of_a_verb_is_asked_for_in_two_ways(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for each in (words, [*words[1:], "--help"]):
        with contextlib.suppress(SystemExit):
            assert main(each) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != ""


def test_completion_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    assert "usage: cuwheel completion bash|zsh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("check --on h100 a.so --driver 580.65.06 b.so", {"target": ["a.so", "b.so"]}),
        ("check a.so b.so --on h100", {"target": ["a.so", "b.so"]}),
        ("toolchain --json install --offline 13.0", {"version": "13.0", "offline": True, "json": True}),
        ("toolchain install 13.0 --offline", {"version": "13.0", "offline": True}),
        ("lab bench work.py:call --json", {"json": True}),
        ("lab bench --json work.py:call", {"json": True}),
        ("lab trials --dry-run run TRIALS.toml", {"place": "TRIALS.toml", "dry_run": True}),
    ],
)
def test_options_stand_before_between_and_behind_the_words(words: str, values: dict[str, object]) -> None:
    _, args = frame.understood(words.split())
    assert {name: getattr(args, name) for name in values} == values


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["doctro"], 2, "unknown verb 'doctro'", "did you mean 'cuwheel doctor'?"),
        (["chekc"], 2, "unknown verb 'chekc'", "did you mean 'cuwheel check'?"),
        (["banana"], 2, "unknown verb 'banana'", "cuwheel --help lists the verbs"),
        (["lookup", "gpu", "rtx 4900"], 3, "no GPU named 'rtx 4900'", "did you mean 'GeForce RTX 4090'"),
        (["--json", "doctor"], 2, "options must come after the verb", "cuwheel --help"),
        (["doctor", "--nope"], 2, "unknown option --nope", "cuwheel doctor --help"),
        (["check", "x.so", "--onn", "h100"], 2, "unknown option --onn; did you mean --on?", "cuwheel check --help"),
        (["toolchain"], 2, "toolchain needs an action: install", "cuwheel toolchain --help"),
        (["toolchain", "instal", "13.0"], 2, "'instal' is not one of", "did you mean 'cuwheel toolchain install'?"),
        (["toolchain", "list", "--to", "x"], 2, "--to cannot be used with list", "it is for fetch"),
        (["lab", "trials", "rn", "x"], 2, "'rn' is not one of", "did you mean 'cuwheel lab trials run'?"),
        (["doctor", "now"], 2, "unexpected: now", "cuwheel doctor --help"),
        (["completion", "fish-ish"], 2, "name of a shell", "cuwheel completion bash"),
        (["lookup", "gpu", "rtx 9999 super"], 3, "no GPU named 'rtx 9999 super'", "did you mean"),
        (["lookup", "gpu", "rtx 6000"], 3, "'rtx 6000' names more than one GPU", "Quadro RTX 6000"),
        (["lookup", "cuda", "14.7"], 3, "no CUDA toolkit named '14.7'", "the nearest is 13.4"),
        (["lookup", "cuda", "12.7"], 3, "no CUDA toolkit named '12.7'", "the nearest are 12.6 and 12.8"),
        (["lookup", "cuda", "--compiles", "sm_9000"], 2, "sm_9000", "did you mean"),
        (["doctor", "--on", "nowhere.json"], 2, "--on: nowhere.json: no such file", "cuwheel doctor --save"),
        (["doctor", "--on", "x", "--env", "y"], 2, "cannot be used together", ""),
        (["check", "x.so", "--on", "rtx 9999 super"], 2, "no GPU named 'rtx 9999 super'", "did you mean"),
        (["check", "x.so", "--on", "nowhere.toml"], 2, "--on: nowhere.toml: no such file", ""),
        (["check", "x.so", "--on", "h100", "--no-jit"], 2, "unknown option --no-jit", "cuwheel check --help"),
        (["check", "nowhere.so", "--on", "h100"], 4, "nowhere.so: no such file", ""),
        (["check"], 2, "required: TARGET", "cuwheel check --help"),
        (["doctor", "--need", "frobs>=2", "--need", "gcc>>9"], 2, "'gcc>>9' is not of the form", "known prerequisites"),
    ],
)
def test_bad_input(words: list[str], code: int, message: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    told = capsys.readouterr()
    assert (told.out == "") == ("--json" not in words)
    assert told.err.startswith("error: ")
    assert message in told.err
    assert hint in told.err


def test_all_bad_needs_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--need", "frobs>=2", "--need", "gcc>>9"])
    told = capsys.readouterr().err
    assert "frobs" in told
    assert "gcc>>9" in told


def test_a_bug_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_names: str) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(api, "gpus", broken)
    assert main(["lookup", "gpu"]) == errors.EXIT_BUG
    told = capsys.readouterr().err
    assert "this is a bug in cuwheel: ZeroDivisionError: oh" in told
    assert "Traceback" not in told
    main(["lookup", "gpu", "--verbose"])
    assert "Traceback" in capsys.readouterr().err


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_names: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "gpus", interrupted)
    assert main(["lookup", "gpu"]) == errors.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.usefixtures("here")
def test_doctor_on_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_needs_met_and_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", "--need", "gcc>=9", "--need", "cmake>=3.22.1", "--need", "python>=3.9", "--need", "gpu>=9.0"]
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--need", "cuda>=11.8", "--need", "torch-cuda", "--need", "driver-cuda>=13.2"]) == 1
    shown = capsys.readouterr().out
    for failed in ("NO   cuda>=11.8", "NO   torch-cuda", "NO   driver-cuda>=13.2"):
        assert failed in shown
    assert "yes  gcc>=9" in shown


def test_doctor_on_a_saved_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "machine.json"
    profile.save(BROKEN, saved)
    assert main(["doctor", "--on", str(saved)]) == 1
    shown = capsys.readouterr().out
    assert "host-compiler-too-new" in shown
    assert "fix: export NVCC_PREPEND_FLAGS" in shown


@pytest.mark.usefixtures("here")
def test_doctor_saves_a_profile_that_it_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "machine.json"
    assert main(["doctor", "--save", str(saved)]) == 0
    assert profile.load(saved) == HEALTHY
    assert f"--on {saved}" in capsys.readouterr().err


def test_text_and_json_come_from_one_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "machine.json"
    profile.save(BROKEN, saved)
    main(["doctor", "--on", str(saved), "--json"])
    answer = json.loads(capsys.readouterr().out)
    main(["doctor", "--on", str(saved)])
    shown = " ".join(capsys.readouterr().out.split())
    for finding in answer["findings"]:
        assert finding["rule"] in shown
        assert " ".join(finding["message"].split()) in shown


def test_terminal_output_has_no_escapes_from_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "machine.json"
    evil = json.loads(to_json(HEALTHY))
    evil["gpus"][0]["name"] = "H200 \x1b[2J\x1b]0;owned\x07 [red]markup[/red]"
    saved.write_text(json.dumps(evil))
    main(["doctor", "--on", str(saved)])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[red]markup[/red]" in shown


@pytest.mark.parametrize("name", schemas.all_schemas())
def test_shipped_schemas_are_those_of_the_code(name: str) -> None:
    assert (SCHEMAS / name).read_text() == schemas.all_schemas()[name], "run ./run schemas"


def test_schemas_of_another_distribution_are_those_of_its_code() -> None:
    word = WORDS["lab"]
    folder = schemas.schema_folder(word)
    assert {each.name: each.read_text() for each in folder.iterdir()} == schemas.schemas_of(word), "run ./run schemas"


def test_answers_are_valid_by_their_schemas() -> None:
    answers: list[Any] = [api.doctor(on=machine.profile, needs=["cuda>=12", "gpu"]) for machine in MACHINES]
    validators: dict[str, Any] = {}  # a schema is checked itself when one is made
    for answer in [*answers, api.gpus(), api.toolkits(), HEALTHY]:
        if answer.schema not in validators:
            name, _, version = answer.schema.removeprefix("cuwheel.").partition("/")
            schema = json.loads((SCHEMAS / f"{name}-{version}.json").read_text())
            kind = jsonschema.validators.validator_for(schema)
            kind.check_schema(schema)
            validators[answer.schema] = kind(schema)
        validators[answer.schema].validate(json.loads(to_json(answer)))


def test_completion_knows_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "tcsh", "fish", "powershell"):
        assert main(["completion", shell]) == 0
        shown = capsys.readouterr().out
        assert "doctor" in shown
        assert "need" in shown
        assert "fetch" in shown  # of toolchain
        assert "bench" in shown  # of lab


def test_gpus_by_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rtx 5060 ti", "NVIDIA GeForce RTX 5060 Ti", "5060ti"):
        assert main(["lookup", "gpu", name, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["gpus"]
        assert (row["name"], row["capability"], row["arch"]) == ("GeForce RTX 5060 Ti", "12.0", "sm_120")
    main(["lookup", "gpu", "9.0", "--json"])
    assert {row["capability"] for row in json.loads(capsys.readouterr().out)["gpus"]} == {"9.0"}


def test_toolkits_that_compile_for_a_target() -> None:
    assert api.toolkits(compiles="100f").toolkits[0].version == "12.9"
    assert api.toolkits(compiles="v100").toolkits[-1].version == "12.9"
    assert [row.version for row in api.toolkits("cu128", "13").toolkits] == ["12.8", "13.4"]


@pytest.mark.parametrize(
    ("words", "hint"), [("catalogue list nothing", "catalogue add"), ("verify no.whl", "a .whl file")]
)
def test_what_is_not_there_ends_with_a_hint(words: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 4
    assert hint in capsys.readouterr().err.partition("hint: ")[2]
