"""The page that `--html` writes, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.report import html
from cuwheel.report.inspect import Inspect, LibraryCoverage
from cuwheel.tracing import traced
from cuwheel_core.device_code.libraries import DeviceCode, Library, Part, Registration
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding, Fix
from cuwheel_core.verdicts.predict import Coverage
from tests.unit.tracing.test_workload import LIBRARY, load, process, written

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

EVIL = "lib/<script>document.title='owned'</script>\"onload=\"x.so"


def _code(arch: str, size: int, count: int) -> DeviceCode:
    return DeviceCode(
        kind="ptx" if arch.startswith("compute") else "cubin",
        arch=Arch.parse(arch),
        section=".nv_fatbin",
        linked=True,
        compression="zstd",
        ptx_isa="9.0" if arch.startswith("compute") else None,
        count=count,
        bytes=size,
        real_bytes=size * 3,
        debug_count=0,
    )


def _library(path: str, *code: DeviceCode) -> Library:
    return Library(
        path=path,
        format="elf",
        type="shared",
        machine="x86_64",
        size=10_000_000,
        soname=None,
        needed=("libcudart.so.13",),
        rpath=(),
        runpath=(),
        interpreter=None,
        glibc="2.17",
        glibcxx=None,
        cxxabi=None,
        cxx11_abi=None,
        build_id=None,
        host_compiler=None,
        cudart=None,
        toolkits=("13.0",),
        platform=None,
        device_linked=False,
        device_code=code,
        parts=(Part(name="host code", arch=None, bytes=10_000_000),),
        registration=Registration(wrappers=(), module_ids=(), containers=0, unnamed=()),
        containers=(),
        entries=(),
        findings=(Finding(rule="a-rule", severity="warning", message=EVIL, fixes=(Fix(text="do <b>it</b>"),)),),
    )


ANSWER = Inspect(
    target="demo.whl",
    kind="wheel",
    size=20_000_000,
    distribution=None,
    libraries=(
        _library("lib/one.so", _code("sm_90", 900_000, 2), _code("sm_100", 80_000, 30), _code("compute_120", 7, 1)),
        _library(EVIL, _code("sm_90", 10_000, 1)),
    ),
    coverage=(
        LibraryCoverage(
            path="lib/one.so",
            coverage=Coverage(native=("9.0",), jit=(), partial=(), future=False),
            words="runs natively on 9.0",
        ),
    ),
    findings=(),
)


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    path = tmp_path / "report.html"
    html.save(ANSWER, path)
    browser.get(path.as_uri())
    return browser


def _column(page: Chrome, number: int) -> list[str]:
    cells = page.find_elements("css selector", f"table.sortable tbody tr td:nth-child({number})")
    return [cell.text for cell in cells[:3]]  # those of the first library


def test_it_shows_the_heat_map_and_the_tables(page: Chrome) -> None:
    assert page.title == "cuwheel inspect demo.whl"
    heads = [each.text for each in page.find_elements("css selector", ".heat thead th")]
    assert heads == ["", "sm_90", "sm_100", "compute_120"]
    cells = page.find_elements("css selector", ".heat tbody tr:first-child td")
    assert [cell.text for cell in cells] == ["900 kB", "80.0 kB", "7 B"]
    strong, weak = (cell.value_of_css_property("background-color") for cell in cells[:2])
    assert strong != weak
    assert "Runs natively on 9.0." in page.find_element("tag name", "main").text


def test_a_click_sorts_and_a_second_one_turns_round(page: Chrome) -> None:
    count = next(each for each in page.find_elements("css selector", "th button") if each.text == "count")
    assert _column(page, 6) == ["2", "30", "1"]
    count.click()
    assert _column(page, 6) == ["1", "2", "30"]
    count.click()
    assert _column(page, 6) == ["30", "2", "1"]
    stored = next(each for each in page.find_elements("css selector", "th button") if each.text == "stored")
    stored.click()
    assert _column(page, 1) == ["compute_120", "sm_100", "sm_90"]  # by bytes, not by their text


def test_names_from_files_are_text_and_nothing_else(page: Chrome) -> None:
    assert page.title == "cuwheel inspect demo.whl"
    assert EVIL in page.find_element("tag name", "main").text
    assert page.find_elements("css selector", "main script, main b b") == []


def test_it_needs_nothing_from_elsewhere(page: Chrome) -> None:
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("width", [360, 400, 800, 1280, 1600])
def test_nothing_is_cut_off(page: Chrome, width: int) -> None:
    """As on a phone too, where nobody sees that a table could be pushed aside."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    hidden = "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    beyond = (
        "return [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    )
    assert page.execute_script(hidden) == 0
    assert page.execute_script(beyond + ".length") == 0
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(overflow) == 0


_OVERLAPPING = """
const boxes = [...document.querySelectorAll(arguments[0])].filter((each) => each.offsetParent)
  .map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return [each.textContent, range.getBoundingClientRect()];
  });
const found = [];
boxes.forEach(([text, a], at) => boxes.slice(at + 1).forEach(([other, b]) => {
  const apart = a.left >= b.right - 1 || b.left >= a.right - 1 || a.top >= b.bottom - 1 || b.top >= a.bottom - 1;
  if (!apart) found.push([text, other]);
}));
return found;"""


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_a_trace_do_not_run_into_each_other(browser: Chrome, tmp_path: Path, width: int) -> None:
    loads = [
        load(number, LIBRARY, at=0.2 * number, seconds=0.3 if number % 3 else 0.01, process=number % 2)
        for number in range(40)
    ]
    script = "train_with_a_name_that_is_rather_long_for_a_script.py"
    kernels = [{"process": 0, "kernel": "scale", "demangled": None, "library": LIBRARY, "package": None, "launches": 7}]
    processes = [process(pid=number, seconds=8.1, script=script) for number in (4711, 4712)]
    trace = written(tmp_path, processes=processes, loads=loads, kernels=kernels)
    html.save(traced.read_trace(trace), tmp_path / "trace.html")
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((tmp_path / "trace.html").as_uri())
    assert len(browser.find_elements("css selector", ".timeline .label")) == len(processes)
    assert browser.execute_script(_OVERLAPPING, ".timeline .label, .timeline .tick") == []
    bars = browser.find_elements("css selector", ".timeline .span > b")
    labels = browser.find_elements("css selector", ".timeline .label")
    tops = {(label.rect["y"], label.rect["y"] + label.rect["height"]) for label in labels}
    assert not any(top < bar.rect["y"] < bottom for bar in bars if bar.is_displayed() for top, bottom in tops)
    cells = [each.text.split() for each in browser.find_elements("css selector", ".sortable tbody tr")]
    assert any(set(each) >= {"scale", "libfoo.so", "7"} for each in cells)
