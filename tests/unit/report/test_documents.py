from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from msgspec.structs import replace
from rich.measure import Measurement

from cuwheel.device_code.compare import Compare, KernelChange, compare
from cuwheel.device_code.contents import Survey
from cuwheel.errors import EXIT_UNKNOWN
from cuwheel.report import cache as report_cache
from cuwheel.report import html, markdown, terminal
from cuwheel.report.answer import document_of
from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim
from cuwheel.report.drawings import Chart, Point, Series, Timeline
from cuwheel.report.inspect import Inspect, LibraryCoverage
from cuwheel.report.tables import Amount, Column, Facts, HeatMap, Mark, MarkedLine, Matrix, Row, Table, short, table
from cuwheel.support.finding import finding
from cuwheel.toolchains.store import Pruning, Thing
from cuwheel.verdicts.judge import helping_fixes, judge_all
from cuwheel.verdicts.verdict import Check, targets_of
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding, Fix
from cuwheel_core.support.wording import file_name, size
from cuwheel_core.verdicts.predict import Coverage
from cuwheel_core.wheel.tags import release_of_file
from tests.unit.verdicts.libraries import code, library
from tests.unit.verdicts.subjects import library as subject
from tests.unit.verdicts.subjects import machine, survey

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library


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


def test_a_line_about_a_wheel_has_its_release_and_not_its_tags() -> None:
    assert release_of_file("torch-2.11.0+cu130-cp311-cp311-manylinux_2_28_x86_64.whl") == "torch 2.11.0+cu130"
    assert (
        release_of_file("cuda_nvcc-linux-x86_64-13.0.88-archive.tar.xz")
        == "cuda_nvcc-linux-x86_64-13.0.88-archive.tar.xz"
    )
    assert release_of_file("odd.whl") == "odd.whl"


def test_file_names_of_both_systems() -> None:
    assert file_name("a/b/c.so") == file_name(r"a\b\c.so") == file_name("c.so") == "c.so"
    assert [file_name(each) for each in ("/", "a/b/", "C:\\", "\\\\server\\share\\")] == ["/", "b", "C:", "share"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [code(f"sm_{number}", bytes=number * 10_000) for number in (75, 80, 86, 89, 90, 100, 120)]
    text = shown(document_of(inspected(library(rows)), verbose=True), monkeypatch, width)
    assert max(map(len, text.splitlines())) <= width
    assert "1.2 MB █" in text


def test_a_column_whose_words_have_no_room_gets_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("wheel", wrap=False), Column("for", wrap=False), Column("size", numeric=True), Column("channels"))
    row = ("some_package 1.0+42.1.cu130", "cp310-abi3-manylinux_2_34_x86_64", "336 kB", "cu130")
    document = Document("t", (Table(columns, (row,)),))
    text = shown(document, monkeypatch, width=66)
    assert all(len(line) <= 66 for line in text.splitlines()), text
    heading, titles, name, rest = text.splitlines()
    assert (heading.strip(), name.strip()) == ("wheel", row[0])
    assert [titles.index(each) for each in ("for", "channels")] == [rest.index(each) for each in (row[1], row[3])]
    assert len(shown(document, monkeypatch, width=90).splitlines()) == 2


WHEEL = "some_package-1.0+42.1.cu130-cp310-abi3-manylinux_2_34_x86_64.manylinux2014_x86_64.whl"
LONG = f"the wheel {WHEEL} in the folder /srv/index/of/wheels/for/the/cluster/{WHEEL} has no code for it"
_TABLE = Table(
    (Column("wheel", wrap=False), Column("why"), Column("size", numeric=True)),
    ((WHEEL, LONG, "336 kB"), ("short", "nothing", "1 B")),
)
_MARK = Mark("fails", "bad", WHEEL)
LONG_BLOCKS = (
    Heading(WHEEL),
    Paragraph(LONG),
    Verbatim((LONG,)),
    Facts((Row("wheel", LONG, WHEEL),)),
    _TABLE,
    HeatMap("x", (), (), (), brief=_TABLE),
    Matrix("x", ("h100",), (Row("x", ""),), ((_MARK,),), brief=(MarkedLine(_MARK, "inference", "40 × L40", LONG),)),
    Findings(
        (
            Finding(
                rule="no-code", severity="error", message=LONG, evidence=(WHEEL,), fixes=(Fix(text=f"build {WHEEL}"),)
            ),
        )
    ),
    Findings(tuple(Finding(rule="no-code", severity="error", message=LONG, evidence=()) for _ in range(30))),
)


@pytest.mark.parametrize("block", LONG_BLOCKS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("width", [80, 60])
def test_no_block_of_a_report_breaks_a_name(block: Block, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every report consists of these blocks: whatever its names are, each stands whole in a line."""
    text = shown(Document("x", (block,)), monkeypatch, width=width)
    assert WHEEL in text, text
    pieces = [word for line in text.splitlines() for word in line.split() if "manylinux" in word or ".whl" in word]
    assert [word for word in pieces if WHEEL not in word] == [], text


_PAGE_BLOCKS = (  # a terminal has no room for them
    Timeline("x", 1.0, (), ()),
    Chart("x", "x", "y", (Series("s", (Point(0.0, 1.0),)),), ((0.0, "0"),), ((1.0, "1"),)),
)


def test_every_kind_of_block_that_terminals_show_has_long_names() -> None:
    assert {type(each) for each in (*LONG_BLOCKS, *_PAGE_BLOCKS)} == set(get_args(Block))


@pytest.mark.parametrize("block", [*LONG_BLOCKS, *_PAGE_BLOCKS], ids=lambda each: type(each).__name__)
def test_every_format_shows_every_kind_of_block(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    (drawn,) = html.blocks(Document("t", (block,)))
    assert drawn.strip()
    on_page_alone = block in _PAGE_BLOCKS
    assert bool(shown(Document("t", (block,)), monkeypatch).strip()) is not on_page_alone
    assert isinstance(markdown.render(block), str)


def test_figures_keep_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("at once", numeric=True), *(Column("time", numeric=True) for _ in range(5)))
    document = Document("t", (Table(columns, (("1", *["0.081 µs"] * 5),)),))
    spare = int(os.name == "nt")  # a terminal of Windows is a column narrower for rich
    whole, short, narrow = (shown(document, monkeypatch, width=each + spare) for each in (60, 56, 42))
    assert "at once" in whole
    assert (short.count("0.081 µs"), short.split()[:1], "once" in short) == (5, ["at"], True), short
    assert (narrow.count("0.081"), narrow.count("µs")) == (5, 5), narrow


def test_what_libraries_have_in_common_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = Finding(rule="r", severity="warning", message="the same", fixes=(Fix(text="f"),))
    libraries = [library([code("sm_90")], path=f"p/lib{index}.so", findings=(alike,)) for index in range(7)]
    text = shown(document_of(inspected(*libraries), verbose=False), monkeypatch)
    assert text.count("the same") == 1
    assert "the same (7 libraries)" in text
    assert "lib4.so" in text
    assert "because" not in text
    assert "lib4.so and 2 more" in shown(document_of(inspected(*libraries), verbose=True), monkeypatch)
    alone = shown(document_of(inspected(libraries[0]), verbose=False), monkeypatch)
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
            Findings((Finding(rule="r", severity="note", message=evil, evidence=(evil,), fixes=(Fix(text=evil),)),)),
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
    text = shown(document_of(answer, verbose=False), monkeypatch)
    assert "2,000 → 3,000 bytes, +1,000 (+50.00 %)" in text
    assert "+ architectures  sm_87" in text
    assert text.count("sm_87") == 1
    alike = [
        KernelChange(library="libfoo.so", arch=Arch.parse(arch), gained=(), lost=("k",))
        for arch in ("compute_90", "sm_90", "sm_80")
    ]
    several = shown(document_of(replace(answer, kernels=tuple(alike)), verbose=False), monkeypatch)
    assert "libfoo.so  sm_80 sm_90 compute_90  0  1" in several, "a row for what is alike"


def test_libraries_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _package(archs=("sm_90",), count=2)
    libraries = tuple(
        replace(each, path=f"pkg/cu{cuda}/libpkg.so") for each, cuda in zip(answer.libraries, (12, 13), strict=True)
    )
    coverage = tuple(replace(each, path=one.path) for each, one in zip(answer.coverage, libraries, strict=True))
    text = shown(document_of(replace(answer, libraries=libraries, coverage=coverage), verbose=False), monkeypatch)
    assert "cu12/libpkg.so  runs natively on kind 0" in text
    assert "cu13/libpkg.so  runs natively on kind 1" in text


def test_the_one_library_with_code_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = replace(inspected(library([code("sm_90")], path="pkg/lib/libpkg.so")), kind="wheel")
    assert "pkg/lib/libpkg.so: ELF shared library" in shown(document_of(answer, verbose=False), monkeypatch)
    assert "libpkg.so: ELF" not in shown(document_of(replace(answer, kind="file"), verbose=False), monkeypatch)


def _package(*, archs: tuple[str, ...], count: int) -> Inspect:
    libraries = [
        library([code(arch) for arch in archs], path=f"package/libpackage_cuda{index}.so", toolkits=("12.8",))
        for index in range(count)
    ]
    reach = Coverage(native=("9.0",), jit=(), partial=(), future=False)
    words = tuple(
        LibraryCoverage(path=each.path, coverage=reach, words=f"runs natively on kind {index % 3}")
        for index, each in enumerate(libraries)
    )
    return replace(inspected(*libraries), coverage=words)


def test_a_package_is_answered_on_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _package(archs=("sm_75", "sm_80", "sm_90", "sm_90a", "sm_120", "compute_120"), count=40)
    text = shown(document_of(answer, verbose=False), monkeypatch)
    assert len(text.splitlines()) <= 40
    assert max(map(len, text.splitlines())) <= 80
    table = [line for line in text.splitlines() if "libpackage_cuda0.so " in line and "12.8" in line]
    assert table[0].split()[-5:] == ["■", "■", "■", "■", "■P"]
    assert "libpackage_cuda0.so and 13 more" in text
    assert "28 with less" in text


def test_more_architectures_than_columns_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    archs = tuple(f"sm_{number}" for number in (50, 52, 60, 61, 70, 75, 80, 86, 87, 89, 90, 100, 103, 120, 121))
    text = shown(document_of(_package(archs=archs, count=2), verbose=False), monkeypatch)
    assert max(map(len, text.splitlines())) <= 80
    assert "■ 50 52 60" in text


def test_loose_cubins_are_summed_in_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    cubins = [
        library([code(arch, section="")], path=f"kernels/{number % 2}/{number}{arch}.cubin", format="cubin")
        for arch in ("sm_90", "sm_100")
        for number in range(500)
    ]
    brief = shown(document_of(inspected(*cubins), verbose=False), monkeypatch)
    assert len(brief.splitlines()) < 12
    assert [line.split()[0:2] + line.split()[4:5] for line in brief.splitlines() if " cubin " in line] == [
        ["sm_90", "cubin", "500"],
        ["sm_100", "cubin", "500"],
    ]
    full = shown(document_of(inspected(*cubins), verbose=True), monkeypatch)
    assert "500 loose cubins in kernels/0" in full
    assert len(full.splitlines()) < 40


def test_findings_come_before_details() -> None:
    told = Finding(rule="a-rule", severity="note", message="m")
    answer = inspected(*(library([code("sm_90")], path=f"lib{index}.so", findings=(told,)) for index in range(3)))
    page = html.page(document_of(answer, verbose=True))
    assert [each.split()[0] for each in re.findall(r"<h2[^>]*>([^<]*)</h2>", page)][1:3] == ["Findings", "lib0.so"]
    links = re.findall(r'<a href="#(part-\d+)">([^<]*)</a>', page)
    assert [text.split()[0] for _, text in links] == ["Findings", "lib0.so", "lib1.so", "lib2.so"]
    assert all(f'id="{anchor}"' in page for anchor, _ in links)


def test_a_page_takes_bytes_that_are_no_text(tmp_path: Path) -> None:
    odd = inspected(library([code("sm_90")], path=b"caf\xe9.so".decode(errors="surrogateescape")))
    html.save(odd, tmp_path / "page.html")
    assert "caf\N{REPLACEMENT CHARACTER}.so" in (tmp_path / "page.html").read_bytes().decode("utf-8")


def test_thousands_of_findings_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Finding(rule="broken", severity="error", message=f"file {number}") for number in range(5000)]
    other = Finding(rule="other", severity="note", message="x" * 1_000_000)
    text = shown(Document("x", (Findings((*broken, other)),)), monkeypatch)
    assert text.count("error  broken") == 20
    assert "and 4,980 more of broken: --json has them all" in text
    assert "note  other" in text
    assert len(text) < 10_000


def test_a_large_fleet_has_a_row_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a hundred thousand machines takes a minute to print, and nobody reads it."""
    wheel = survey(subject("sm_90"))

    def table(count: int) -> str:
        fleet = tuple(machine(name=f"node{n}", driver=("570.86.10", "580.65.06")[n % 2]) for n in range(count))
        answer = Check(targets=targets_of([wheel]), machines=fleet, verdicts=judge_all(wheel, fleet))
        return shown(document_of(answer, verbose=False), monkeypatch, 120)

    small, large = table(6), table(1000)
    assert all(f"node{n} " in small for n in range(6))
    assert "node0 and 499 more  9.0 driver 570.86.10" in large
    assert "node1 and 499 more  9.0 driver 580.65.06" in large
    assert "node17" not in large


def test_not_known_is_not_yes() -> None:
    wheel = survey(subject("sm_90"))
    fleet = (machine("9.0"), machine(None))
    answer = Check(targets=targets_of([wheel]), machines=fleet, verdicts=judge_all(wheel, fleet))
    assert [each.outcome for each in answer.verdicts] == ["native", "unknown"]
    assert answer.exit_status == EXIT_UNKNOWN
    known = Check(targets=answer.targets, machines=fleet[:1], verdicts=answer.verdicts[:1])
    assert known.exit_status is None
    without = survey()
    plain = Check(targets=targets_of([without]), machines=fleet[:1], verdicts=judge_all(without, fleet[:1]))
    assert plain.verdicts[0].outcome == "unknown"
    assert plain.exit_status is None


def test_no_word_of_a_table_is_broken_where_all_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("libbitsandbytes_cuda128.so", "libtorch_cuda_linalg.so")
    text = "it has no code for this GPU, and neither its linked code nor its objects fit the one that was asked for"
    table = Table(
        (Column("file"), Column("why"), Column("where")), tuple((name, text, f"folder/of/{name}") for name in names)
    )
    out = io.StringIO()
    terminal.write(Document("x", (table,)), out)
    assert all(out.getvalue().count(name) == 2 for name in names)
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_a_cache_says_when_things_were_last_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [time.time() - 24 * 3600 * days - 60 for days in (0, 1, 2)]
    things = [Thing(kind="downloads", path=f"/c/{each}", size=1, used=each) for each in used]
    removed = report_cache.answer_of(Path("/c"), things, Pruning(removed=tuple(things), held=(), dry_run=True))
    text = shown(document_of(removed, verbose=False), monkeypatch)
    assert re.findall(r"today|\d+ \w+ ago", text)[:3] == ["today", "1 day ago", "2 days ago"]


def test_of_libraries_with_the_same_fault_one_fix_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that extends torch must be of torch's CUDA major, one that does not may be older: the former helps both."""
    extension = subject("sm_90", cuda=13, path="pkg/ops.so", needed=("libc10.so", "libtorch.so"))
    wheel = survey(subject("sm_90", cuda=13), extension)
    fleet = (machine(driver="550.54.15", torch="2.9.0", torch_cuda="12.4", libraries=None),)
    answer = Check(targets=targets_of([wheel]), machines=fleet, verdicts=judge_all(wheel, fleet))
    assert len({each.fix for each in answer.verdicts[0].findings if each.rule == "driver-below-cuda-floor"}) == 2
    fix = " ".join(shown(document_of(answer, verbose=False), monkeypatch).split()).partition("Fix")[2]
    assert fix.count("take a build by CUDA") == 1
    assert "take a build by CUDA 12.0 to 12.9" in fix


def test_packages_of_two_cuda_majors_are_two_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, fleet = survey(subject("sm_90", cuda=12)), (machine("9.0"),)
    missing = [
        finding("needed-library-missing", "it needs another library", fix=fix)
        for fix in ("pip install nvidia-cublas-cu11", "pip install nvidia-cublas-cu12")
    ]
    fixes = tuple(helping_fixes(missing))
    verdicts = [
        replace(each, outcome="fails", findings=tuple(missing), fixes=fixes) for each in judge_all(wheel, fleet)
    ]
    answer = Check(targets=targets_of([wheel]), machines=fleet, verdicts=tuple(verdicts))
    text = " ".join(shown(document_of(answer, verbose=False), monkeypatch).split())
    assert [cuda for cuda in ("cu11", "cu12") if f"pip install nvidia-cublas-{cuda}" not in text] == []


def test_a_condition_that_stands_in_a_cell_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = [survey(subject("sm_90", cuda=cuda), name=name) for name, cuda in (("a", 12), ("b", 13))]
    fleet = (machine("9.0"),)
    verdicts = tuple(verdict for wheel in wheels for verdict in judge_all(wheel, fleet))
    answer = Check(targets=targets_of(wheels), machines=fleet, verdicts=verdicts)
    text = " ".join(shown(document_of(answer, verbose=False), monkeypatch).split())
    assert text.count("driver 580 or") == 1
    assert "Conditions" not in text
    assert "Conditions" in shown(document_of(answer, verbose=True), monkeypatch)


def test_a_table_of_thousands_of_rows_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a name has no room, each row stands by itself: none measures all the others again."""
    measured: list[object] = []
    get = Measurement.get

    def counted(*given: Any) -> Measurement:
        measured.append(given)
        return get(*given)

    monkeypatch.setattr(Measurement, "get", counted)
    rows = [("w" * 200, "y", "z " * 20)] * 500
    written = shown(Document(title="x", blocks=(table((short("name"), short("b"), "why"), rows),)), monkeypatch)
    assert written.count("w" * 200) == 500
    assert len(measured) < 20 * len(rows)


@pytest.mark.parametrize("text", ["\n" * 300_000, "a\n" * 150_000, "\t" * 300_000])
def test_a_text_of_hundreds_of_thousands_of_lines_is_cut(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (
        table((short("name"), "why"), [(text, "y"), ("a", text)]),
        Paragraph(text),
        Verbatim((text,)),
        Facts((Row("name", text),)),
    )
    assert shown(Document(title="x", blocks=blocks), monkeypatch).count("\n") < 50_000


def test_a_long_line_of_ours_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is to be copied, however many files it names."""
    command = "nvcc " + " ".join(f"{number}.cu" for number in range(5000))
    assert command in shown(Document(title="x", blocks=(Verbatim((command,)),)), monkeypatch)
