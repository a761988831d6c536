"""Which calls a compiler cache answered: sccache tells only its server's log, so that is read when the build has ended.

A server that the build itself starts writes the log where the shims tell it to; one that runs already writes where its
own SCCACHE_ERROR_LOG says, and only with SCCACHE_LOG=sccache::server=debug is there anything about calls in it.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording.calls import append_event, parse_call
from cuwheel.device_code import limits
from cuwheel.errors import UnreadableError
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cuwheel.building.recording.calls import Call, Record

VARIABLE = "SCCACHE_ERROR_LOG"
NAME = "sccache.log"  # in the session's folder, as prepare.h has it

_RESULT = re.compile(rb"sccache::server\] \[([^\]\n]{1,4096})\]: compile result: cache (hit|miss)")
_MAX_LOG = 256 << 20
_PIECE = 1 << 22


def mark(record: Record, found: Mapping[int, bool]) -> None:
    """Writes into a record which calls a cache answered, by their numbers. Read it again to see them."""
    ids = {call.number: call.id for call in record.calls}
    try:
        for number, hit in found.items():
            if number in ids:
                append_event(Path(record.folder), {"event": "cache", "id": ids[number], "hit": hit})
    except OSError as error:
        raise UnreadableError.from_os(error, record.folder) from error


def hits(log: Path, start: int, calls: Iterable[Call]) -> dict[int, bool]:
    """By the numbers of calls. The log names outputs alone: of one name the first answer is the first call's to end."""
    answers = _answers(log, start)
    asked = sorted((call for call in calls if call.tool in ("cache", "nvcc") and call.ended is not None), key=_end)
    found: dict[int, bool] = {}
    for call in asked:
        waiting = answers.get(_product(call))
        if waiting and call.state == "succeeded":
            found[call.number] = waiting.popleft()
    return found


def size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _answers(log: Path, start: int) -> dict[str, deque[bool]]:
    answers: defaultdict[str, deque[bool]] = defaultdict(deque)
    try:
        with log.open("rb") as file:
            file.seek(start)
            read = 0
            while lines := file.readlines(_PIECE):
                if read >= _MAX_LOG:
                    limits.met(
                        f"{_MAX_LOG >> 20} MiB of the cache's log are read", "the rest of its answers are not known"
                    )
                    break
                read += sum(map(len, lines))
                for name, answer in _RESULT.findall(b"".join(lines)):
                    answers[file_name(name.decode(errors="replace"))].append(answer == b"hit")
    except OSError:
        pass
    return answers


def _end(call: Call) -> float:
    return call.ended or 0.0


def _product(call: Call) -> str:
    parsed = parse_call(call)
    if parsed.output or not parsed.inputs:
        return file_name(parsed.output)
    return file_name(parsed.inputs[0]).rpartition(".")[0] + ".o"
