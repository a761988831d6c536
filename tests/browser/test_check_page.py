"""The matrix of `check --html`, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.report import html
from cuwheel.verdicts.judge import judge
from cuwheel.verdicts.verdict import Check, targets_of
from tests.unit.verdicts.subjects import library, machine, survey

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

SURVEYS = (survey(library("sm_90 compute_90"), name="one"), survey(library("sm_75", "sm_90"), name="<b>two</b>"))
MACHINES = tuple(machine(each, driver="580.65.06") for each in ("9.0", "10.0", "7.5", "8.0"))


@pytest.fixture
def page(browser: Chrome, tmp_path: Path) -> Chrome:
    answer = Check(
        targets=targets_of(SURVEYS),
        machines=MACHINES,
        verdicts=tuple(judge(each, on) for each in SURVEYS for on in MACHINES),
    )
    html.save(answer, tmp_path / "matrix.html")
    browser.get((tmp_path / "matrix.html").as_uri())
    return browser


def test_every_cell_says_its_verdict_in_large_letters_and_not_by_colour_alone(page: Chrome) -> None:
    rows = page.find_elements("css selector", ".matrix tbody tr")
    told = [[cell.text.split("\n")[0] for cell in row.find_elements("css selector", "td b")] for row in rows]
    assert told == [["native", "partial"], ["jit", "fails"], ["fails", "partial"], ["fails", "fails"]]
    marks = {
        page.execute_script("return getComputedStyle(arguments[0], '::before').content", word)
        for word in page.find_elements("css selector", ".matrix td b")
    }
    assert len(marks) == 4
    size = page.find_element("css selector", ".matrix td b").value_of_css_property("font-size")
    assert float(size.removesuffix("px")) >= 24


def test_names_are_text(page: Chrome) -> None:
    heads = [each.text for each in page.find_elements("css selector", ".matrix thead th")]
    assert heads == ["one 1.0", "<b>two</b> 1.0"]


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_itself_never_scrolls_sideways(page: Chrome, width: int) -> None:
    page.set_window_size(width, 900)
    overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.execute_script(overflow) == 0
