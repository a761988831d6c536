"""What the harnesses share: seeds, a buffer that counts the work, the run itself, and what it found.

Invariants: no exception but cuwheel's; work bounded by the size of the input, time by the watchdog, memory by a limit.
A finding does not end the run: its input is made small and kept, and the next input comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import cache, manifest
from tests.fixtures.damage import elf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType, ModuleType

# Every structure may be looked at a few times: when recognised, when walked, when searched, when named.
READS_PER_BYTE = 2.0
BYTES_PER_BYTE = 64.0
ALLOWANCE = 4096
LONGEST = 65536
MEMORY = 1 << 30  # beyond what the interpreter has when it begins
SECONDS = 10  # of the processor, for one input: on a busy machine the clock says nothing
# The last resort, for what Python cannot interrupt: libFuzzer's own, by the clock.
LIMITS = ("-timeout=180", "-rss_limit_mb=2048", f"-max_len={LONGEST}", "-print_final_stats=0")
# Of inputs that reach the same lines the quick ones are changed more often: about twice as many in the same time.
SCHEDULE = ("-entropic=1", "-entropic_scale_per_exec_time=1")
_SHRINKING = 400  # tries
_WRITTEN_EVERY_S = 5.0


class Harness(NamedTuple):
    """`mutate` knows the format; half of the changes stay libFuzzer's own."""

    seeds: list[bytes]
    read: Callable[[bytes], object]
    mutate: Callable[[bytes, int], bytes] | None = None


class CountingBuffer(MemoryBuffer):
    """Ends the run where a reader works more than the input's size warrants."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(name, data)
        self.reads = self.bytes = 0

    def read(self, offset: int, count: int) -> bytes:
        found = super().read(offset, count)
        self.reads += 1
        self.bytes += count
        if self.reads > ALLOWANCE + READS_PER_BYTE * self.size:
            raise AssertionError(f"{self.reads:,} reads of a file of {self.size:,} bytes")
        if self.bytes > (ALLOWANCE + self.size) * BYTES_PER_BYTE:
            raise AssertionError(f"{self.bytes:,} bytes read of a file of {self.size:,}")
        return found


class HungError(BaseException):
    """Not an Exception: a reader that catches those must not swallow it."""


def fixtures(*formats: str) -> list[bytes]:
    return [each.path.read_bytes() for each in manifest.load() if each.format in formats]


def containers() -> list[bytes]:
    """What the libraries among the fixtures carry."""
    carried = []
    for data in fixtures("elf"):
        if ".nv_fatbin" in elf.sections(data):
            start, size = elf.extent(data, ".nv_fatbin")
            carried.append(data[start : start + size])
    return carried


def corpus_of(name: str) -> Path:
    return cache.folder() / "fuzz" / name


def found_by(name: str) -> Path:
    """Where the inputs lie that show something."""
    return cache.folder() / "fuzz" / f"{name}-found"


def problem_with(harness: Harness, data: bytes) -> tuple[str, str] | None:
    """What is wrong with what the reader does: the place, by which it is known again, and the whole story."""
    try:
        harness.read(data)
    except CuwheelError:
        return None
    except (Exception, HungError, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is a finding
        frames = [each for each in traceback.extract_tb(error.__traceback__) if "/cuwheel/" in each.filename]
        last = f"{frames[-1].filename.rpartition('/cuwheel/')[2]} {frames[-1].name}" if frames else str(error)[:40]
        return f"{type(error).__name__} in {last}", "".join(traceback.format_exception(error))
    return None


class Run:
    """Counts, watches and keeps. `state`: the file that is written every few seconds, so that a run can be resumed."""

    def __init__(self, name: str, harness: Harness, state: Path, goal: int, seconds: float) -> None:
        self.name, self.harness, self.state, self.goal = name, harness, state, goal
        self.told = json.loads(state.read_text())
        self.inputs, self.before = self.told["inputs"], self.told["seconds"]
        self.began = self.written = time.monotonic()
        self.end = self.began + seconds
        self.known: set[str] = set(self.told["findings"])
        self.watched, self.ticks = -1, 0
        self.parent = os.getppid()

    def one(self, data: bytes) -> None:
        if (found := problem_with(self.harness, data)) is not None and found[0] not in self.known:
            self._keep(data, *found)
        self.inputs += 1
        if self.inputs % 64 and self.inputs < self.goal:
            return
        now = time.monotonic()
        # Whoever started it may have been ended: then nobody waits for this.
        done = self.inputs >= self.goal or now > self.end or os.getppid() != self.parent
        if done or now > self.written + _WRITTEN_EVERY_S:
            self.write()
        if done:
            _leave()

    def write(self) -> None:
        self.written = time.monotonic()
        self.told |= {"inputs": self.inputs, "seconds": round(self.before + self.written - self.began, 1)}
        fresh = self.state.with_suffix(".new")
        fresh.write_text(json.dumps(self.told, indent=1))
        fresh.replace(self.state)

    def _keep(self, data: bytes, place: str, story: str) -> None:
        self.known.add(place)
        small = self._small(data, place)
        folder = found_by(self.name)
        folder.mkdir(exist_ok=True)
        path = folder / hashlib.sha256(place.encode()).hexdigest()[:12]
        path.write_bytes(small)
        path.with_suffix(".txt").write_text(story, errors="replace")
        self.told["findings"][place] = str(path)
        self.write()
        sys.stderr.write(f"{self.name}: {place}: {len(small):,} bytes in {path}\n")

    def _small(self, data: bytes, place: str) -> bytes:
        """Without what can be left out."""
        tries, size = _SHRINKING, len(data) // 2
        while size and tries:
            at = 0
            while at < len(data) and tries:
                tries -= 1
                shorter = data[:at] + data[at + size :]
                self.watched = -1
                if (found := problem_with(self.harness, shorter)) and found[0] == place:
                    data = shorter
                else:
                    at += size
            size //= 2
        return data

    def tick(self, _signal: int, _frame: FrameType | None) -> None:
        """Each second of the processor: is it still the same input?"""
        self.ticks = self.ticks + 1 if self.watched == self.inputs else 0
        self.watched = self.inputs
        if self.ticks >= SECONDS:
            self.ticks = 0
            raise HungError(f"more than {SECONDS} s of the processor for one input")


def _leave() -> NoReturn:
    """libFuzzer does not return."""
    sys.stderr.flush()
    os._exit(0)


def limited() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def fuzz(run: Run) -> None:
    """libFuzzer on `run.one` until that has enough: does not return."""
    import atheris

    corpus = corpus_of(run.name)
    corpus.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(run.harness.seeds):
        (corpus / f"seed-{index:03}").write_bytes(seed[:LONGEST])
    mutate = run.harness.mutate

    def change(data: bytes, most: int, seed: int) -> bytes:
        if mutate is None or seed % 2:
            return bytes(atheris.Mutate(data, most))
        return mutate(data, seed)[:most]

    limited()
    signal.signal(signal.SIGVTALRM, run.tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)
    arguments = [sys.argv[0], *LIMITS, *SCHEDULE, f"-artifact_prefix={corpus.parent / run.name}-", str(corpus)]
    atheris.Setup(arguments, run.one, custom_mutator=change)
    atheris.Fuzz()


def coverage(
    harness: Harness, name: str, modules: Iterable[ModuleType], most: int = 4000
) -> dict[str, tuple[int, int]]:
    """For each module how many lines of its functions the corpus reaches, and how many they have."""
    wanted = {module.__file__: module for module in modules if module.__file__}
    lines = {file: set(_lines(file)) for file in wanted}
    reached: dict[str, set[int]] = {file: set() for file in wanted}

    def local(frame: FrameType, event: str, _argument: object) -> object:
        if event == "line":
            reached[frame.f_code.co_filename].add(frame.f_lineno)
        return local

    def entered(frame: FrameType, _event: str, _argument: object) -> object:
        return local if frame.f_code.co_filename in wanted else None

    paths = sorted(each for each in corpus_of(name).iterdir() if each.is_file())
    for path in paths[:: max(1, len(paths) // most)]:
        data = path.read_bytes()
        sys.settrace(entered)  # type: ignore[arg-type]
        try:
            with contextlib.suppress(CuwheelError):
                problem_with(harness, data)
        finally:
            sys.settrace(None)
    return {
        module.__name__: (len(reached[file] & lines[file]), len(lines[file]))
        for file, module in wanted.items()
        if lines[file]
    }


def _lines(file: str) -> Iterator[int]:
    """Of functions: what runs when a module is imported says nothing of its reader."""
    waiting: list[CodeType] = [compile(Path(file).read_text(encoding="utf-8"), file, "exec")]
    while waiting:
        code = waiting.pop()
        inner = [each for each in code.co_consts if hasattr(each, "co_lines")]
        waiting += inner
        if code.co_flags & 0x2:  # a function's: it has fast locals, which modules and classes have not
            own = {line for *_, line in code.co_lines() if line}
            yield from own - {code.co_firstlineno}
