"""A record for other programs: a timeline for Chrome's and Perfetto's viewers, compile commands for editors."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from cuwheel.building.recording import reader, words
from cuwheel.building.recording.calls import duration, is_trial, parse_call
from cuwheel.errors import UsageError
from cuwheel.support import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.building.recording.calls import Call, Record

_MICRO = 1e6
_CALLS, _PHASES = 1, 2  # the viewers' "processes": calls, and nvcc's inner programs


def save_trace(record: Record, path: Path) -> None:
    events = [*_names(), *_events(record)]
    _save(path, {"displayTimeUnit": "ms", "otherData": {"command": list(record.command)}, "traceEvents": events})


def save_compile_commands(record: Record, path: Path) -> None:
    """As CMake writes them: clangd and other tools read how each file is compiled."""
    _save(path, list(_compile_commands(record)))


def _names() -> Iterator[dict[str, Any]]:
    for number, name in ((_CALLS, "compiler calls"), (_PHASES, "inside nvcc")):
        yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}


def _events(record: Record) -> Iterator[dict[str, Any]]:
    end = max((call.ended or call.began for call in record.calls), default=0.0)
    end = max(end, record.seconds or 0.0)
    for lane, call in _lanes(record.calls, end):
        parsed = parse_call(call)
        stopped = end if call.ended is None else call.ended
        details: dict[str, Any] = {"number": call.number, "state": call.state, "cwd": call.cwd}
        details |= {"archs": " ".join(parsed.archs)} if parsed.archs else {}
        details |= {"status": call.status} if call.status is not None else {}
        details |= {"signal": reader.signal_name(call.signal)} if call.signal is not None else {}
        details |= {"memory": call.memory} if call.memory else {}
        details |= {"cache hit": call.cache_hit} if call.cache_hit is not None else {}
        details |= {"command": [call.program, *call.words][:200]}
        name = words.label(call.name, call.ran or call.words)
        yield _span(name, call.tool, (call.began, stopped - call.began), (_CALLS, lane), details)
        yield from _phases(call, lane)


def _phases(call: Call, lane: int) -> Iterator[dict[str, Any]]:
    """nvcc tells how long each took and in which order, not when it began: one after the other, within the call.

    Where they ran side by side (`--threads`) their sum is more than the call took, and they are drawn shorter.
    """
    total = sum(phase.seconds for phase in call.phases)
    lasted = duration(call)
    scale = min(1.0, lasted / total) if total else 1.0
    at = call.began
    for phase in call.phases:
        details = {"file": phase.file, "arch": phase.arch, "seconds": phase.seconds, "call": call.number}
        yield _span(phase.name, "phase", (at, phase.seconds * scale), (_PHASES, lane), details)
        at += phase.seconds * scale


def _span(
    name: str, category: str, span: tuple[float, float], row: tuple[int, int], details: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": round(span[0] * _MICRO, 3),
        "dur": round(max(span[1], 0.0) * _MICRO, 3),
        "pid": row[0],
        "tid": row[1],
        "args": details,
    }


def _lanes(calls: Sequence[Call], end: float) -> Iterator[tuple[int, Call]]:
    """Calls that ran at the same time in rows of their own, as few rows as there were at once."""
    busy_until: list[float] = []
    for call in calls:
        lane = next((index for index, until in enumerate(busy_until) if until <= call.began), len(busy_until))
        if lane == len(busy_until):
            busy_until.append(0.0)
        busy_until[lane] = end if call.ended is None else call.ended
        yield lane + 1, call


def _compile_commands(record: Record) -> Iterator[dict[str, Any]]:
    """Each file once: the last call that compiled it is how it is compiled now."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for call in record.calls:
        parsed = parse_call(call)
        if not parsed.compiles or is_trial(call):
            continue
        line = list(call.ran or call.words)
        program = [] if call.tool == "cache" else [call.program]
        for file in parsed.inputs:
            entry = {"directory": call.cwd, "arguments": [*program, *line], "file": file}
            found[call.cwd, file] = entry | ({"output": parsed.output} if parsed.output else {})
    yield from found.values()


def see_that_they_can_be_written(*paths: Path) -> None:
    """Before a build of hours, not after it."""
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", hint="give a file in it")
        if not os.access(path.parent, os.W_OK):
            raise UsageError(f"{path} cannot be written: check {path.parent}", hint="choose a file in another folder")


def _save(path: Path, value: object) -> None:
    """Bytes that are not text stay as escapes."""
    files.write(path, json.dumps(value, indent=1))
