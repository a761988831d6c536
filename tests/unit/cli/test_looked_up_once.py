"""Machines that a person names are read where they enter, and nowhere again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.cli import main
from cuwheel.machine import fleet, profile
from cuwheel.support import masking
from tests.fixtures import manifest
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIBRARY = str(manifest.HERE / "bin" / "plain-130.so")


def _counted(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> list[object]:
    calls: list[object] = []
    real: Callable[..., object] = getattr(where, name)

    def counting(*given: object, **named: object) -> object:
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(where, name, counting)
    return calls


@pytest.mark.parametrize(
    "words",
    [
        ["slim", LIBRARY, "--dry-run", "--for"],
        ["plan", "--cuda", "13.0", "--for"],
        ["plan", "--read", "80;90", "--on"],
        ["check", LIBRARY, "--on"],
    ],
    ids=lambda words: words[0],
)
def test_a_fleet_file_is_read_once(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[[machine]]\nname = "ours"\ngpu = "h100"\n')
    calls = _counted(monkeypatch, fleet, "read_fleet_file")
    assert main([*words, str(path)]) == 0
    assert len(calls) == 1


def test_the_profile_of_a_failure_is_read_once_and_its_answer_masked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "opensesame-4711")
    saved, log = tmp_path / "gpu07.json", tmp_path / "log.txt"
    profile.save(MACHINES[0].profile, saved)
    log.write_text("opensesame-4711: CUDA error: no kernel image is available for execution on the device\n")
    read, masked = _counted(monkeypatch, profile, "load"), _counted(monkeypatch, masking, "hiding")
    assert main(["explain", str(log), "--on", str(saved)]) == 0
    assert len(read) == 1
    assert len(masked) == 1
    told = capsys.readouterr().out
    assert "no kernel image" in told
    assert "opensesame" not in told
