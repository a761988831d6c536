"""A recorded call as a log: what was called, what it really printed, how it ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import calls, differences, reader, replays
from cuwheel.building.recording.words import NVCC_VARIABLES
from cuwheel.diagnosis import ending, text
from cuwheel.diagnosis.case import RecordedCall, Setting
from cuwheel.support import masking, quoting
from cuwheel.support.cause import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.diagnosis.text import Log

_PRINTED = 8 << 20  # of one call
_KEPT = 60  # lines of it, in the answer
_LONGEST = 400
_OTHERS = 20  # failed calls beside the first


def tried(record: Record) -> tuple[Evidence, ...]:
    """The command that was recorded."""
    return (Evidence(line=0, text=quoting.shown(record.command)),) if record.command else ()


def described(record: Record, call: Call, origins: Mapping[str, str]) -> RecordedCall:
    lines = reader.read_printed(record, call, _PRINTED).splitlines()
    return RecordedCall(
        record=record.folder,
        number=call.number,
        command=quoting.shown((call.program or call.name, *call.words)),
        directory=call.cwd,
        state=call.state,
        status=call.status,
        ended=ended(call),
        output=tuple(line[:_LONGEST] for line in lines[-_KEPT:]),
        settings=tuple(_settings(record, call, origins)),
        blame=_blame(record, call),
    )


def _blame(record: Record, call: Call) -> str:
    """What `record diff` blamed; empty where it was not run, or what it left is not readable."""
    path = Path(record.folder, calls.blame_file(call.number))
    try:
        if path.stat().st_size > _PRINTED:
            return ""
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    answer = found.get("answer") if isinstance(found, dict) else None
    return answer if isinstance(answer, str) else ""


def _settings(record: Record, call: Call, origins: Mapping[str, str]) -> Iterator[Setting]:
    environ = masking.variables(replays.call_environment(record, call))
    changed = {*call.changed, *call.unset}
    names = (name for name in {*environ, *changed} if name in changed or differences.weight(name) == "steers")
    for name in sorted(names, key=lambda name: (name not in changed, name)):
        if differences.weight(name) != "session":
            yield Setting(
                name=name,
                value=environ.get(name),
                changed=name in changed,
                steers=differences.weight(name) == "steers",
                origin=origins.get(name, ""),
            )


def last_words(record: Record, call: Call | None) -> tuple[Log, ...]:
    """What the command printed last: its own words, then all of it; none where the call is what they speak of."""
    tail = reader.read_command_output(record) if record.status else ""
    words = ending.ending_of(tail)
    if not tail.strip() or (call and not (words and words.outweighs(reader.read_printed(record, call, _PRINTED)))):
        return ()
    return tuple(map(text.parse, (*(("\n".join(words.lines),) if words else ()), tail)))


def silenced(record: Record) -> Call | None:
    """The last call of nvcc that failed and said why, where the build system kept that back, as CMake may."""
    failed = [call for call in record.calls if call.failed and call.name.lower().startswith("nvcc")]
    return next((call for call in reversed(failed) if reader.read_printed(record, call, _PRINTED).strip()), None)


def log(record: Record, call: Call) -> Log:
    """A log of this call alone: the line of its command, what it printed, and how it ended."""
    return text.parse("\n".join(_lines(record, call)) + "\n")


def log_of_all(record: Record) -> Log:
    """A log of all calls that failed and were no trials."""
    failed = [call for call in record.calls if call.failed and not calls.is_trial(call)][:_OTHERS]
    return text.parse("".join("\n".join(_lines(record, call)) + "\n" for call in failed))


def _lines(record: Record, call: Call) -> Iterator[str]:
    if call.name.lower().startswith("nvcc"):  # what it takes from variables no command line shows
        environ = masking.variables(replays.call_environment(record, call))
        yield from (f"{name}={quoting.posix([environ[name]])}" for name in NVCC_VARIABLES if environ.get(name))
    yield "$ " + quoting.posix((call.program or call.name, *call.words))  # whose path tells the release
    yield ""  # or a line as long as a terminal is wide would be joined with the next
    printed = reader.read_printed(record, call, _PRINTED).rstrip("\n")
    if printed:
        yield printed
    if call.state != "succeeded" and not (call.state == "failed" and printed):  # a message says more than a status
        yield ended(call)


def ended(call: Call) -> str:
    """In the words in which shells and build systems say it."""
    if call.state == "not-started":
        return f"{call.name}: {call.problem or 'could not be started'}"
    if call.state == "signalled":
        return (
            f"{call.name} was ended by {reader.signal_name(call.signal or 0)}{': Killed' if call.signal == 9 else ''}"  # noqa: PLR2004
        )
    if call.state == "started":
        return f"{call.name} never ended: the build, or the machine, died while it ran"
    return f"{call.name} exited with status {call.status}"
