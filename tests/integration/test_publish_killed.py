"""`publish` killed (SIGKILL) at random moments: the old index or the new one serves, whole; the next run finishes it.

Every moment follows from its seed, which a failure names. Half of them are spread over the whole run, half over the
time in which files are written: `./run campaign` strikes every single call that changes the disk, these strike between.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from tests.unit.delivery import published
from tests.unit.delivery.published import cuda_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.integration
_FEW, _MANY = 3, 100
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """`whole_s`: what a run takes that nobody kills; `writing_s`: from its lock on."""

    folder: Path
    before: dict[str, str]
    after: dict[str, str]
    whole_s: float
    writing_s: float
    sums: frozenset[str]

    @property
    def index(self) -> Path:
        return self.folder / "index"


def _start(index: Path, new: Path) -> subprocess.Popen[bytes]:
    words = ["publish", str(new), "--to", str(index), "--remove", "gone==0.9", "--quiet", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "cuwheel", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _sums(index: Path) -> list[str]:
    """Where something comes and something goes it is written twice: with what comes, then without what goes."""
    return (index / "SHA256SUMS").read_text().splitlines()


def _await_lock(index: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None and not (index / ".cuwheel").exists():
        time.sleep(0.0005)


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Ground:
    """A project gets another wheel and a channel, one comes, one goes, one stays."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")  # pages have the time of the run in them
    old, new, model = tmp_path / "old", tmp_path / "new", tmp_path / "model"
    wheel(old), wheel(old, name="other"), cuda_wheel(old, "0.9", name="gone", library="plain-124.so")
    cuda_wheel(new, "2.0"), wheel(new, "2.0", name="fresh")
    cuwheel.publish(old, to=model)
    index = tmp_path / "index"
    shutil.copytree(model, index)
    begin = time.monotonic()
    process = _start(index, new)
    _await_lock(index, process)
    locked = time.monotonic()
    assert process.wait(_TIMEOUT_S) == 0
    end = time.monotonic()
    return _Ground(
        folder=tmp_path,
        before=published.state(model),
        after=published.state(index),
        whole_s=end - begin,
        writing_s=end - locked,
        sums=frozenset({*_sums(model), *_sums(index)}),
    )


def _killed_at(ground: _Ground, seed: int) -> list[str]:
    """What is wrong afterwards."""
    chance = random.Random(seed)  # noqa: S311
    shutil.rmtree(ground.index)
    shutil.copytree(ground.folder / "model", ground.index)
    process = _start(ground.index, ground.folder / "new")
    if seed % 2:
        _await_lock(ground.index, process)
    time.sleep(chance.uniform(0, ground.writing_s if seed % 2 else ground.whole_s))
    process.kill()
    process.wait(_TIMEOUT_S)
    now = published.state(ground.index)
    wrong = published.problems(ground.index)
    wrong += [f"{path} is lost" for path in ground.before.keys() & ground.after.keys() if path not in now]
    wrong += [
        f"{path} is neither as before nor as after"
        for path, digest in now.items()
        if not path.startswith(".cuwheel/")
        and not path.endswith(".part")
        and path != "SHA256SUMS"
        and digest not in (ground.before.get(path), ground.after.get(path))
    ]
    wrong += [f"SHA256SUMS has {line!r}" for line in _sums(ground.index) if line not in ground.sums]
    removed = (ground.index / "simple" / "gone").exists()
    cuwheel.publish(ground.folder / "new", to=ground.index, remove=["gone==0.9"] if removed else [])
    wrong += [each.message for each in api.publish_check(ground.index).findings]
    finished = published.state(ground.index)
    wrong += [
        f"{path} is not as the next run should have left it"
        for path in sorted(finished.keys() | ground.after.keys())
        if finished.get(path) != ground.after.get(path)
    ]
    return [f"seed {seed}: {each}" for each in wrong]


def _all_killed(ground: _Ground, seeds: Sequence[int]) -> list[str]:
    return [each for seed in seeds for each in _killed_at(ground, seed)]


def test_killed_at_a_few_moments(ground: _Ground) -> None:
    assert _all_killed(ground, range(_FEW)) == []


@pytest.mark.slow
def test_killed_at_a_hundred_moments(ground: _Ground) -> None:
    assert _all_killed(ground, range(_FEW, _FEW + _MANY)) == []
