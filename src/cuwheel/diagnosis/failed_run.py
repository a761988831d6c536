"""Why a recorded command failed: by the call that did, or by what its build system said when it gave up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.building.recording import calls, reader, rerun
from cuwheel.building.recording.calls import Call
from cuwheel.diagnosis import ending, inquiry
from cuwheel.diagnosis.diagnosis import Cause
from cuwheel.diagnosis.ending import Ending
from cuwheel.support import files, masking, quoting
from cuwheel.support.wording import uncoloured

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import Record
    from cuwheel.building.recording.matrix import Run

_TAIL = 1 << 20  # bytes of a log that are looked through for the first error
_EXPLAINED = 200_000  # letters of it that are looked through for a cause
_PRINTED = 256 * 1024  # of a call
_ASKED = 50  # compilers that were asked for their versions
_VERSION_WORDS = frozenset({"--version", "-V", "-v"})


class Stop(Struct, frozen=True, kw_only=True):
    """What made a command stop. `call`: the first that failed and mattered, and what it `printed`.

    `words`: the last of the command itself, where they say something; they may be all there is. `causes`: of the call,
    else of these words.
    """

    call: Call | None
    printed: str
    words: Ending | None
    causes: tuple[Cause, ...]


def stop(record: Record, tail: str) -> Stop:
    """`tail`: the end of what the command printed. One that succeeded said nothing when it gave up: it did not."""
    call = calls.first_failure(record)
    printed = reader.read_printed(record, call, _PRINTED) if call else ""
    words = ending.of(tail) if record.status else None
    if call and words and words.outweighs(printed):
        call = calls.last_failure(record)
        printed = reader.read_printed(record, call, _PRINTED) if call else ""
    if call:
        causes = _of_call(record, call, printed)
    elif record.status:
        texts = ("\n".join(words.lines) if words else "", tail[-_EXPLAINED:])
        causes = next(filter(None, (inquiry.causes(text) for text in texts if text.strip())), ())
    else:
        causes = ()
    return Stop(call=call, printed=printed, words=words, causes=causes)


def causes(run: Run) -> tuple[tuple[Cause, ...], str]:
    """The causes and the first error of a configuration that failed; nothing of one that did not."""
    if run.result not in ("failed", "timeout"):
        return (), ""
    tail = files.tail(Path(run.log), _TAIL)
    found = stop(reader.read_record(run.record), uncoloured(tail))
    error = rerun.first_error(found.printed) if found.call else found.words.what if found.words else ""
    hidden = masking.within(found.causes, lambda text: masking.known(text, os.environ))
    return hidden or inquiry.causes(tail), error or rerun.first_error(tail)


def _of_call(record: Record, call: Call, printed: str) -> tuple[Cause, ...]:
    """With what compilers said of their versions before: a cause is surer with them."""
    asked = [each for each in record.calls if _VERSION_WORDS.intersection(each.words) and each.state == "succeeded"]
    versions = dict.fromkeys(reader.read_printed(record, each, 4096) for each in asked[:_ASKED])
    line = quoting.shown((call.program, *(call.ran or call.words)))
    problem = f"{call.program}: {call.problem}\n" if call.problem else ""
    return inquiry.causes("\n".join((*versions, line, printed + problem)))
