"""Confidence grows with the evidence, is a share of 1, and leads back to the weight that it was worked out from."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwheel.diagnosis import text
from cuwheel.diagnosis.confidence import CERTAIN, CURVE, SHOWN, said, together, weight_of
from cuwheel.diagnosis.explain import explain

WEIGHTS = st.floats(0, 1)


@given(WEIGHTS, WEIGHTS)
def test_the_heavier_is_never_the_less_sure(one: float, other: float) -> None:
    assert (said(one) <= said(other)) == (said(min(one, other)) == said(one))
    assert 0 <= said(one) <= CERTAIN


def test_the_curve_rises() -> None:
    for (left, low), (right, high) in pairwise(CURVE):
        assert left < right
        assert low < high
        assert low <= said((left + right) / 2) <= high
        assert said(right) >= min(right, CERTAIN)  # those behind a first cause are never surer than it
    assert said(SHOWN) == SHOWN


@given(WEIGHTS)
def test_there_and_back(weight: float) -> None:
    assert said(weight_of(said(weight))) == pytest.approx(said(weight), abs=0.011)


@given(st.lists(st.floats(0.01, 0.98), min_size=1, max_size=6), st.floats(0.01, 0.98))
def test_more_evidence_is_more_weight(weights: list[float], more: float) -> None:
    assert together([*weights, more]) >= max(*weights, more) - 1e-9


def test_a_second_sign_makes_a_cause_surer() -> None:
    loader = "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n"
    named = "RuntimeError: cudart library not found\n"
    alone = explain(text.parse(named)).causes[0]
    both = explain(text.parse(loader + named)).causes
    assert next(each.confidence for each in both if each.id == alone.id) >= alone.confidence
