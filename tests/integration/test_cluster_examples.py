"""The files of examples/cluster: valid as far as this machine can tell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "examples" / "cluster"


def run(*words: str | Path, cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def test_the_compose_file_is_one() -> None:
    done = run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["cuwheel-worker.service", "cuwheel-scheduler.service"])
def test_the_units_are_understood(name: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    unit = (HERE / name).read_text().replace("/opt/cuwheel/bin/cuwheel", "/bin/true")
    (tmp_path / name).write_text(unit)
    done = run("systemd-analyze", "verify", tmp_path / name, cwd=tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_script_for_slurm_is_shell() -> None:
    assert run("bash", "-n", "workers.sbatch").returncode == 0
