"""Services that resume trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuwheel.errors import UsageError
from cuwheel_lab.measuring import service


def test_windows_has_neither_systemd_nor_cron(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(UsageError, match="for Linux") as caught:
        service.plan_service(Path("trials.toml"), Path("results"))
    assert "Task Scheduler" in (caught.value.hint or "")
    assert service.plan_service(Path("trials.toml"), Path("results"), "cron").text.startswith("@reboot")
