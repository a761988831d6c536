"""The files that traced processes leave: a line of JSON for each event, in the order in which they were written.

They come from the inside of programs that may crash, be killed, or overwrite their own memory: a line that is not
what it should be is counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from cuwheel.facts import cuda_errors
from cuwheel.support import codec

_LONGEST_LINE = 1 << 18
_MOST_EVENTS = 1_000_000  # of one process; torch with every operator has some thousands
_PATTERN = "trace-*.jsonl"
# As the library that writes them counts; memory that a program overwrote may hold any number of digits.
Nanoseconds: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Event(Struct, frozen=True, kw_only=True):
    """Times in nanoseconds, since the process began. Handles are names: equal ones mean the same thing.

    `of`: the handle that a handle was got from. `jit`: how long the driver compiled during a load.
    `file`, `offset`: where the image stands, if it was loaded with a library; else it is memory of the program, of
    which `head` are the first bytes in hexadecimal digits, or of PTX `target` and `ptx_isa` the directives.
    `caller`: the file whose code made the call. `last`: the kernels that were launched last, the latest first; of a
    CUDA graph the names of all its kernels. `max_threads` to `resident`: what the kernel of a failed launch can be
    given, and how many of its blocks run at once. `log`: what the driver's compiler said; of an event of its own, a
    line of the driver's log. `driver_log`: such lines about a failure, put together here; `seen`: a line
    that was written during a call that has events of its own.
    `visible`: CUDA_VISIBLE_DEVICES; `blocking`: CUDA_LAUNCH_BLOCKING=1; `forked`: from a process that had used CUDA.
    """

    event: Literal["process", "device", "load", "handle", "launch", "graph", "failure", "log", "time", "count", "end"]
    time: Nanoseconds
    thread: int = 0
    pid: int = 0
    parent: int = 0
    program: str = ""
    script: str = ""
    module: str = ""
    at: int = 0
    visible: str | None = None
    blocking: int = 0
    forked: int = 0
    device: int = 0
    major: int = 0
    minor: int = 0
    driver_cuda: int = 0
    name: str = ""
    api: str = ""
    took: Nanoseconds = 0
    error: int = 0
    handle: str = ""
    of: str = ""
    library: str = ""
    kernel: str = ""
    jit: Nanoseconds | None = None
    wrapper: int | None = None
    file: str = ""
    path: str = ""
    offset: int | None = None
    kind: Literal["", "cubin", "fatbin", "ptx"] = ""
    size: int = 0
    head: str = ""
    target: str = ""
    ptx_isa: str = ""
    hash: str = ""
    caller: str = ""
    last: tuple[str | tuple[str, ...], ...] = ()
    names: tuple[str, ...] = ()
    python: str = ""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared: int = 0
    max_threads: int | None = None
    static_shared: int | None = None
    registers: int | None = None
    max_shared: int | None = None
    resident: int | None = None
    bytes: int = 0
    log: str = ""
    driver_log: tuple[str, ...] = ()
    seen: int = 0
    launches: int = 0
    repeated_failures: int = 0
    lost: int = 0


class ProcessEvents(Struct, frozen=True, kw_only=True):
    """Of one process, its first being that of the process itself. `unread`: lines that could not be understood."""

    events: tuple[Event, ...]
    unread: int = 0


def read_events(folder: Path) -> tuple[ProcessEvents, ...]:
    """Events of all processes, in the order in which these began with CUDA."""
    found = [each for path in folder.glob(_PATTERN) if (each := _process(path)) is not None]
    return tuple(sorted(found, key=lambda each: each.events[0].at))


def _process(path: Path) -> ProcessEvents | None:
    events: list[Event] = []
    unread = 0
    try:
        with path.open("rb") as file:
            for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
                try:
                    events.append(codec.decode(line, Event))
                except msgspec.DecodeError:
                    unread += 1
                if len(events) >= _MOST_EVENTS:
                    break
    except OSError:
        return None
    return ProcessEvents(events=tuple(events), unread=unread) if events and events[0].event == "process" else None


def text(written: str) -> str:
    """A string as the program had it: the library writes bytes beyond ASCII as code points of the same number."""
    try:
        return written.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return written


# What the driver writes into its own log while calls fail, and failures that nothing else tells of.

UNNAMED_LOAD = "a load inside the CUDA runtime"  # in place of a function: CUDA 11's calls none that has a name
_POINTER = "to get more information"  # a line that only says where else to look


@dataclass(slots=True)
class DriverLog:
    """Lines wait for the call that they are about, which is known when it returns: by thread."""

    _waiting: dict[int, list[Event]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self._waiting.setdefault(event.thread, []).append(event)

    def claimed_by(self, failure: Event) -> Event:
        """A call that failed, with the lines about it."""
        lines = [each for each in self._waiting.get(failure.thread, ()) if each.seen]
        return replace(failure, driver_log=_telling(lines))

    def unclaimed(self, thread: int | None = None) -> Iterator[Event]:
        """Failures of code that was loaded without a call that can be seen, of one thread or all of them."""
        for each in [thread] if thread is not None else list(self._waiting):
            lines = [line for line in self._waiting.pop(each, ()) if not line.seen]
            known = ((line, cuda_errors.logged_error(_words(line))) for line in lines)
            found = next(((line, row) for line, row in known if row), None)
            if found:
                line, row = found
                yield replace(
                    line,
                    event="failure",
                    api=UNNAMED_LOAD,
                    error=row.code,
                    path=line.caller,
                    driver_log=_telling(lines),
                )


def _telling(lines: Iterable[Event]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_words(each) for each in lines if _POINTER not in each.log))


def _words(event: Event) -> str:
    """A message without the time, thread and level that may stand before it."""
    return event.log.rpartition("][E] ")[2].strip()
