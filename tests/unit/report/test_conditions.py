"""An outcome is never shown without its conditions, or their number, whoever shows it."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree as ET

import pytest

from cuwheel.delivery.find_answer import Find, FoundFile, Served
from cuwheel.delivery.fleet_install import _outcome
from cuwheel.delivery.install_answer import Package, Part
from cuwheel.delivery.publishing import Mirror
from cuwheel.diagnosis.explain import _checked
from cuwheel.diagnosis.rows import Way
from cuwheel.report import for_ci, html, install, markdown, publish, terminal
from cuwheel.report.answer import document_of
from cuwheel.report.verify import _verdict
from cuwheel.verdicts.verdict import Check, Target, Verdict
from cuwheel_core.verdicts.condition import Condition, condition
from tests.unit.verdicts.subjects import machine

if TYPE_CHECKING:
    from cuwheel.delivery.best_candidate import Choice
    from cuwheel.proving.outcomes import Installation
    from cuwheel.report.document import Document

DRIVER = condition("driver-at-least", version="580", cuda=("13",))
TORCH = condition("torch-cuda", framework="torch", cuda=("13",))
FOUND = condition("library-found", names=tuple(f"libquitelong{number}.so.{number}" for number in range(9)))
CASES = ((DRIVER,), (DRIVER, TORCH, FOUND))


def verdict(requires: tuple[Condition, ...], **fields: Any) -> Verdict:
    shape: dict[str, Any] = {"outcome": "native", "predicted_error": None, "libraries": (), "findings": (), **fields}
    return Verdict(target="x.whl", machine="h100", requires=requires, **shape)


def check(requires: tuple[Condition, ...], **fields: Any) -> Check:
    target = Target(target="x.whl", name="demo 1.0")
    return Check(targets=(target,), machines=(machine(),), verdicts=(verdict(requires, **fields),))


def found(requires: tuple[Condition, ...]) -> FoundFile:
    listed: dict[str, Any] = {"file": "demo-1.0-py3-none-any.whl", "url": "", "sha256": None, "size": None}
    return FoundFile(**listed, kind="wheel", version="1.0", index="", outcome="native", chosen=True, requires=requires)


def package(requires: tuple[Condition, ...]) -> Package:
    taken: dict[str, Any] = {"fallback": None, "why": "", "passed": (), "build": None, "file": None}
    return Package(name="demo", wanted="demo", version="1.0", outcome="native", requires=requires, **taken)


def part(requires: tuple[Condition, ...]) -> Part:
    return Part(machines=("h100",), packages=(package(requires),), pins={}, files=(), problem="")


def find(requires: tuple[Condition, ...], *, fleet: bool) -> Find:
    one = found(requires)
    rows = (Served(machines=("h100",), chosen=one),) if fleet else ()
    return Find(name="demo", machines=(machine(),), candidates=(one,), downloaded=0, rows=rows)


def way_out(requires: tuple[Condition, ...]) -> str:
    return _checked(Way(id="prebuilt-wheel", title="a wheel", text="", source=""), verdict(requires)).text


def in_all_formats(document: Document) -> dict[str, str]:
    stream = io.StringIO()
    terminal.write(document, stream)
    return {"terminal": stream.getvalue(), "markdown": markdown.text(document), "html": html.page(document)}


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("requires", CASES, ids=len)
def test_answers_show_what_they_rest_on(
    requires: tuple[Condition, ...], *, verbose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    answers = (check(requires), find(requires, fleet=False), find(requires, fleet=True))
    for answer in answers:
        for name, text in in_all_formats(document_of(answer, verbose=verbose)).items():
            words = " ".join(text.split())
            assert "native" in words, name
            assert "driver 580 or later" in words, name
            assert ("libquitelong8.so.8" in words) == (len(requires) > 1), name


@pytest.mark.parametrize("requires", CASES, ids=len)
def test_one_line_has_all_conditions(requires: tuple[Condition, ...]) -> None:
    table = tuple(publish._mirror(Mirror(parts=(part(requires),)), dry_run=False))
    shown = [
        "".join(map(markdown.render, table)),
        " ".join(str(row.value) for row in install._taken(package(requires), found(requires), ())),
        _verdict(verdict(requires), cast("Installation", SimpleNamespace(gpus=("h100",)))),
        way_out(requires),
        _outcome(cast("Choice", SimpleNamespace(taken=found(requires)))),  # of a lock
    ]
    for text in shown:
        words = text.replace("\\", "")
        assert all(each.text in words for each in requires), words


def test_a_main_part_that_fails_is_a_failure() -> None:
    broken = check((DRIVER,), outcome="partial", main="fails", summary="starts, but its main part fails: x.so")
    assert not broken.succeeded
    suite = ET.fromstring(for_ci.junit(broken))  # noqa: S314 - our own
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "starts, but its main part fails: x.so if driver 580 or later (CUDA 13)"


def test_what_every_answer_says_of_conditions_is_made_of_their_values() -> None:
    for answer in (verdict((DRIVER,)), found((DRIVER,)), package((DRIVER,))):
        assert answer.conditions == ("driver 580 or later (CUDA 13)",)
