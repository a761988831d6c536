"""YAML that somebody wrote is read, or refused with words."""

from __future__ import annotations

import pytest

from cuwheel.delivery.workflows import problems
from cuwheel_core.errors import MalformedError

pytestmark = pytest.mark.unit


def test_a_mapping() -> None:
    assert problems.load_yaml("on: push\njobs: {a: {steps: []}}\n", "x") == {"on": "push", "jobs": {"a": {"steps": []}}}


_LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        _LAUGHS,
        "",
        "3",
        "- a",
        "a: [",
        "a: &a [*a]",
        "a: 1\na: 2",
        "!!python/object:os.system x",
        "[" * 500,
        "x" * (1 << 21),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        problems.load_yaml(text, "x")
