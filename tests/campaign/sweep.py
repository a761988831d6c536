"""One job, interrupted at every call that changes the disk, in turn, until a run gets through. Prints a JSON object
for each strike, which says what was found until then: whoever ends it after its time has the last of them.

    LD_PRELOAD=faults.so python -m tests.campaign.sweep MODES JOB SECONDS [STRIKES]

A process of its own because it forks: each round is a child without the price of a new interpreter. Modes: `kill`
before the call, `torn` after half of what it would have written, `once` a call that finds no room, `full` no room from
there on, `refused` no change of rights and no second name from there on (as FAT or a bind mount does). Those of `MODES`
(with commas) that are of one kind are tried in turn.

What a strike left is judged before anything is run again, since the next run would hide it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import EXIT_BUG
from tests.campaign import durability, jobs
from tests.campaign.ground import Ground, fail, forked, last_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODES = {"kill": 1, "torn": 2, "once": 3, "full": 4, "refused": 5}
KILLED = ("kill", "torn")
_NEVER = 1 << 60
_GOLDEN = 0.618033988749895  # its multiples fill a range evenly, however many there are


class Sweep:
    def __init__(self, job: jobs.Job, modes: Sequence[str], scratch: Path) -> None:
        self.job, self.modes, self.scratch = job, modes, scratch
        self.mode = modes[0]
        self.faults = ctypes.CDLL(None)
        self.faults.disarm.restype = ctypes.c_long
        self.ground = Ground(job, scratch)
        self.folder = self.ground.folder
        self.problems: list[str] = []
        self.ground.import_everything()
        self._begin()
        self.before = self._state()
        if self._run(job.command, at=_NEVER, watched=True) != 0:
            fail(job, self._messages())
        self.calls = int((scratch / "counted").read_text())
        self.finished = self._state()
        self.problems += [f"{job.name}: {each}" for each in durability.problems(job, self.folder, scratch / "watched")]

    def rounds(self, end: float, strikes: int | None = None) -> Iterator[tuple[int, bool]]:
        """How many calls were struck, and whether that was all of them. Where few are, they are spread evenly."""
        every = [(number, mode) for number in range(1, self.calls + 1) for mode in self.modes]
        # Few strikes of one mode are at other calls than those of the next.
        every.sort(key=lambda each: (each[0] * _GOLDEN + MODES[each[1]] / len(MODES)) % 1)
        yield 0, False
        for done, (number, mode) in enumerate(every, 1):
            if time.monotonic() > end or done - 1 == strikes:
                return
            self.mode = mode
            self._round(number, undo=done % 2 == 0)
            yield done, done == len(every)

    def _begin(self) -> None:
        self.ground.renew()
        if self.job.begin and self._run(self.job.begin, at=0) != 0:
            fail(self.job, self._messages())

    def _round(self, number: int, *, undo: bool) -> None:
        self._begin()
        begun = self._everything()
        status = self._run(self.job.command, at=number)
        where = f"{self.job.name}, {self.mode} at call {number}"
        messages = self._messages()
        if self.mode in KILLED and status not in (0, -9):
            self.problems.append(f"{where}: ended with {status} by itself: {messages}")
        if self.mode not in KILLED:
            self._judge_status(status, where, messages, begun)
        if status == 0 and self._state() != self.finished:
            self.problems.append(f"{where}: said done, and it is not")
        self._judge_files(where)
        if undo and self.job.undo:
            self._judge_undo(where, begun)
        self._judge_recovery(where)

    def _judge_status(self, status: int, where: str, messages: str, begun: dict[str, str]) -> None:
        if status < 0 or status == EXIT_BUG or "Traceback" in messages:
            self.problems.append(f"{where}: ended with {status}: {messages}")
        if status != 0 and self.job.puts_back and self._state() != self.finished:
            self._same(begun, f"{where}: it failed, and did not put back")

    def _judge_undo(self, where: str, begun: dict[str, str]) -> None:
        """Whatever is left of a run can be undone, byte for byte; where nothing is, there may be nothing to undo."""
        if self._everything() == begun:
            return
        if self.job.journal is not None and not self.job.journal(self.folder):
            return  # said by _judge_files, unless it had come to its end
        assert self.job.undo is not None
        status = self._run(self.job.undo, at=0)
        if status != 0:
            self.problems.append(f"{where}: undoing it fails with {status}: {self._messages()}")
        self._same(begun, f"{where}: undone, and not as before")

    def _same(self, begun: dict[str, str], words: str) -> None:
        now = self._everything()
        if differing := sorted(path for path in now.keys() | begun.keys() if now.get(path) != begun.get(path)):
            self.problems.append(f"{words}: {', '.join(differing[:5])}")

    def _judge_files(self, where: str) -> None:
        """Every file is the one before or the one after; what is missing is missing before or after."""
        now = self._state()
        if self.job.journal and now not in (self.before, self.finished) and not self.job.journal(self.folder):
            self.problems.append(f"{where}: it is changed, and there is no journal to put it back by")
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
        state = self._state()
        if state != self.finished:
            differing = sorted(
                path for path in state.keys() | self.finished.keys() if state.get(path) != self.finished.get(path)
            )
            self.problems.append(f"{where}: not finished by the next run: {', '.join(differing[:5])}{self._drift()}")

    def _drift(self) -> str:
        """A kit packs cuwheel's own sources: where those change meanwhile, no strike is needed for other bytes."""
        self._begin()
        alone = self._run(self.job.command, at=0)
        same = alone == 0 and self._state() == self.finished
        return "" if same else " (left alone it comes out otherwise now, too: were the sources changed meanwhile?)"

    def _run(self, command: jobs.Command, *, at: int, watched: bool = False) -> int:
        """The exit status of a child; minus the signal that ended it."""

        def begin() -> None:
            if watched:
                self.faults.watch(os.fsencode(self.scratch / "watched"))
            if at:
                self.faults.arm(MODES[self.mode], ctypes.c_long(at))

        def end() -> None:
            self.faults.watch(None)
            if at:
                (self.scratch / "counted").write_text(str(self.faults.disarm()))

        _, status = os.waitpid(forked(self.ground, command, self.scratch / "messages", begin, end), 0)
        return os.waitstatus_to_exitcode(status)

    def _messages(self) -> str:
        return last_words(self.scratch / "messages")

    def _state(self) -> dict[str, str]:
        return self.ground.state(self.folder, killed=self.mode in KILLED)

    def _everything(self) -> dict[str, str]:
        """Also what no two runs write alike, and who may read it: between two moments of one run it stays."""
        return self.ground.state(self.folder, killed=self.mode in KILLED, everything=True)


def main() -> None:
    began = time.monotonic()
    modes, name, seconds, *strikes = sys.argv[1:]
    (job,) = jobs.by_name([name])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sweep = Sweep(job, modes.split(","), Path(folder))
        for struck, through in sweep.rounds(began + float(seconds), *map(int, strikes)):
            answer = {"tried": struck, "through": through, "problems": sweep.problems}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
