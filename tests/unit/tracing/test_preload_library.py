"""What is preloaded into the programs that are traced."""

from __future__ import annotations

import pytest

from cuwheel.errors import UsageError
from cuwheel.tracing import session


def test_where_nothing_can_be_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr("os.name", "nt")
    with pytest.raises(UsageError, match=r"programs can be traced on Linux only$") as caught:
        session.preload_path({})
    assert "WSL2" in (caught.value.hint or "")
