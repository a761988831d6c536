"""`cuwheel record replay` and `cuwheel explain RECORD`, as far as they start no program."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from cuwheel import api
from cuwheel.building.recording import culprits, differences
from cuwheel.building.recording.culprits import Outcome
from cuwheel.building.recording.replays import Replay
from cuwheel.cli import main
from cuwheel.report import schemas, terminal
from cuwheel.report.answer import document_of
from cuwheel.report.investigation import markdown
from cuwheel.support.answer import to_json
from tests.unit.building.recording.records import call, record
from tests.unit.building.recording.test_differences import with_

if TYPE_CHECKING:
    from cuwheel.building.recording.differences import Situation

TOO_NEW = """\
In file included from /opt/cuda/bin/../include/cuda_runtime.h:82,
/opt/cuda/bin/../include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 12 \
are not supported!
"""


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A cargo project: nvcc 12.2 meets GCC 13, and the build script says nothing of it."""
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo" / "config.toml").write_text('[env]\nNVCC_CCBIN = "/usr/bin/g++-13"\n')
    record(
        tmp_path / "rec",
        call(["--version"], out="Cuda compilation tools, release 12.2, V12.2.140\n"),
        call(["-c", "my kernels/a.cu", "-o", "a.o"], changed={"OUT_DIR": "/x", "NVCC_CCBIN": "/usr/bin/g++-13"},
             unset=["HOME"], status=1, err=TOO_NEW),
        call(["-c", "b.cu"], status=None),
        status=101,
        cwd=tmp_path,
    )  # fmt: skip
    return tmp_path / "rec"


def test_the_calls_are_listed(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "replay", str(failed), "--list"]) == 0
    shown = capsys.readouterr().out
    assert ":2  status 1" in shown
    assert ":3  started" in shown
    assert "nvcc a.cu" in shown


def test_the_command_to_paste(
    failed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin", "HOME": "/home/me"})
    assert main(["record", "replay", f"{failed}:2", "--print", "--here", "--shell", "posix"]) == 0
    assert capsys.readouterr().out == "(cd /nowhere && /opt/cuda/bin/nvcc -c 'my kernels/a.cu' -o a.o)\n"
    assert main(["record", "replay", str(failed), "--dry-run", "--shell", "posix"]) == 0  # the first that failed
    shown = capsys.readouterr().out
    assert "  NVCC_CCBIN=/usr/bin/g++-13 \\\n" in shown
    assert shown.endswith("/opt/cuda/bin/nvcc -c 'my kernels/a.cu' -o a.o)\n")
    assert main(["record", "replay", str(failed), "--print", "--here", "--shell", "powershell"]) == 0
    assert "& '/opt/cuda/bin/nvcc' -c 'my kernels/a.cu' -o a.o\n" in capsys.readouterr().out
    assert main(["record", "replay", str(failed), "--print", "--here", "--shell", "cmd"]) == 0
    assert '/opt/cuda/bin/nvcc -c "my kernels/a.cu" -o a.o\n' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["replay", "nowhere"], 4, "is not a record", "cuwheel record -- COMMAND"),
        (["replay", "{}:9"], 2, "has no call 9: it has 3", "--list"),
        (["replay", "{}", "--list", "--print"], 2, "cannot be used together", ""),
        (["replay", "{}:2"], 4, "the folder this call ran in no longer exists", "--directory"),
        (["diff", "{}", "--scratch"], 2, "unknown option --scratch", "record diff --help"),
        (["replay", "{}", "--list", "--shell", "cmd"], 2, "--shell cannot be used with --list", "--help"),
        (["replay", "{}", "--max-runs", "0"], 2, "--max-runs", "--help"),
        (["replay", "{}", "--timeout", "-1"], 2, "--timeout", "--help"),
        (["diff", "{}:2", ":9", "--max-runs", "0"], 2, "no call 9", "--list"),
        (["diff", "{}:2", "nowhere", "--max-runs", "0"], 2, "OTHER: nowhere: no such folder", ""),
    ],
)
def test_bad_input(
    words: list[str], code: int, message: str, hint: str, failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = failed
    assert main(["record", *(word.format(folder) for word in words)]) == code
    told = capsys.readouterr().err
    assert message in told
    assert hint in told


def test_nothing_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "rec", call(["-c", "a.cu"]))
    assert main(["record", "replay", str(tmp_path / "rec")]) == 2
    assert "no call of" in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "rec")]) == 1


def test_a_folder_may_be_named_like_a_call(tmp_path: Path) -> None:
    record(tmp_path / "rec:2", call(["-c", "a.cu"]), call(["-c", "b.cu"]))
    assert api.replay_list(tmp_path / "rec:2").record == str(tmp_path / "rec:2")
    assert api.replay_print(f"{tmp_path / 'rec:2'}:1").call == 1


def test_what_differs_from_here(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin:/bin:/opt/x", "HOME": "/nowhere"})
    answer = api.replay_diff(f"{failed}:2", most=0)
    assert answer.succeeded
    assert answer.differences is not None
    by_name = {each.name: each for each in answer.differences.variables}
    assert Path(by_name["NVCC_CCBIN"].origin).parts[-2:] == (".cargo", "config.toml")
    assert by_name["PATH"].only_right == ("/opt/x",)
    assert by_name["HOME"].left is None
    _valid(answer)


def test_two_calls_of_one_record(failed: Path) -> None:
    answer = api.replay_diff(f"{failed}:2", ":3", most=0)
    assert answer.differences is not None
    (inputs,) = answer.differences.arguments
    assert (inputs.only_left, inputs.only_right) == (("my kernels/a.cu",), ("b.cu",))


def test_the_same_call_of_two_records(failed: Path, tmp_path: Path) -> None:
    record(tmp_path / "good", call(["-V"]), call(["-c", "your/a.cu", "-ccbin", "g++-12", "-o", "a.o"]))
    answer = api.replay_diff(failed, tmp_path / "good", most=0)
    assert answer.differences is not None
    assert answer.differences.right == "good:2"
    assert {each.meaning for each in answer.differences.arguments} == {"inputs", "host compiler"}


# In words


def _answer(left: Situation, right: Situation, found: culprits.Culprits, **origins: str) -> Replay:
    return Replay(
        action="diff",
        record="rec",
        differences=differences.compare_situations(left, right, origins),
        blame=culprits.explain_culprits(found, left, right, origins),
    )


def _valid(answer: Replay) -> None:
    jsonschema.validate(json.loads(to_json(answer)), json.loads(schemas.all_schemas()["replay-1.json"]))


def _shown(answer: Replay, capsys: pytest.CaptureFixture[str], *, verbose: bool = False) -> str:
    import sys

    terminal.write(document_of(answer, verbose=verbose), sys.stdout)
    return " ".join(capsys.readouterr().out.split())


def _find(left: Situation, right: Situation, fails: object, most: int = 60) -> culprits.Culprits:
    def run(situation: Situation) -> Outcome:
        assert callable(fails)
        return Outcome(status=1, error="x.cu: error: no", sign="error: no") if fails(situation) else Outcome(status=0)

    return culprits.find_culprits(left, right, run, most=most)


@pytest.mark.parametrize(
    ("build", "here", "says"),
    [
        ({"CUDA_PATH": "/old"}, {}, "In rec:2 it fails: with CUDA_PATH unset it works."),
        ({}, {"CUDA_PATH": "/new"}, "In rec:2 it fails: with CUDA_PATH=/new it works."),
        ({"CUDA_PATH": "/old"}, {"CUDA_PATH": "/new"}, "In rec:2 it fails: with CUDA_PATH=/new it works."),
        ({"PATH": "/a:/bad:/b"}, {"PATH": "/a:/b"}, "In rec:2 it fails: with /bad removed from PATH it works."),
        ({"PATH": "/a:/b"}, {"PATH": "/a:/need:/b"}, "In rec:2 it fails: with /need in PATH before /b it works."),
        ({"PATH": "/a"}, {"PATH": "/a:/need"}, "In rec:2 it fails: with /need in PATH at the end it works."),
    ],
)
def test_the_answer_in_a_sentence(
    build: dict[str, str], here: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = with_("rec:2", **build, NOISE="1"), with_("here", **here)
    found = _find(left, right, lambda each: each.environ.get("CUDA_PATH") != here.get("CUDA_PATH")
                  or each.environ["PATH"] != right.environ["PATH"])  # fmt: skip
    answer = _answer(left, right, found, CUDA_PATH="/p/.cargo/config.toml")
    assert answer.blame is not None
    assert answer.blame.answer == says
    assert answer.succeeded
    shown = _shown(answer, capsys)
    assert says in shown
    assert ("is set by /p/.cargo/config.toml" in shown) == ("CUDA_PATH" in build)
    _valid(answer)


def test_it_works_in_the_build_and_not_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    left, right = with_("rec:2", CC="gcc-12"), with_("here")
    answer = _answer(left, right, _find(left, right, lambda each: "CC" not in each.environ))
    assert "In here it fails: with CC=gcc-12 it works." in _shown(answer, capsys)


def test_no_variable_is_to_blame(capsys: pytest.CaptureFixture[str]) -> None:
    left, right = with_("rec:2", CC="gcc-12"), with_("here")
    same = _answer(left, right, _find(left, right, lambda _: True))
    assert not same.succeeded
    assert "It fails in the same way (x.cu: error: no) in rec:2 and here" in _shown(same, capsys)
    turns = iter([True, True, False, True] + [False] * 20)
    flaky = _answer(left, right, _find(left, right, lambda _: next(turns)))
    assert not flaky.succeeded
    assert "does not always behave the same: it works in" in _shown(flaky, capsys)
    many = {f"V{index}": "1" for index in range(40)}
    left = with_("rec:2", **many)
    short = _answer(left, right, _find(left, right, lambda each: any(name in each.environ for name in many), most=9))
    assert "--max-runs was reached" in _shown(short, capsys)


def test_what_steers_no_compiler_only_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Replay(
        action="diff",
        record="rec",
        differences=differences.compare_situations(with_(SHLVL="1", COLOURS="a" * 300), with_()),
    )
    short, long = _shown(answer, capsys), _shown(answer, capsys, verbose=True)
    assert "2 more not known to affect compilers (--verbose): COLOURS, SHLVL" in short
    assert "SHLVL - 1 + (not set)" in long
    assert "aaa" not in short
    assert "a" * 300 in long.replace(" ", "")


def test_bytes_that_are_no_text_are_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = b"caf\xe9.cu".decode("utf-8", "surrogateescape")
    record(tmp_path / "rec", call(["-c", odd], status=1))
    for words in (["--list"], ["--list", "--json"], ["--print", "--json"], ["--print", "--shell", "cmd"]):
        assert main(["record", "replay", str(tmp_path / "rec:1"), *words]) == 0
    shown = capsys.readouterr().out
    assert "\udce9" not in shown


# explain


def test_the_real_cause_from_a_record(failed: Path) -> None:
    answer = api.explain(failed)
    assert answer.causes[0].id == "host-compiler-too-new"
    assert "unsupported GNU version" in answer.causes[0].evidence[0].text
    assert {"nvcc": "12.2.140"}.items() <= {each.name: each.value for each in answer.versions}.items()
    assert any("12.2" in fix or "12" in fix for fix in answer.causes[0].fix)
    assert answer.call is not None
    assert answer.call.number == 2
    by_name = {each.name: each for each in answer.call.settings}
    assert Path(by_name["NVCC_CCBIN"].origin).parts[-2:] == (".cargo", "config.toml")
    assert by_name["HOME"].value is None
    assert by_name["HOME"].changed
    assert api.explain(f"{failed}:1").causes == ()


def test_a_call_that_says_nothing(tmp_path: Path) -> None:
    record(tmp_path / "rec", call(["-c", "a.cu"], status=255), status=1)
    answer = api.explain(tmp_path / "rec")
    assert [cause.id for cause in answer.causes if not cause.when] == ["nvcc-silent-failure"]


def test_a_call_that_could_not_start(tmp_path: Path) -> None:
    record(tmp_path / "rec", status=1)
    event = call(["-c", "a.cu"]) | {"event": "not-started", "id": "1", "began": 1, "errno": 2, "searched": True}
    (tmp_path / "rec" / "calls.jsonl").write_text(
        json.dumps(event) + "\n" + json.dumps({"event": "finish", "ended": 5, "status": 1}) + "\n"
    )
    answer = api.explain(tmp_path / "rec")
    assert answer.causes[0].id == "nvcc-missing"


def test_the_report_holds_the_call(failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(failed), "--report", str(tmp_path / "x.md")]) == 0
    assert "cuwheel record replay" in capsys.readouterr().out
    text = (tmp_path / "x.md").read_text()
    for part in (
        "## The call that failed (number 2 of the record)",
        "cd /nowhere\n/opt/cuda/bin/nvcc -c 'my kernels/a.cu' -o a.o",
        "error: #error -- unsupported GNU version!",
        "NVCC_CCBIN=/usr/bin/g++-13    (by",
        "HOME is not set",
        "OUT_DIR=/x",
        "env NVCC_CCBIN=/usr/bin/g++-13 /opt/cuda/bin/nvcc -c 'my kernels/a.cu' -o a.o",
    ):
        assert part in text, part
    assert markdown(api.explain(failed)) == text


def test_an_unknown_failure_shows_what_was_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / "rec", call(["-c", "a.cu"], status=1, err="frobnication impossible\n"), status=1)
    assert main(["explain", str(tmp_path / "rec")]) == 1
    assert "frobnication impossible" in capsys.readouterr().out
