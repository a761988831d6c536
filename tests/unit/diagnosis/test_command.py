"""The verb from end to end."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.machine import probe, profile
from cuwheel.report.answer import SCHEMAS
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = next(machine for machine in MACHINES if machine.name.startswith("case 1: CMake")).profile
LOG = """\
$ pip install ./kernels
-- The CXX compiler identification is GNU 13.3.0
-- The CUDA compiler identification is NVIDIA 12.2.140
/home/somebody/src/a.h:1: error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!
"""


class Piped:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "build.log"
    path.write_text(LOG)
    return path


def test_text_and_status(log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "(" not in shown.splitlines()[0]  # a sentence; its id and its probability come last
    assert "  cause   host-compiler-too-new (" in shown
    assert "  line 4  " in shown
    assert "Ways out" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    main(["explain", str(log), "--verbose"])
    everything = capsys.readouterr().out
    assert "Found in the log" in everything
    assert "Ways out" in everything


def test_json_is_valid_by_its_schema(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads((SCHEMAS / "explain-1.json").read_text())
    for words in (["explain", str(log)], ["explain", "--list"]):
        assert main([*words, "--json"]) == 0
        jsonschema.validate(json.loads(capsys.readouterr().out), schema)


@pytest.mark.parametrize("words", [["explain"], ["explain", "-"]])
def test_standard_input(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Piped(LOG.encode()))
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["causes"][0]["id"] == "host-compiler-too-new"


def test_no_known_cause(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Piped(b"everything is fine\n"))
    assert main(["explain", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["causes"] == []
    monkeypatch.setattr("sys.stdin", Piped(b"everything is fine\n"))
    assert main(["explain"]) == 1
    assert "No known cause" in capsys.readouterr().out


def test_the_list_names_every_cause(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(each.id in shown for each in api.causes().known)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["explain", "nowhere.log"], 4, "nowhere.log: No such file"),
        (["explain", "x.log", "--here"], 2, "unknown option --here"),
        (["explain", "x.log", "--wheel", "x.whl"], 2, "unknown option --wheel"),
        (["explain", "x.log", "--on", "nowhere.json"], 2, "nowhere.json"),
    ],
)
def test_bad_input(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    assert message in capsys.readouterr().err


def test_an_unknown_gpu(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(log), "--on", "rtx 9999 super"]) == 2
    assert "rtx 9999 super" in capsys.readouterr().err


def test_nobody_types_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Piped(b"")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["explain"]) == 2
    assert "hint: cuwheel explain build.log" in capsys.readouterr().err


def test_facts_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, saved = tmp_path / "x.log", tmp_path / "machine.json"
    log.write_text("error: #error -- unsupported GNU version!\n")
    profile.save(BROKEN, saved)
    main(["explain", str(log), "--on", str(saved), "--json"])
    by_profile = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(probe, "probe", lambda _env, **_: BROKEN)
    main(["explain", str(log), "--on", "this", "--json"])
    assert json.loads(capsys.readouterr().out)["causes"] == by_profile["causes"]
    assert "takes GCC up to 12" in by_profile["causes"][0]["fix"][0]


def test_the_report(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.md"
    assert main(["explain", str(log), "--report", str(report)]) == 0
    capsys.readouterr()
    text = report.read_text()
    for heading in ("Environment", "What was tried", "Cause", "Next steps", "Draft for an upstream report"):
        assert f"## {heading}" in text
    assert "pip install ./kernels" in text
    assert "gcc: 13.3.0" in text
    assert "somebody" not in text


def test_a_hostile_log_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, report = tmp_path / "evil.log", tmp_path / "report.md"
    log.write_text(
        "~~~\n# owned\n\x1b]0;owned\x07nvcc fatal : Unknown option '--x ~~~ [red]{n}{0!r}'\n$ pip install ~~~\n"
    )
    assert main(["explain", str(log), "--report", str(report)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    text = report.read_text()
    assert text.count("\n~~~\n") % 2 == 0
    assert "\n# owned" not in text


def test_from_python() -> None:
    answer = api.explain(io.BytesIO(LOG.encode()))
    assert answer.causes[0].id == "host-compiler-too-new"
    assert answer.lines == 4


def test_nothing_to_explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Piped(b""))
    assert main(["explain"]) == 1
    assert "nothing to explain in standard input" in capsys.readouterr().out
