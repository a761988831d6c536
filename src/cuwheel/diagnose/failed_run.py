"""Why a recorded command failed: by the call that did, else by what was printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel import files, masking
from cuwheel.diagnose import inquiry
from cuwheel.recording import quoting, reader, rerun

if TYPE_CHECKING:
    from cuwheel.diagnose.diagnosis import Cause
    from cuwheel.recording.calls import Call, Record
    from cuwheel.recording.matrix_run import Run

_TAIL = 1 << 20  # bytes of a log that are looked through for the first error
_ASKED = 50  # compilers that were asked for their versions
_VERSION_WORDS = frozenset({"--version", "-V", "-v"})


def causes(run: Run) -> tuple[tuple[Cause, ...], str]:
    """The causes and the first error of a configuration that failed; nothing of one that did not."""
    if run.result not in ("failed", "timeout"):
        return (), ""
    log = Path(run.log)
    found = inquiry.inquire(Path(run.record))
    printed = files.tail(log, _TAIL)
    if not found.diagnosis.causes and log.is_file():
        call, found = found.case.call, inquiry.inquire(log)
        if call and call.output:
            printed = "\n".join(call.output)

    def masked(text: str) -> str:
        return masking.known(text, os.environ)

    return masking.within(found.diagnosis.causes, masked), rerun.first_error(printed)


def of_call(record: Record, call: Call, printed: str) -> tuple[Cause, ...]:
    """With what compilers said of their versions before: a cause is surer with them."""
    asked = [each for each in record.calls if _VERSION_WORDS.intersection(each.words) and each.state == "succeeded"]
    versions = dict.fromkeys(reader.printed(record, each, 4096) for each in asked[:_ASKED])
    line = quoting.posix((call.program, *(call.ran or call.words)))
    problem = f"{call.program}: {call.problem}\n" if call.problem else ""
    return inquiry.causes("\n".join((*versions, line, printed + problem)))
