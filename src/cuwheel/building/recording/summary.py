"""What a record comes to: how many calls, and where the time went."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building.recording import words
from cuwheel.building.recording.calls import CallState, ToolKind
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.recording.words import Parsed

_LONGEST = 20
_FILES = 10_000


class FileTime(Struct, frozen=True, kw_only=True):
    """One source file, over all calls that compiled it; calls with several files count for the first."""

    file: str
    seconds: float
    calls: int
    archs: tuple[str, ...]


class Share(Struct, frozen=True, kw_only=True):
    """An inner program of nvcc, or an architecture: all its runs together."""

    name: str
    seconds: float
    runs: int


class CallSummary(Struct, frozen=True, kw_only=True):
    """A call in a line."""

    number: int
    tool: ToolKind
    what: str
    seconds: float | None
    state: CallState
    archs: tuple[str, ...]
    memory: int | None
    cache_hit: bool | None


class Summary(Struct, frozen=True, kw_only=True):
    """`busy`: the seconds of all calls together; `seconds`: of the whole command, None where it never ended."""

    calls: int
    nvcc: int
    failed: int
    unfinished: int
    seconds: float | None
    busy: float
    hits: int | None  # of a compiler cache; None where none was asked, or told
    misses: int | None
    files: tuple[FileTime, ...]
    phases: tuple[Share, ...]
    archs: tuple[Share, ...]
    longest: tuple[CallSummary, ...]


def of(record: Record) -> Summary:
    calls = record.calls
    parsed = {call.number: parse(call) for call in calls}
    asked = [call.cache_hit for call in calls if call.cache_hit is not None]
    phases = [phase for call in calls for phase in call.phases]
    lasting = sorted((call for call in calls if call.ended is not None), key=duration, reverse=True)
    return Summary(
        calls=len(calls),
        nvcc=sum(call.tool == "nvcc" for call in calls),
        failed=sum(call.failed for call in calls),
        unfinished=sum(call.state == "started" for call in calls),
        seconds=record.seconds,
        busy=sum(map(duration, calls)),
        hits=asked.count(True) if asked else None,
        misses=asked.count(False) if asked else None,
        files=tuple(_files(calls, parsed))[:_FILES],
        phases=_shares((phase.name, phase.seconds) for phase in phases),
        archs=_shares((phase.arch, phase.seconds) for phase in phases if phase.arch),
        longest=tuple(summarised(call, parsed[call.number]) for call in lasting[:_LONGEST]),
    )


def parse(call: Call) -> Parsed:
    """With its response files; for a compiler cache, those of the compiler that it was asked to run."""
    given = call.ran or call.words
    return words.parse(
        given[1:] if call.tool == "cache" else given,
        {each.path: each.text for each in call.response_files},
        windows=words.is_windows_program(call.name),
    )


def duration(call: Call) -> float:
    return max(call.ended - call.began, 0.0) if call.ended is not None else 0.0


def summarised(call: Call, parsed: Parsed) -> CallSummary:
    what = f"{call.name} {file_name(parsed.inputs[0])}" if parsed.inputs else " ".join((call.name, *call.words[:2]))
    return CallSummary(
        number=call.number,
        tool=call.tool,
        what=words.readable(what),
        seconds=None if call.ended is None else duration(call),
        state=call.state,
        archs=tuple(map(words.readable, parsed.archs)),
        memory=call.memory,
        cache_hit=call.cache_hit,
    )


def _files(calls: Iterable[Call], parsed: dict[int, Parsed]) -> list[FileTime]:
    seconds: defaultdict[str, float] = defaultdict(float)
    count: defaultdict[str, int] = defaultdict(int)
    archs: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for call in calls:
        found = parsed[call.number]
        if found.compiles and found.inputs:
            file = words.readable(found.inputs[0])
            seconds[file] += duration(call)
            count[file] += 1
            archs[file] |= dict.fromkeys(map(words.readable, found.archs))
    times = [
        FileTime(file=file, seconds=seconds[file], calls=count[file], archs=tuple(archs[file])) for file in seconds
    ]
    return sorted(times, key=lambda each: -each.seconds)


def _shares(timed: Iterable[tuple[str, float]]) -> tuple[Share, ...]:
    seconds: defaultdict[str, float] = defaultdict(float)
    runs: defaultdict[str, int] = defaultdict(int)
    for name, each in timed:
        seconds[name] += each
        runs[name] += 1
    shares = (Share(name=name, seconds=seconds[name], runs=runs[name]) for name in seconds)
    return tuple(sorted(shares, key=lambda share: -share.seconds))
