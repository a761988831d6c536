"""Two verbs that write to one environment, begun within a moment of each other. When both have ended, it is as one of
the two orders makes it; or, where one found the other at work and said so, as the other makes it alone.

Compared are all files, and how many of them each journal keeps; then `slim --undo` is run, and they are compared again.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.network import venvs
from cuwheel.wheel import journal_file
from tests.campaign import jobs
from tests.campaign.ground import Ground, fail, forked, last_words
from tests.unit.changes.slim.packages import FOO, PER_CUDA, fixture, put_packages
from tests.unit.delivery import published

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.campaign.jobs import Command

BUSY = "is changing it"
_NUMBERS = re.compile(r"[0-9a-f]{16}|\d+")
_SLIMMED_BEFORE = {("foo", "1.0"): FOO, ("bitsandbytes", "0.50"): PER_CUDA}
_OTHERS = {
    ("ahead", "1.0"): {"ahead/libahead.so": fixture("ptx-130.so")},
    ("within", "1.0"): {"within/libwithin.so": fixture("all-124.so")},
}


def _env(folder: Path, verb: str, *words: str) -> Sequence[str]:
    return (verb, *words, "--env", str(folder / "env"), "--quiet", "--json")


def _site_packages(folder: Path) -> Path:
    return next((folder / "env" / "lib").glob("python*/site-packages"))


VERBS: dict[str, Command] = {
    "slim": lambda folder: _env(folder, "slim", "--for", "h100"),
    "slim-undo": lambda folder: _env(folder, "slim", "--undo"),
    "slim-commit": lambda folder: _env(folder, "slim", "--commit"),
    "slim-recompress": lambda folder: _env(folder, "slim", "--for", "all", "--recompress"),
    "slim-folder": lambda folder: ("slim", str(_site_packages(folder)), "--for", "h100", "--quiet", "--json"),
    "slim-folder-undo": lambda folder: ("slim", "--undo", str(_site_packages(folder) / "within"), "--quiet", "--json"),
    "graft": lambda folder: _env(folder, "graft", "--compile", "sm_90"),
    "install": lambda folder: jobs._install_package(folder, "app==2.0"),
    "install-undo": jobs._undo_install,
}
NAMES = tuple("+".join(pair) for pair in itertools.combinations_with_replacement(VERBS, 2))


def _prepare(folder: Path) -> None:
    """Packages that can be slimmed, one that has PTX alone, and two releases of another to install."""
    venvs.make(folder / "env", venvs.find_python())
    put_packages(_site_packages(folder), _SLIMMED_BEFORE | _OTHERS)
    for version in ("1.0", "2.0"):
        published.cuda_wheel(folder / "dist", version, name="app", library="many-130.so")
    jobs._link_ptxas(folder)


_BEGIN: tuple[Command, ...] = (
    lambda folder: jobs._install_package(folder, "app==1.0"),
    lambda folder: ("slim", str(_site_packages(folder) / "within"), "--for", "h100,a100", "--quiet", "--json"),
    lambda folder: _env(folder, "slim", *(name for name, _ in _SLIMMED_BEFORE), "--for", "h100,a100"),
)


class Ended(NamedTuple):
    """Status of each verb (None: it found another at work), all files, and those there are after undoing."""

    statuses: tuple[int | None, ...]
    files: dict[str, str]
    undone: dict[str, str]


class PairRace:
    def __init__(self, name: str, scratch: Path) -> None:
        self.name, self.scratch = name, scratch
        self.verbs = [VERBS[each] for each in name.split("+")]
        self.problems: list[str] = []
        job = jobs.Job(
            name=name, prepare=_prepare, command=VERBS["slim"], varies=jobs.times_of_uv("app-1.0", "app-2.0")
        )
        self.ground = Ground(job, scratch)
        self.ground.import_everything([*_BEGIN, *self.verbs, VERBS["slim-undo"]])
        self.ground.renew()
        for command in _BEGIN:
            if self._end([self._start(0, command, 0)])[0] != 0:
                fail(job, last_words(scratch / "messages-0"))
        shutil.copytree(self.ground.folder / "env", scratch / "begun", symlinks=True)
        begin = time.monotonic()
        self.serial = [self._in_turn(order) for order in ((0, 1), (1, 0), (0,), (1,))]
        self.longest = (time.monotonic() - begin) / len(self.serial)
        self.chance = random.Random(name)  # noqa: S311

    def races(self, end: float, most: int | None) -> Iterator[int]:
        done = 0
        yield done
        while time.monotonic() < end and done != most:
            self._renew()
            late = [0, self.chance.uniform(0, self.longest)]
            self.chance.shuffle(late)
            self._judge(self._finished(self._end([self._start(each, self.verbs[each], late[each]) for each in (0, 1)])))
            done += 1
            yield done

    def _renew(self) -> None:
        """The environment as it was begun, in the very folders that its journals were made for."""
        env = self.ground.folder / "env"
        within = _site_packages(self.ground.folder) / "within"
        for each in sorted(env.rglob("*"), reverse=True):
            if each.is_symlink() or not each.is_dir():
                each.unlink()
            elif each != within and each not in within.parents:
                each.rmdir()
        shutil.copytree(self.scratch / "begun", env, symlinks=True, dirs_exist_ok=True)

    def _in_turn(self, order: Sequence[int]) -> Ended:
        """One after the other; the verb that is left out found the other at work."""
        self._renew()
        statuses: list[int | None] = [None, None]
        for each in order:
            (statuses[each],) = self._end([self._start(each, self.verbs[each], 0)])
        return self._finished(statuses)

    def _start(self, number: int, command: Command, late: float) -> tuple[int, Path]:
        messages = self.scratch / f"messages-{number}"
        return forked(self.ground, command, messages, lambda: time.sleep(late)), messages

    def _end(self, children: Sequence[tuple[int, Path]]) -> list[int | None]:
        """Statuses; None of one that was refused because another was at work."""
        statuses: list[int | None] = []
        for child, messages in children:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            statuses.append(None if status and BUSY in last_words(messages) else status)
        return statuses

    def _finished(self, statuses: Sequence[int | None]) -> Ended:
        files = self._files()
        self._end([self._start(2, VERBS["slim-undo"], 0)])
        return Ended(tuple(statuses), files, self._files())

    def _files(self) -> dict[str, str]:
        """What each file holds; of journals, how many files of which kind."""
        found = self.ground.state(self.ground.folder / "env")
        kept = (self.ground.folder / "env" / journal_file.FOLDER).rglob("*")
        names = Counter(_NUMBERS.sub("#", str(each.relative_to(self.ground.folder))) for each in kept)
        return found | {name: str(count) for name, count in names.items() if not name.endswith("/lock")}

    def _judge(self, ended: Ended) -> None:
        if ended in self.serial:
            return
        words = " | ".join(last_words(self.scratch / f"messages-{each}") for each in (0, 1))
        nearest = min(self.serial, key=lambda each: (each.statuses != ended.statuses, len(_differing(each, ended))))
        differing = ", ".join(_differing(nearest, ended)[:5]) or "no file"
        self.problems.append(
            f"{self.name}: ended with {ended.statuses}, nearest is {nearest.statuses}; differing: {differing}: {words}"
        )


def _differing(one: Ended, other: Ended) -> list[str]:
    return sorted({*dict(one.files.items() ^ other.files.items()), *dict(one.undone.items() ^ other.undone.items())})
