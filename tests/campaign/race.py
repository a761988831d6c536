"""The same verb many times at once on the same folder: all succeed, and the result is what one alone would make."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.campaign.ground import Ground, fail

if TYPE_CHECKING:
    from tests.campaign.jobs import Job

AT_ONCE = 8
BUSY = "is changing it"
_LIMIT_S = 300


def run(job: Job, seconds: float, at_once: int = AT_ONCE, most: int | None = None) -> tuple[int, list[str]]:
    """How many rounds, and what went wrong in them. `most`: rounds to try."""
    problems: list[str] = []
    rounds = 0
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        ground = Ground(job, Path(scratch))
        alone = _together(job, ground, 1, end)
        if not alone:
            return 0, []
        if alone[0][0] != 0:
            fail(job, alone[0][1])
        finished = ground.state(ground.folder)
        while time.monotonic() < end and rounds != most:
            ground.renew()
            ended = _together(job, ground, at_once, end)
            if not ended:
                break  # they were still at it when the time was over
            rounds += 1
            if all(status != 0 for status, _ in ended):
                problems.append(f"{job.name}, {at_once} at once: none succeeded: {ended[0][1]}")
            for status, messages in ended:
                if status != 0 and not (job.together == "one" and BUSY in messages):
                    problems.append(f"{job.name}, {at_once} at once: one ended with {status}: {messages}")
            if (state := ground.state(ground.folder)) != finished:
                differing = sorted(dict(state.items() ^ finished.items()))
                problems.append(f"{job.name}, {at_once} at once: {', '.join(differing[:5])} came out otherwise")
    return rounds, problems


def _together(job: Job, ground: Ground, count: int, end: float) -> list[tuple[int, str]]:
    """Empty where they do not come to their end before `end`."""
    command = [sys.executable, "-m", "cuwheel", *job.command(ground.folder)]
    environ = {**os.environ, **ground.places()}
    started = [
        subprocess.Popen(
            command, cwd=ground.folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    ended = []
    for each in started:
        try:
            _, messages = each.communicate(timeout=max(0.1, min(_LIMIT_S, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                for other in started:
                    other.kill()
                    other.wait()
                return []
            each.kill()
            _, messages = each.communicate()
            messages += f"(ended after {_LIMIT_S} s)"
        ended.append((each.returncode, messages[-600:]))
    return ended
