"""How a trial ended, in words."""

from __future__ import annotations

import pytest

from cuwheel.proving.runner.child import End
from cuwheel.proving.runner.output import Capture
from cuwheel_lab.measuring import execution
from cuwheel_lab.measuring.trials_file import Failing


@pytest.mark.parametrize(
    ("stopped", "kind", "words"),
    [
        ("timeout", "timeout", "did not end within 3.0 s"),
        ("memory", "memory", "took 2 MB and was stopped"),
        ("processes", "memory", "started more and more processes"),
    ],
)
def test_why_it_was_stopped_is_said(stopped: str, kind: str, words: str) -> None:
    end = End(status=None, stopped=stopped, seconds=3.0, memory=2_000_000, leftovers=())
    found, message = execution.judge_end(Failing(), end, Capture(()))
    assert found == kind
    assert message.startswith(words)
