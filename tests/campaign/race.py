"""The same verb many times at once on the same folder: all succeed, and the result is what one alone would make.

    python -m tests.campaign.race JOB SECONDS [RACES [AT_ONCE]]

A pair of verbs (pairs.py) in place of JOB: those two, once each, on one environment.

A process of its own because it forks: all start within milliseconds of each other, and without the price of a new
interpreter. Prints a JSON object for each race, which says what was found until then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.campaign import jobs, pairs
from tests.campaign.ground import Ground, fail, forked, last_words

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 8
_LIMIT_S = 3600  # eight that have one hundredth of the processor are slow, and do not hang


class Race:
    def __init__(self, job: jobs.Job, scratch: Path, at_once: int = AT_ONCE) -> None:
        self.job, self.scratch, self.at_once = job, scratch, at_once
        self.ground = Ground(job, scratch)
        self.problems: list[str] = []
        self.ground.import_everything()
        self.ground.renew()
        if (alone := self._together(1)[0])[0] != 0:
            fail(job, alone[1])
        self.finished = self.ground.state(self.ground.folder)

    def races(self, end: float, most: int | None) -> Iterator[int]:
        done = 0
        yield done
        while time.monotonic() < end and done != most:
            self.ground.renew()
            self._judge(self._together(self.at_once))
            done += 1
            yield done

    def _judge(self, ended: list[tuple[int, str]]) -> None:
        where = f"{self.job.name}, {self.at_once} at once"
        if all(status != 0 for status, _ in ended):
            self.problems.append(f"{where}: none succeeded: {ended[0][1]}")
        for status, messages in ended:
            if status != 0 and not (self.job.together == "one" and pairs.BUSY in messages):
                self.problems.append(f"{where}: one ended with {status}: {messages}")
        if (state := self.ground.state(self.ground.folder)) != self.finished:
            differing = sorted(dict(state.items() ^ self.finished.items()))
            self.problems.append(f"{where}: {', '.join(differing[:5])} came out otherwise")

    def _together(self, count: int) -> list[tuple[int, str]]:
        """Status and last words of each. They wait at a pipe that is closed when all are there."""
        reading, writing = os.pipe()
        children = []
        for number in range(count):
            messages = self.scratch / f"messages-{number}"

            def begin() -> None:
                os.close(writing)
                os.read(reading, 1)

            children.append((forked(self.ground, self.job.command, messages, begin), messages))
        os.close(reading)
        os.close(writing)
        end = time.monotonic() + _LIMIT_S
        ended = [(_status(child, end), last_words(messages)) for child, messages in children]
        late = f" (ended by the race after {_LIMIT_S} s)" if time.monotonic() > end else ""
        return [(status, words + late) for status, words in ended]


def _status(child: int, end: float) -> int:
    """Minus the signal that ended it: after a while, ours."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGKILL
        time.sleep(0.005)


def main() -> None:
    began = time.monotonic()
    name, seconds, *numbers = sys.argv[1:]
    most, at_once = (*map(int, numbers), *(0, AT_ONCE)[len(numbers) :])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if name in pairs.NAMES:
            race: Race | pairs.PairRace = pairs.PairRace(name, Path(folder))
        else:
            (job,) = jobs.by_name([name])
            race = Race(job, Path(folder), at_once)
        for done in race.races(began + float(seconds), most or None):
            answer = {"tried": done, "through": done == most, "problems": race.problems}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
