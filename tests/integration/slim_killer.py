"""Kills `slim` at random moments, again and again, and looks at what it left. Prints one JSON object.

    python -m tests.integration.slim_killer {environment|wheel} ROUNDS SEED

A process of its own, because it forks: every round is a child that is killed, without the price of a new
interpreter. Small delays before each change of a name spread the moments over all steps.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel import api
from cuwheel.rewrite import changes, library
from tests.unit.rewrite.packages import FOO, PER_CUDA, contents, make_environment, make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable

_DELAY_S = 0.001
_BEYOND = 1.2  # the last steps must be hit too, on a machine that others use


def slow_down() -> None:
    """Each call that the order of things rests on waits a moment before and after."""
    slim_library = library.slim_library

    def slimmed(*args: Any) -> Any:
        time.sleep(_DELAY_S)
        return slim_library(*args)

    library.slim_library = slimmed  # type: ignore[assignment]
    for owner, name in ((os, "link"), (os, "fsync"), (Path, "replace"), (Path, "unlink"), (os, "write")):
        setattr(owner, name, _delayed(getattr(owner, name)))


def _delayed(call: Callable[..., Any]) -> Callable[..., Any]:
    def slower(*args: Any, **more: Any) -> Any:
        time.sleep(_DELAY_S)
        done = call(*args, **more)
        time.sleep(_DELAY_S / 4)
        return done

    return slower


def started(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - told by the status
            os._exit(1)
    return child


def killed(work: Callable[[], object], after_s: float) -> bool:
    """Whether the child was still at work when the signal came."""
    child = started(work)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("the work failed by itself")
    return os.WIFSIGNALED(status)


def duration(work: Callable[[], object]) -> float:
    """Of a child left alone: it is slower than the same work in here."""
    began = time.monotonic()
    _, status = os.waitpid(started(work), 0)
    if status:
        raise RuntimeError("the work failed by itself")
    return time.monotonic() - began


def of_environment(folder: Path, rounds: int, chance: random.Random) -> dict[str, object]:
    env = folder / "env"
    make_environment(env)

    def slim() -> object:
        return api.slim(machines=["h100"], env=env, cuda="12.8")

    def undo() -> object:
        return api.slim_undo(env)

    def undo_if_needed() -> None:
        if changes.folder_of(env).is_dir():
            undo()

    original = contents(env)
    slim()  # the first one also imports
    undo()
    slim_s = duration(slim)
    finished = {path: data for path, data in contents(env).items() if not path.startswith(".cuwheel")}
    undo_s = duration(undo)
    problems: list[str] = []
    hit = {"slim": 0, "undo": 0, "commit": 0}
    for number in range(rounds):
        if number % 4 < 2:
            which, work, most = "slim", slim, slim_s
        else:
            slim()
            which, work, most = ("undo", undo, undo_s) if number % 4 == 2 else ("commit", _commit(env), undo_s)
        hit[which] += killed(work, chance.uniform(0, most * _BEYOND))
        problems += _half_written(env, original, finished, f"round {number}, {which}")
        if which == "commit":
            # Committing again ends it; what is committed stays slimmed, so the next round starts afresh.
            if changes.folder_of(env).is_dir():
                _commit(env)()
            problems += _unless(contents(env) == finished, f"round {number}: commit did not finish")
            _rebuild(env)
        elif number % 2:
            slim()
            problems += _unless(_without_ours(env) == finished, f"round {number}: a following slim did not finish it")
            undo_if_needed()
        else:
            undo_if_needed()
        problems += _unless(contents(env) == original, f"round {number}: undo did not restore everything")
    return {"rounds": rounds, "killed": hit, "problems": problems}


def _commit(env: Path) -> Callable[[], object]:
    return lambda: api.slim_commit(env)


def _rebuild(env: Path) -> None:
    import shutil

    shutil.rmtree(env)
    make_environment(env)


def _without_ours(env: Path) -> dict[str, str]:
    return {path: data for path, data in contents(env).items() if not path.startswith(".cuwheel")}


def _half_written(env: Path, original: dict[str, str], finished: dict[str, str], where: str) -> list[str]:
    """Every file is the original or the finished one; what is missing is missing before or after."""
    now = _without_ours(env)
    return [
        f"{where}: {path}"
        for path in original.keys() | finished.keys() | now.keys()
        if now.get(path) not in (original.get(path), finished.get(path))
    ]


def of_wheel(folder: Path, rounds: int, chance: random.Random) -> dict[str, object]:
    source = make_wheel(folder / "in", {**FOO, **PER_CUDA})
    original = source.read_bytes()
    output = folder / "out"

    def slim() -> object:
        return api.slim(source, machines=["h100"], output=output)

    slim()  # the first one also imports
    slim_s = duration(slim)
    (made,) = output.iterdir()
    finished = made.read_bytes()
    problems: list[str] = []
    hit = 0
    for number in range(rounds):
        if number % 3:  # else over the finished one of the round before
            made.unlink(missing_ok=True)
        hit += killed(slim, chance.uniform(0, slim_s * _BEYOND))
        problems += _unless(not made.exists() or made.read_bytes() == finished, f"round {number}: half a wheel")
        problems += _unless(source.read_bytes() == original, f"round {number}: the source was changed")
        slim()
        problems += _unless(
            made.read_bytes() == finished and list(output.iterdir()) == [made], f"round {number}: not finished after"
        )
    return {"rounds": rounds, "killed": {"slim": hit}, "problems": problems}


def _unless(right: bool, problem: str) -> list[str]:  # noqa: FBT001 - reads as a sentence
    return [] if right else [problem]


if __name__ == "__main__":
    kind, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    slow_down()
    with tempfile.TemporaryDirectory() as scratch:
        found = {"environment": of_environment, "wheel": of_wheel}[kind](Path(scratch), count, random.Random(seed))  # noqa: S311
    sys.stdout.write(json.dumps(found) + "\n")
