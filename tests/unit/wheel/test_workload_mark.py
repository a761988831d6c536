"""The mark of what was cut to a workload, read from a note that may be anybody's."""

from __future__ import annotations

import json

import pytest

from cuwheel.wheel import slim_note


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ({"workload": ["python a.py"]}, ("python a.py",)),
        ({"workload": []}, ()),
        ({"workload": None}, None),
        ({}, None),
        ({"workload": None, "earlier": [{"workload": ["python a.py"]}, {}]}, ("python a.py",)),
        ({"workload": ["b"], "earlier": [{"workload": ["a", "b"]}]}, ("b", "a")),
        ({"earlier": "text"}, None),
        ({"earlier": [3, None, []], "workload": 5}, None),
    ],
)
def test_this_run_or_an_earlier_one(note: dict[str, object], expected: tuple[str, ...] | None) -> None:
    """Slimming by architecture after a cut by use does not bring anything back."""
    assert slim_note.workload_commands(json.dumps(note)) == expected
    assert slim_note.workload_commands(json.dumps(note).encode()) == expected


@pytest.mark.parametrize("note", [None, "", b"", "[]", "{", b"\xff", "\ud800"])
def test_what_is_no_note(note: str | bytes | None) -> None:
    assert slim_note.workload_commands(note) is None


def test_the_finding_names_both() -> None:
    found = slim_note.cut_to_workload(["torch"], ["python train.py"])
    assert found.rule == slim_note.CUT_RULE
    assert "torch was cut to a workload (python train.py)" in found.message
    assert "--undo" in found.fix
