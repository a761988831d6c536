"""The installed command, as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CUWHEEL = Path(sys.executable).with_name("cuwheel")


def cuwheel(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CUWHEEL, *words], capture_output=True, text=True, timeout=600, env=os.environ | env, check=False
    )


def test_doctor_on_this_machine() -> None:
    began = os.times()
    done = cuwheel("doctor", "--json")
    ended = os.times()
    seconds = ended.children_user + ended.children_system - began.children_user - began.children_system
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "cuwheel.doctor/1"
    assert answer["machine"]["python"]["version"].startswith("3.")
    if not answer["machine"]["gpus"]:
        assert seconds < 2  # of the processor, as promised of the clock: other work on the machine does not count


def test_doctor_as_nobody_with_nothing(tmp_path: Path) -> None:
    """No PATH, no home, an empty folder: it still answers."""
    done = subprocess.run(
        [CUWHEEL, "doctor"],
        capture_output=True,
        text=True,
        timeout=600,
        env={"PATH": str(tmp_path), "LANG": "C"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "compiler  none found" in done.stdout


def test_the_profile_names_nobody(tmp_path: Path) -> None:
    home = tmp_path / "home" / "marvin-the-user"
    (home / "cuda" / "bin").mkdir(parents=True)
    saved = tmp_path / "machine.json"
    done = cuwheel(
        "doctor", "--save", str(saved), HOME=str(home), LOGNAME="marvin-the-user", CUDA_HOME=str(home / "cuda")
    )
    assert done.returncode in (0, 1), done.stderr
    text = saved.read_text()
    assert "marvin-the-user" not in text
    assert '"~/cuda"' in text
    assert cuwheel("doctor", "--on", str(saved)).returncode == done.returncode


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_nobody_sees_it(variables: dict[str, str]) -> None:
    assert "\x1b" not in cuwheel("lookup", "gpu", "h100", **variables).stdout


def test_a_reader_that_leaves() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{CUWHEEL} lookup gpu | head -1"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stderr == ""
    assert "GPU" in done.stdout


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cuwheel", "--version"], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.startswith("cuwheel ")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="msgspec needs typing_extensions before")
def test_a_first_answer_imports_only_what_it_needs() -> None:
    library = Path(__file__).parents[1] / "fixtures" / "bin" / "plain-130.so"
    script = (
        f"import sys; from cuwheel.cli import main; main(['inspect', '--json', {str(library)!r}]);"
        "print(*sorted(sys.modules), file=sys.stderr); import typing_extensions"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stderr.split()
    assert "msgspec" in loaded
    assert {"typing_extensions", "inspect", "hashlib", "shutil", "dataclasses", "rich", "logging"}.isdisjoint(loaded)


def test_version_imports_next_to_nothing() -> None:
    """What makes it start fast, checked without a clock: bench_startup has the figure."""
    script = "import sys; from cuwheel.cli import main; main(['--version']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    loaded = done.stdout
    for heavy in ("argparse", "msgspec", "rich", "httpx", "logging", "importlib.metadata"):
        assert f"'{heavy}'" not in loaded
