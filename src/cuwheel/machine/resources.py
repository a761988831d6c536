"""How much may run at once: by the cores and the memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from cuwheel.support import wording

MEMORY_A_COMPILER = 2 * 10**9  # what a call of nvcc on templates takes at its worst, for one architecture
_MOST_THREADS = 4
_CORES_A_THREAD = 4
_GROUP = Path("/sys/fs/cgroup")


class Share(Struct, frozen=True, kw_only=True):
    """`jobs`: compilers at once. `threads`: architectures that one call of nvcc compiles at once."""

    jobs: int
    threads: int
    why: str


def share(architectures: int, *, jobs: int | None = None, at_once: int = 1) -> Share:
    """For one of `at_once` builds. `jobs`: what the user said for all of them together."""
    cores, memory = available()
    return divide(cores, memory, architectures, jobs=jobs, at_once=at_once)


def divide(cores: int, memory: int | None, architectures: int, *, jobs: int | None = None, at_once: int = 1) -> Share:
    """Files before architectures: a build has more of them. With many cores nvcc's own threads use what is left."""
    slots = jobs or (cores if memory is None else max(1, min(cores, memory // MEMORY_A_COMPILER)))
    why = f"{jobs} by --jobs" if jobs else f"{cores} cores"
    why += f", {wording.size(memory)} of memory" if memory is not None and not jobs else ""
    mine = max(1, slots // at_once)
    threads = max(1, min(architectures, mine // _CORES_A_THREAD, _MOST_THREADS))
    return Share(jobs=max(1, mine // threads), threads=threads, why=why)


def compilers_at_once(cores: int) -> int:
    """How many may run at once on so many cores of this machine, by its memory."""
    memory = available()[1]
    return cores if memory is None else max(1, min(cores, memory // MEMORY_A_COMPILER))


def available() -> tuple[int, int | None]:
    """Cores and bytes: of the machine, less what a container or a service manager withholds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = (*_words_of_file(_GROUP / "cpu.max"), "", "")[:2]
    if quota.isdigit() and period.isdigit() and int(period):
        cores = max(1, min(cores, round(int(quota) / int(period))))
    limit = next(iter(_words_of_file(_GROUP / "memory.max")), "")
    used = next(iter(_words_of_file(_GROUP / "memory.current")), "")
    free = _free_memory()
    if limit.isdigit():
        allowed = int(limit) - (int(used) if used.isdigit() else 0)
        free = allowed if free is None else min(free, allowed)
    return cores, None if free is None else max(free, 0)


def _words_of_file(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _free_memory() -> int | None:
    words = _words_of_file(Path("/proc/meminfo"))
    if "MemAvailable:" not in words:
        return None
    kilobytes = words[words.index("MemAvailable:") + 1]
    return int(kilobytes) * 1024 if kilobytes.isdigit() else None
