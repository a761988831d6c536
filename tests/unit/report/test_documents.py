from __future__ import annotations

import io
from dataclasses import replace

import pytest

from cuwheel.finding import Finding
from cuwheel.inspection.compare import compare
from cuwheel.inspection.values import Library, Survey
from cuwheel.report import documents, html, terminal
from cuwheel.report.compare import Compare
from cuwheel.report.document import Amount, Column, Document, Findings, Heading, Paragraph, Table
from cuwheel.report.inspect import Inspect
from cuwheel.units import file_name, size
from tests.unit.compat.libraries import code, library


def shown(document: Document, monkeypatch: pytest.MonkeyPatch, width: int = 80) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    terminal.write(document, stream)
    return stream.getvalue()


def inspected(*libraries: Library) -> Inspect:
    return Inspect(
        target="dist/x.whl", kind="wheel", size=5, distribution=None, libraries=libraries, coverage=(), findings=()
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (26_535_848, "26.5 MB"), (99_960_000, "100 MB"),
     (999_600, "1.0 MB"), (529_000, "529 kB"), (5_000_000_000, "5.0 GB"), (-5_152_912, "-5.2 MB")],
)  # fmt: skip
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_file_names_of_both_systems() -> None:
    assert file_name("a/b/c.so") == file_name(r"a\b\c.so") == file_name("c.so") == "c.so"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [code(f"sm_{number}", bytes=number * 10_000) for number in (75, 80, 86, 89, 90, 100, 120)]
    text = shown(documents.of(inspected(library(rows)), verbose=True), monkeypatch, width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.2 MB █" in text


def test_what_libraries_have_in_common_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = Finding(rule="r", severity="warning", message="the same", fix="f")
    libraries = [library([code("sm_90")], path=f"p/lib{index}.so", findings=(alike,)) for index in range(7)]
    text = shown(documents.of(inspected(*libraries), verbose=False), monkeypatch)
    assert text.count("the same") == 1
    assert "the same (7 libraries)" in text
    assert "lib4.so and 2 more" in text
    alone = shown(documents.of(inspected(libraries[0]), verbose=False), monkeypatch)
    assert "    the same\n" in alone


def test_a_damaged_part_makes_the_answer_no() -> None:
    damaged = replace(library(), findings=(Finding(rule="r", severity="error", message="m"),))
    assert inspected(library()).succeeded
    assert not inspected(damaged).succeeded


def test_untrusted_text_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b[31m[bold]<script>alert(1)</script>\u202e"
    document = Document(
        evil,
        (
            Heading(evil),
            Paragraph(evil),
            Table((Column("a"), Column("b", numeric=True)), ((evil, Amount("1", 1.0, 0.5)),)),
            Findings((Finding(rule="r", severity="note", message=evil, evidence=(evil,), fix=evil),)),
        ),
    )
    text = shown(document, monkeypatch)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]" in text
    page = html.page(document)
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_compare_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(path: str, *archs: str) -> Survey:
        return Survey(
            target=path,
            kind="file",
            size=1000 * len(archs),
            distribution=None,
            libraries=(library([code(arch) for arch in archs], path=path),),
            findings=(),
        )

    found = compare(survey("old.so", "sm_80", "sm_90"), survey("new.so", "sm_80", "sm_90", "sm_87"))
    fields = ("before", "after", "size", "parts", "architectures", "needed", "libraries", "kernels")
    answer = Compare(**{name: getattr(found, name) for name in fields})
    text = shown(documents.of(answer, verbose=False), monkeypatch)
    assert "2,000 → 3,000 bytes, +1,000 (+50.00 %)" in text
    assert "+ architectures  sm_87" in text
    assert text.count("sm_87") == 1
