"""Threads that decode one type for the first time, together: in copies of one process, and in whole first `find`s."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cuwheel.device_code import wheel_facts
from cuwheel.wheel.file import WheelFile
from tests.integration.index_server import clean_environment, serving
from tests.integration.test_find import TAG, _served, _wheel

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="copies of a process are made with fork"),
]

ROOT = Path(__file__).parents[2]
MACHINE = ["--on", "h100", "--set", "python=3.11,os=linux,cpu=x86_64", "--driver", "580.65.06"]


def _copies(tmp_path: Path, copies: int) -> int:
    made = tmp_path / "facts.json"
    with WheelFile(_wheel(tmp_path, "1.0", "plain-130.so")) as wheel:
        made.write_bytes(wheel_facts.encoded(wheel_facts.of_wheel(wheel)))
    command = [sys.executable, "-m", "tests.integration.first_decodes", str(copies), str(made)]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=600).stdout)


def test_threads_may_be_the_first_to_decode(tmp_path: Path) -> None:
    assert _copies(tmp_path, 40) == 40


@pytest.mark.slow
def test_first_finds_under_load_end_with_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight releases with facts files, so that eight threads read facts; four commands at a time on few cores."""
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    wheels = [_wheel(tmp_path / "dist", f"1.{each}", "plain-130.so", TAG) for each in range(8)]
    with serving(_served(wheels, facts=True)) as url, ThreadPoolExecutor(4) as pool:
        command = [sys.executable, "-m", "cuwheel", "find", "demo", "--index", f"{url}/simple", *MACHINE, "--json"]

        def find(_: int) -> tuple[int, list[str], str]:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            rows = json.loads(done.stdout or "{}").get("candidates", ())
            said = done.stderr if done.returncode else ""
            return done.returncode, [each["version"] for each in rows if each["chosen"]], said

        ended = list(pool.map(find, range(200)))
    assert [each for each in ended if each != (0, ["1.7"], "")] == []
