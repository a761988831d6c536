"""The page that `cuwheel build` writes beside the wheels, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.report import html
from tests.unit.report.builds import EVIL, FAILED, REFUSED, build, job

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    path = tmp_path / "build.html"
    html.save(build(job(), FAILED, REFUSED), path)
    browser.set_window_size(1200, 900)
    browser.get(path.as_uri())
    return browser


def _box(page: Chrome, selector: str) -> list[dict[str, float]]:
    return [dict(each.rect) for each in page.find_elements("css selector", selector)]


def test_bars_stand_where_and_as_long_as_the_calls_were(page: Chrome) -> None:
    """The first job took 16 s, so a pixel is known by heart."""
    first = ".timeline:first-of-type .rows"
    axis = _box(page, first)[0]
    bars = _box(page, f"{first} .row:nth-of-type(n) .span.nvcc")
    scale = axis["width"] / 16.0
    expected = [(4.0, 6.0), (4.2, 9.0)]
    for box, (began, took) in zip(bars[:2], expected, strict=True):
        assert box["x"] - axis["x"] == pytest.approx(began * scale, abs=2)
        assert box["width"] == pytest.approx(took * scale, abs=2)
    assert bars[0]["y"] < bars[1]["y"]  # they ran at the same time
    assert all(box["height"] >= 16 for box in bars)


def test_bars_say_what_they_are(page: Chrome) -> None:
    bar = page.find_element("css selector", ".timeline .span.nvcc")
    assert bar.text == "kernel_1.cu"
    tip = str(bar.get_attribute("title"))
    assert tip.startswith("1: nvcc csrc/kernel_1.cu\n6.00 s, succeeded")
    assert "cicc compute_90 3.00 s" in tip
    parts = page.find_elements("css selector", ".timeline .span.nvcc:first-child .parts i")
    colours = {each.value_of_css_property("background-color") for each in parts[:3]}
    assert len(colours) == 3
    failed = page.find_element("css selector", ".timeline .span.failed")
    assert "dashed" in failed.value_of_css_property("outline")  # not by colour alone


def test_what_was_built_is_seen_at_once(page: Chrome) -> None:
    marks = [each.text for each in page.find_elements("css selector", ".matrix tbody td")]
    assert marks[0] == "built\n7.2 MB"
    assert marks[1] == "failed"
    text = page.find_element("tag name", "main").text
    for told in ("sha256", "nvcc 13.0.88 from index", "cache: 1 of 4 hit", "cuwheel record replay /jobs/2/record 1"):
        assert told in text
    heat = [each.text for each in page.find_elements("css selector", ".heat tbody tr:first-child td")]
    assert heat[:3] == ["67.9 kB", "2.1 MB", "2.5 MB"]


def test_names_from_files_are_text_and_nothing_else(page: Chrome) -> None:
    assert page.title == "cuwheel build demo 1.0"
    bars = page.find_elements("css selector", ".timeline .span.nvcc")
    assert EVIL in str(bars[1].get_attribute("title"))
    assert page.find_elements("css selector", "main script") == []


def test_it_needs_nothing_from_elsewhere(page: Chrome) -> None:
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("width", [400, 800, 1600])
def test_the_page_itself_never_scrolls_sideways(page: Chrome, width: int) -> None:
    page.set_window_size(width, 900)
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(overflow) == 0
