"""What resumes trials after a boot, written by commands that are played, and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuwheel_lab
from cuwheel.report.answer import document_of

CUWHEEL = str(Path(sys.executable).with_name("cuwheel"))
CRONTAB = """\
#!/bin/sh
case $1 in
-l) [ -e "$TABLE" ] && cat "$TABLE" || { echo "no crontab for you" >&2; exit 1; } ;;
*) cat "$1" > "$TABLE" ;;
esac
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "crontab").write_text(CRONTAB)
    (programs / "systemctl").write_text('#!/bin/sh\necho "$@" >> "$CALLS"\n')
    for each in programs.iterdir():
        each.chmod(0o755)
    folder = tmp_path / "tri als %h"
    folder.mkdir()
    (folder / "TRIALS.toml").write_text("command = 'true'\nrepeats = 2\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture
def file(place: Path) -> Path:
    return place / "TRIALS.toml"


def test_a_line_of_cron_is_added_runs_and_goes(place: Path, file: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("# mine\n0 4 * * * backup\n")
    dry = cuwheel_lab.trials_service(file, kind="cron", dry_run=True)
    assert "@reboot" in dry.text
    assert table.read_text().count("\n") == 2
    for _ in range(2):  # a second time does not double it
        assert cuwheel_lab.trials_service(file, kind="cron").succeeded
    *mine, line = table.read_text().splitlines()
    assert mine == ["# mine", "0 4 * * * backup"]
    command = line.removeprefix("@reboot ").replace(r"\%", "%")  # as cron reads it
    subprocess.run(["sh", "-c", command], check=True, cwd="/", env={**os.environ, "PATH": "/usr/bin:/bin"})
    done_file = place / "cuwheel-trials" / "done"
    assert done_file.is_file()
    before = (place / "cuwheel-trials" / "journal.jsonl").stat().st_size
    subprocess.run(["sh", "-c", command], check=True, cwd="/")  # done: nothing more is run
    assert (place / "cuwheel-trials" / "journal.jsonl").stat().st_size == before
    assert cuwheel_lab.trials_service(file, kind="cron", remove=True).succeeded
    assert table.read_text() == "# mine\n0 4 * * * backup\n"
    assert not cuwheel_lab.trials_service(file, kind="cron", remove=True).succeeded


def test_a_unit_is_written_enabled_and_removed(file: Path, tmp_path: Path) -> None:
    done = cuwheel_lab.trials_service(file, kind="systemd-user")
    assert done.succeeded
    (unit,) = (tmp_path / "config" / "systemd" / "user").glob("cuwheel-trials-*.service")
    text = unit.read_text()
    assert "--resume" in text
    assert "tri als %%h" in text
    assert "ConditionPathExists=!" in text
    assert "enable-linger" in str(document_of(done, verbose=False)).lower()
    assert (tmp_path / "calls").read_text() == f"--user daemon-reload\n--user enable {unit.name}\n"
    if verify := shutil.which("systemd-analyze"):
        checked = subprocess.run([verify, "verify", "--user", unit], capture_output=True, text=True, check=False)
        assert "Failed to parse" not in checked.stderr
        assert "Unknown" not in checked.stderr
    assert cuwheel_lab.trials_service(file, kind="systemd-user", remove=True).succeeded
    assert not unit.exists()
    assert f"--user disable {unit.name}\n" in (tmp_path / "calls").read_text()


def test_a_file_that_is_wrong_gets_no_service(place: Path) -> None:
    (place / "TRIALS.toml").write_text("command = 7\n")
    command = [CUWHEEL, "lab", "trials", "install-service", "TRIALS.toml"]
    assert subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=600).returncode == 2
    assert not Path(os.environ["TABLE"]).exists()
