"""`trials bisect` over versions of an index and over commits: a fault that is not certain, planted and found."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.command import Told, call
from tests.fixtures.small_wheel import Wheel

from cuwheel_lab.measuring import journal

CUWHEEL = str(Path(sys.executable).with_name("cuwheel"))
ROOT = Path(__file__).parents[3]
# Half of its runs, in an order that is the same every time: how many there were is in a file.
FAULT = """\
import os, sys
path = os.environ["COUNT"] + NAME
number = os.path.getsize(path) if os.path.exists(path) else 0
open(path, "a").write("x")
sys.exit(number % 2 == 0)
"""


def bisect(place: Path, *words: str, env: dict[str, str] | None = None) -> Told:
    environ = {**os.environ, "COUNT": str(place / "count-"), **(env or {})}
    return call("lab", "trials", "bisect", "TRIALS.toml", "--json", *words, env=environ, cwd=place)


def answer(told: Told, status: int = 0) -> dict[str, Any]:
    assert told.status == status, told.stderr
    found: dict[str, Any] = told.document
    return found


def test_over_versions_of_an_index(tmp_path: Path) -> None:
    index = tmp_path / "wheels"
    for minor in range(8):
        version = f"1.{minor}"
        text = f"NAME = '{version}'\n{FAULT}" if minor >= 5 else ""
        Wheel(version=version, files={"subject/__init__.py": text}).write(index)
    (tmp_path / "TRIALS.toml").write_text("command = \"python -c 'import subject'\"\n")
    env = {"PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1"}
    found = answer(bisect(tmp_path, "--good", "subject==1.0", "--bad", "subject==1.7", "--rate", "0.4", env=env))
    assert (found["last_good"], found["first_bad"]) == ("1.4", "1.5")
    assert len(found["candidates"]) == 8
    assert found["foretold"] > 0
    wrong = bisect(tmp_path, "--good", "subject==1.0", "--bad", "subject==9.9", "-o", "other", env=env)
    assert wrong.status == 3
    assert "the newest are" in wrong.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Twelve commits, of which the eighth brings a fault that two axes must agree on."""
    folder = tmp_path / "source"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for number in range(12):
        planted = f"import sys\nif sys.argv[1:] != ['mixed', 'nf4']: sys.exit()\nNAME = '{number}'\n{FAULT}"
        fault = planted if number >= 8 else f"# {number}\n"
        (folder / "program.py").write_text(fault)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"commit {number}")
        git(folder, "tag", f"c{number}")
    (tmp_path / "TRIALS.toml").write_text(
        f'command = "{sys.executable} -I -S program.py {{shapes}} {{kind}}"\n'
        "repeats = 8\ndirectory = 'source'\naxes.shapes = ['mixed', 'equal']\naxes.kind = ['nf4', 'fp4']\n"
    )
    return folder


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


ONLY = ("--only", "shapes=mixed", "--only", "kind=nf4")


@pytest.mark.slow
def test_the_axes_of_a_planted_fault_then_its_commit(tmp_path: Path, repository: Path) -> None:
    """Ended in the middle it goes on with the runs that it has."""
    environ = {**os.environ, "COUNT": str(tmp_path / "axes-")}
    told = call("lab", "trials", "run", "TRIALS.toml", "--json", env=environ, cwd=tmp_path)
    effects = {each["axis"]: each for each in answer(told, 1)["effects"]}
    assert [(side["value"], side["failures"]) for side in effects["shapes"]["sides"]] == [("mixed", 4), ("equal", 0)]
    assert [(side["value"], side["failures"]) for side in effects["kind"]["sides"]] == [("nf4", 4), ("fp4", 0)]
    words = ("--source", "source", "--good", "c0", "--bad", "main", "--rate", "0.4", *ONLY)
    command = [CUWHEEL, "lab", "trials", "bisect", "TRIALS.toml", *words]
    env = {**os.environ, "COUNT": str(tmp_path / "count-")}
    begun = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path = tmp_path / "cuwheel-bisect" / journal.NAME
    until = time.monotonic() + 600
    while not path.exists() or path.read_bytes().count(b'"end"') < 6:
        assert time.monotonic() < until
        time.sleep(0.05)
    begun.send_signal(signal.SIGINT)
    begun.wait(600)
    before = len(
        [each for each in journal.read_lines(path.parent) if each.end and each.end.outcome not in journal.NO_RESULT]
    )
    refused = bisect(tmp_path, *words)
    assert refused.status == 2
    found = answer(bisect(tmp_path, *words, "--resume"))
    assert found["first_bad"] == git(repository, "rev-parse", "c8")
    assert found["last_good"] == git(repository, "rev-parse", "c7")
    assert before >= 6
    ended = [each for each in journal.read_lines(path.parent) if each.end and each.end.outcome not in journal.NO_RESULT]
    assert found["runs"] == len(ended)


def test_what_cannot_be_bisected_is_said(tmp_path: Path, repository: Path) -> None:
    assert repository.is_dir()
    backwards = bisect(tmp_path, "--source", "source", "--good", "c5", "--bad", "c2", *ONLY)
    assert backwards.status == 2
    assert "is not a commit before" in backwards.stderr
    nowhere = bisect(tmp_path, "--source", "source", "--good", "nope", "--bad", "main", *ONLY)
    assert nowhere.status == 2
    good = answer(bisect(tmp_path, "--source", "source", "--good", "c9", "--bad", "c11", *ONLY), 1)
    assert good["first_bad"] is None
    assert "the good one fails too" in good["problem"]
    several = bisect(tmp_path, "--source", "source", "--good", "c1", "--bad", "c2", "-o", "other")
    assert several.status == 2
    assert "--only shapes=mixed --only kind=nf4" in several.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_over_commits_that_build_makes_wheels_of(tmp_path: Path) -> None:
    """The example with a kernel: its third commit of five returns a wrong number."""
    folder = tmp_path / "source"
    shutil.copytree(ROOT / "examples" / "setuptools_nvcc", folder, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    module = next(folder.rglob("__init__.py"))
    text = module.read_text()
    git(folder, "init", "-q", "-b", "main")
    for number in range(5):
        module.write_text(f"{text}\nANSWER = {41 if number >= 3 else 42}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
        git(folder, "tag", f"c{number}")
    name = module.parent.name
    (tmp_path / "TRIALS.toml").write_text(
        f"command = \"python -c 'import {name}; print({name}.ANSWER)'\"\nfailure.number = 42\n"
    )
    words = ("--source", "source", "--good", "c0", "--bad", "c4", "--for", "h100", "--rate", "0.9")
    assert answer(bisect(tmp_path, *words))["first_bad"] == git(folder, "rev-parse", "c3")
