"""What a record holds: frozen values, read from its folder by `reader`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COLUMNS = 8  # of nvcc's timings: source , phase , inputs , output , arch , tool , metric , unit
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_FILE = re.compile(r"\.(?:cu|c|cc|cpp|cxx|ii|gpu|ptx|cubin|obj|o)\"?$")
_ARCH = re.compile(r"\b(?:sm|compute)_\d+[a-z]?\b")

# What a program that was called is for. `nvcc` also drives the host compiler; those inner calls are its phases.
ToolKind: TypeAlias = Literal["nvcc", "compiler", "linker", "cache"]
# `started`: its end was never written: the build, or the machine, died while it ran.
CallState: TypeAlias = Literal["succeeded", "failed", "signalled", "not-started", "started"]


class ResponseFile(Struct, frozen=True, kw_only=True):
    """A file of arguments (`@file`, `--options-file`) as it was when the call began; `text` None: unreadable."""

    path: str
    text: str | None
    encoding: str = "utf-8"  # `utf-16` with its mark, as Visual Studio writes it


class Inner(Struct, frozen=True, kw_only=True):
    """A program that a call ran itself, as the watcher on Windows saw it: tools, and whatever failed."""

    name: str
    program: str
    words: tuple[str, ...]
    began: float
    ended: float
    status: int


class Phase(Struct, frozen=True, kw_only=True):
    """One of nvcc's inner programs, as nvcc itself timed it."""

    name: str
    file: str
    arch: str
    seconds: float


class Call(Struct, frozen=True, kw_only=True):
    """One call of a compiler or linker.

    `number` counts from 1 in the order in which calls began. `program` is what really ran; `words` the arguments as the
    caller gave them, without the program; `ran` those that it was given, where cuwheel changed them (else empty).
    `changed` and `unset`: how its environment differed from the record's. Times are seconds since the record began.
    """

    number: int
    id: str = ""  # of its lines and files in the record
    tool: ToolKind
    name: str
    program: str
    words: tuple[str, ...]
    ran: tuple[str, ...] = ()
    cwd: str
    parent: str = ""  # the command line of the caller, if it could be seen
    changed: dict[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    began: float
    ended: float | None
    state: CallState
    status: int | None  # the exit code; None where a signal ended it, or it never ended
    signal: int | None = None
    problem: str = ""  # why it could not start
    stdout: str = ""  # files in the record's folder, relative to it
    stderr: str = ""
    response_files: tuple[ResponseFile, ...] = ()
    phases: tuple[Phase, ...] = ()
    inner: tuple[Inner, ...] = ()
    cache_hit: bool | None = None  # None where no compiler cache was asked
    memory: int | None = None  # bytes, the most that the largest of its programs had at once

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "signalled", "not-started")


class Record(Struct, frozen=True, kw_only=True):
    """A whole record. `status`: of the command, negative for a signal; None where it never ended."""

    schema: Literal["cuwheel.calls/1"] = "cuwheel.calls/1"
    folder: str
    command: tuple[str, ...]
    cwd: str
    began: str  # ISO 8601, UTC
    seconds: float | None
    status: int | None
    environment: dict[str, str]
    masked: bool
    calls: tuple[Call, ...]
    system: str = ""  # where it was made: name, release and processor
    way: str = ""  # `preload`, `watch` or `path`: how calls were seen
    encoding: str = "utf-8"  # of what programs printed that is not UTF-8: a code page of Windows
    damaged: int = 0  # lines that could not be read: a crash may have cut one short


def phases(text: str) -> Iterator[Phase]:
    """The table that nvcc's `--time` writes. Rows are counted from both ends: names of files may hold commas."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < _COLUMNS or cells[-1] not in _UNITS:
            continue
        try:
            seconds = float(cells[-2]) * _UNITS[cells[-1]]
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            yield Phase(name=cells[1], file=cells[0], arch=cells[-4], seconds=seconds)


def phases_inside(inner: Iterable[Inner]) -> tuple[Phase, ...]:
    """The programs that the watcher saw nvcc run, as its own table has them."""
    return tuple(
        Phase(
            name=each.name.removesuffix(".exe"),
            file=next((word for word in reversed(each.words) if _FILE.search(word)), ""),
            arch=next((match[0] for word in each.words if (match := _ARCH.search(word))), ""),
            seconds=max(each.ended - each.began, 0.0),
        )
        for each in inner
    )
