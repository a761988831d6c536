"""Unit tests ask no index whether cuwheel can be had: tests/integration/test_workflows.py does."""

from __future__ import annotations

import pytest

from cuwheel.delivery.workflows import writing


@pytest.fixture(autouse=True)
def _is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "why_not_available", lambda *_: "")
