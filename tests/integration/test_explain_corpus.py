"""Accuracy on real failures, from their logs alone. The corpus is not part of the repository: it is evaluation data."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.diagnosis import text
from cuwheel.diagnosis.causes import knowledge
from cuwheel.diagnosis.explain import explain
from tests.property.test_explain_varied import VARIATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

BESIDE = Path(__file__).parents[3] / "shared" / "corpus" / "dev.jsonl"
FIRST, AMONG_THREE = 0.95, 0.98
NOT_CUDA = "not-cuda"


def _corpus() -> Path | None:
    named = Path(os.environ.get("CUWHEEL_CORPUS", ""))
    return BESIDE if BESIDE.is_file() else named if named.is_file() else None


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    path = _corpus()
    if path is None:
        pytest.skip("there is no corpus of logs: CUWHEEL_CORPUS=FILE.jsonl names one")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _answers(case: dict[str, Any]) -> list[str]:
    found = [cause.id for cause in explain(text.parse(case["log"])).causes]
    return found or ([NOT_CUDA] if case["cause"] == NOT_CUDA else [])  # an empty answer is right there too


def test_causes_from_the_log_alone(cases: list[dict[str, Any]]) -> None:
    missed, far = [], []
    for case in cases:
        right = {case["cause"], *case["alt_causes"]}
        found = _answers(case)
        if not right.intersection(found[:1]):
            missed.append((case["cause"], found[:3]))
        if not right.intersection(found[:3]):
            far.append((case["cause"], found[:3]))
    assert len(missed) <= (1 - FIRST) * len(cases), missed
    assert len(far) <= (1 - AMONG_THREE) * len(cases), far


def test_no_false_alarm_on_what_is_not_cuda(cases: list[dict[str, Any]]) -> None:
    assert [_answers(case)[0] for case in cases if case["cause"] == NOT_CUDA and _answers(case)[0] != NOT_CUDA] == []


@pytest.mark.slow
@pytest.mark.parametrize("vary", VARIATIONS, ids=lambda vary: vary.__name__)
def test_the_answer_holds_however_it_was_printed(
    cases: list[dict[str, Any]], vary: Callable[[str, random.Random], str]
) -> None:
    choice = random.Random(5)  # noqa: S311 - for tests
    right = 0
    for case in cases:
        found = _answers({**case, "log": vary(case["log"].strip() + "\n", choice)})
        right += bool({case["cause"], *case["alt_causes"]}.intersection(found[:1]))
    assert right >= FIRST * len(cases)


def test_every_label_has_its_file(cases: list[dict[str, Any]]) -> None:
    labels = {label for case in cases for label in (case["cause"], *case["alt_causes"])}
    assert labels <= knowledge().causes.keys()
