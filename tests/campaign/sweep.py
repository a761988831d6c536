"""One job, interrupted at every call that changes the disk, in turn, until a run gets through. Prints one JSON object.

    LD_PRELOAD=faults.so python -m tests.campaign.sweep MODE JOB SECONDS [STRIKES]

A process of its own because it forks: each round is a child without the price of a new interpreter. Modes: `kill`
before the call, `torn` after half of what it would have written, `once` a call that finds no room, `full` no room from
there on.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from cuwheel import cli
from tests.campaign import jobs
from tests.campaign.ground import Ground, fail

MODES = {"kill": 1, "torn": 2, "once": 3, "full": 4}
KILLED = ("kill", "torn")
_BUG = 70
_NEVER = 1 << 60
_GOLDEN = 0.618033988749895  # its multiples fill a range evenly, however many there are


class Sweep:
    def __init__(self, job: jobs.Job, mode: str, scratch: Path) -> None:
        self.job, self.mode, self.scratch = job, mode, scratch
        self.faults = ctypes.CDLL(None)
        self.faults.disarm.restype = ctypes.c_long
        self.ground = Ground(job, scratch)
        self.folder = self.ground.folder
        self.problems: list[str] = []
        self._import_everything()
        self._begin()
        self.before = self._state(self.folder)
        if self._run(job.command, at=_NEVER) != 0:
            fail(job, self._messages())
        self.calls = int((scratch / "counted").read_text())
        self.finished = self._state(self.folder)

    def _import_everything(self) -> None:
        """By a first run in this process: the children inherit what it imported."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.ground.enter()
            for command in filter(None, (self.job.begin, self.job.command)):
                cli.main(list(command(self.folder)))
            os.chdir(self.scratch)

    def rounds(self, seconds: float, strikes: int | None = None) -> tuple[int, bool]:
        """How many calls were struck, and whether that was all of them. Where few are, they are spread evenly."""
        end = time.monotonic() + seconds
        shift = MODES[self.mode] / len(MODES)  # few strikes of one mode are at other calls than those of the next
        numbers = sorted(range(1, self.calls + 1), key=lambda number: (number * _GOLDEN + shift) % 1)
        for done, number in enumerate(numbers):
            if time.monotonic() > end or done == strikes:
                return done, False
            self._round(number)
        return len(numbers), True

    def _begin(self) -> None:
        self.ground.renew()
        if self.job.begin and self._run(self.job.begin, at=0) != 0:
            fail(self.job, self._messages())

    def _round(self, number: int) -> None:
        self._begin()
        status = self._run(self.job.command, at=number)
        where = f"{self.job.name}, {self.mode} at call {number}"
        messages = self._messages()
        if self.mode in KILLED and status not in (0, -9):
            self.problems.append(f"{where}: ended with {status} by itself: {messages}")
        if self.mode not in KILLED:
            self._judge_status(status, where, messages)
        self._judge_files(where)
        self._judge_recovery(where)

    def _judge_status(self, status: int, where: str, messages: str) -> None:
        if status < 0 or status == _BUG or "Traceback" in messages:
            self.problems.append(f"{where}: ended with {status}: {messages}")
        if status == 0 and self._state(self.folder) != self.finished:
            self.problems.append(f"{where}: said done, and it is not")

    def _judge_files(self, where: str) -> None:
        """Every file is the one before or the one after; what is missing is missing before or after."""
        now = self._state(self.folder)
        self.problems += [f"{where}: {each}" for each in self.job.whole(self.folder)]
        for path in sorted(self.before.keys() | self.finished.keys() | now.keys()):
            if path.endswith(self.job.resumed):
                continue
            if now.get(path) not in (self.before.get(path), self.finished.get(path)):
                self.problems.append(f"{where}: {path} is neither as before nor as after")

    def _judge_recovery(self, where: str) -> None:
        command = self.job.recover or self.job.command
        if self.job.recover_if(self.folder):
            status = self._run(command, at=0)
            if status != 0:
                self.problems.append(f"{where}: the next run fails with {status}: {self._messages()}")
                return
        if self.job.recover is not None:
            return
        state = self._state(self.folder)
        if state != self.finished:
            differing = sorted(
                path for path in state.keys() | self.finished.keys() if state.get(path) != self.finished.get(path)
            )
            self.problems.append(f"{where}: not finished by the next run: {', '.join(differing[:5])}")

    def _run(self, command: jobs.Command, *, at: int) -> int:
        """The exit status of a child; minus the signal that ended it."""
        child = os.fork()
        if child == 0:
            self._in_child(command, at)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    def _in_child(self, command: jobs.Command, at: int) -> None:
        status = _BUG
        try:
            out = os.open(self.scratch / "messages", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.close(out)
            self.ground.enter()
            words = list(command(self.folder))
            if at:
                self.faults.arm(MODES[self.mode], ctypes.c_long(at))
            status = cli.main(words)
            if at:
                (self.scratch / "counted").write_text(str(self.faults.disarm()))
            sys.stdout.flush()
        finally:
            os._exit(status)

    def _messages(self) -> str:
        text = (self.scratch / "messages").read_text(errors="replace") if (self.scratch / "messages").exists() else ""
        return " / ".join(line for line in text.splitlines()[-4:] if not line.startswith("{"))[-600:]

    def _state(self, folder: Path) -> dict[str, str]:
        return self.ground.state(folder, killed=self.mode in KILLED)


def main() -> None:
    mode, name, seconds, *strikes = sys.argv[1:]
    (job,) = jobs.by_name([name])
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(job, mode, Path(folder))
        struck, through = sweep.rounds(float(seconds), *map(int, strikes))
    answer = {"job": name, "mode": mode, "struck": struck, "through": through, "problems": sweep.problems}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
