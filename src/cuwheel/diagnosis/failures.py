"""Why a job of a build, or a recorded command, failed: the call that did or the last words, and the cause."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.answer import Failure
from cuwheel.building.recording import calls, reader, replays
from cuwheel.building.recording.calls import Call
from cuwheel.building.recording.command import Failure as FailedCall
from cuwheel.building.recording.command import LastWords, Reason
from cuwheel.building.recording.words import NVCC_VARIABLES, readable
from cuwheel.diagnosis import ending, inquiry, recorded
from cuwheel.diagnosis.ending import Ending
from cuwheel.support import files, masking, quoting
from cuwheel.support.cause import Cause
from cuwheel_core.support.wording import file_name, uncoloured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.recording.calls import Record
    from cuwheel.building.recording.command import EndedCommand, Recorded
    from cuwheel.building.values import Built, DecidedJob, JobResult, Problem
    from cuwheel.toolchains.toolchain import Toolchain


_TAIL = 200_000  # bytes of a log that are looked through for a cause
_OUTPUT = 8000  # characters kept of what a call printed: its end; the record has all


def failure(result: JobResult) -> Failure | None:
    """Nothing where the job did not fail."""
    if result.problem is None:
        return None
    environ = result.job.environ if result.job else {}
    problem = replace(result.problem, what=masking.known(result.problem.what, environ))
    if result.built is None or result.built.problem is None:  # no program failed: a toolchain, or what comes after
        return described(problem)
    return _of_build(problem, result.built, result.record, result.job)


def _of_build(problem: Problem, built: Built, record: Record | None, job: DecidedJob | None) -> Failure:
    environ = job.environ if job else {}

    def masked(text: str) -> str:
        return masking.known(text, environ)

    call = _guilty(problem, record) if record else None
    tail = masked(files.tail(Path(built.log), _TAIL))
    words = ending.ending_of(tail) if problem.kind == "program" else None
    printed = masked("".join(reader.read_output(record, call))) if record and call else ""
    if record and call and words and words.outweighs(printed):
        call = calls.last_failure(record)
        printed = masked("".join(reader.read_output(record, call))) if call else ""
    if call is None:
        causes = _causes(job, "\n".join(words.lines) if words else "", tail) if problem.kind == "program" else ()
        failed = described(problem, output="\n".join(words.lines) if words else tail, causes=causes)
        return replace(failed, what=words.what) if words else failed
    replay = quoting.here(["cuwheel", "record", "replay", f"{built.record}:{call.number}"])
    causes = () if problem.kind == "time" else _causes(job, printed, tail)
    failed = replace(described(problem, call, printed, causes), replay=replay)
    what = failed.what
    if problem.kind == "time":
        what = f"{problem.what}; call {call.number} was running, {call.name} ({problem.hint})"
    elif words and not words.of_call:
        what = f"{what}; then {words.what}"
    return replace(failed, what=what, command=masked(failed.command))


def _guilty(problem: Problem, record: Record) -> Call | None:
    """Where time ran out, what was running then; where a program failed, the first call that did and mattered."""
    if problem.kind == "time":
        return next((each for each in record.calls if each.state in ("started", "signalled")), None)
    return calls.first_failure(record) if problem.kind == "program" else None


def _causes(job: DecidedJob | None, *texts: str) -> tuple[Cause, ...]:
    """The causes that are found in the first of the texts in which any are."""
    known = facts(job.toolchain, job.source) if job else {}
    found = (inquiry.causes(text, known, building=True) for text in texts if text.strip())
    return next((causes for causes in found if causes), ())


def facts(toolchain: Toolchain, source: Path) -> dict[str, str]:
    """What the log does not tell: the parts that its toolkit has, and the modules of the source itself."""
    beside = sorted(source.iterdir()) if source.is_dir() else []
    own = [each.stem for each in beside if each.is_dir() or each.suffix == ".py"]
    known = {"toolkit_parts": " ".join(toolchain.toolkit.components), "own_modules": " ".join(own)}
    return {name: value for name, value in known.items() if value}


def described(problem: Problem, call: Call | None = None, output: str = "", causes: Sequence[Cause] = ()) -> Failure:
    """`call`: the first that failed and mattered; `output`: what it printed."""
    hint = f" ({problem.hint})" if problem.hint else ""
    output = uncoloured(output)[-_OUTPUT:]
    if call is None:
        return Failure(what=problem.what + hint, phase=problem.phase, output=output, causes=tuple(causes))
    how = f"signal {call.signal}" if call.signal else f"exit status {call.status}"
    if call.state == "not-started":
        how = call.problem or "it could not be started"
    return Failure(
        what=f"call {call.number}, {call.name} {calls.source_of(call)}".rstrip() + f": {how}",
        phase=problem.phase,
        call=call.number,
        command=quoting.shown((call.program, *call.words)),
        cwd=call.cwd,
        status=call.status,
        output=output,
        causes=tuple(causes),
    )


# Why a recorded command failed: by the call that did, or by what its build system said when it gave up.

_TAIL_OF_RUN = 1 << 20  # bytes of a log that are looked through for the first error
_EXPLAINED = 200_000  # letters of it that are looked through for a cause
_PRINTED = 256 * 1024  # of a call
_LAST = 10  # lines of a command that gave up, where none of them says why
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
    words = ending.ending_of(tail) if record.status else None
    if call and words and words.outweighs(printed):
        call = calls.last_failure(record)
        printed = reader.read_printed(record, call, _PRINTED) if call else ""
    if call:
        causes = _of_call(record, call, printed)
    elif record.status:
        texts = ("\n".join(words.lines) if words else "", tail[-_EXPLAINED:])
        causes = next(filter(None, (inquiry.causes(text) for text in texts if text.strip())), ())
        # Nvcc failed, and its words were kept back: they are in the record.
        hidden = recorded.silenced(record) if not causes or causes[0].id == inquiry.SILENT else None
        if hidden and (found := _of_call(record, hidden, reader.read_printed(record, hidden, _PRINTED))):
            call, printed, causes = hidden, reader.read_printed(record, hidden, _PRINTED), found
    else:
        causes = ()
    return Stop(call=call, printed=printed, words=words, causes=causes)


def with_failure(ended: EndedCommand) -> Recorded:
    """The answer of a recorded command, with what made it stop, or what failed and did not."""
    found = stop(ended.record, ended.tail)
    reasons = tuple(
        Reason(
            id=each.id,
            confidence=each.confidence,
            title=each.title,
            evidence=tuple(line.text for line in each.evidence),
            fix=each.fix,
        )
        for each in found.causes
    )
    if found.call:
        failure = _failed_call(ended.record, found.call, found.printed, reasons)
        # Nothing where the last words only say that the call failed, which is shown.
        words = found.words if found.words and not found.words.of_call else None
        last_words = LastWords(what=words.what, lines=words.lines, causes=()) if words else None
        return replace(ended.answer, failure=failure, last_words=last_words)
    if found.words:
        last_words = LastWords(what=found.words.what, lines=found.words.lines, causes=reasons)
    else:
        lines = tuple(line for line in ended.tail.splitlines() if line.strip())[-_LAST:]
        last_words = LastWords(what="", lines=lines, causes=reasons) if lines else None
    return replace(ended.answer, last_words=last_words)


def _failed_call(record: Record, call: Call, printed: str, reasons: tuple[Reason, ...]) -> FailedCall:
    parsed = calls.parse_call(call)
    try:  # as seen from here, where that is shorter; on Windows another drive is not
        place = min(os.path.relpath(record.folder), record.folder, key=len)
    except ValueError:
        place = record.folder
    named = f"{place}:{call.number}"
    return FailedCall(
        number=call.number,
        command=readable(quoting.shown((call.program, *(call.ran or call.words)))),
        inside=tuple(
            readable(f"{each.name} ended with {calls.status_words(each.status)}") for each in call.inner if each.status
        ),
        cwd=readable(call.cwd),
        state=call.state,
        status=call.status,
        signal=reader.signal_name(call.signal) if call.signal is not None else None,
        problem=call.problem,
        files=tuple(map(readable, parsed.inputs)),
        archs=tuple(map(readable, parsed.archs)),
        output=printed,
        causes=reasons,
        replay=readable(quoting.here(("cuwheel", "record", "replay", named))),
        compare=readable(quoting.here(("cuwheel", "record", "diff", named))),
        flags=tuple(map(readable, _flags(record, call))),
    )


def _flags(record: Record, call: Call) -> list[str]:
    """What nvcc takes from variables, as a shell has it: no command line shows that."""
    if not file_name(call.program).lower().startswith("nvcc"):
        return []
    environ = replays.call_environment(record, call)
    return [f"{name}={quoting.shown([environ[name]])}" for name in NVCC_VARIABLES if environ.get(name)]


def causes(record: str | Path, log: str | Path) -> tuple[tuple[Cause, ...], str]:
    """The causes and the first error of a recorded command that failed, by its record and what it printed."""
    tail = files.tail(Path(log), _TAIL_OF_RUN)
    found = stop(reader.read_record(record), uncoloured(tail))
    error = replays.first_error(found.printed) if found.call else found.words.what if found.words else ""
    hidden = masking.within(found.causes, lambda text: masking.known(text, os.environ))
    return hidden or inquiry.causes(tail), error or replays.first_error(tail)


def _of_call(record: Record, call: Call, printed: str) -> tuple[Cause, ...]:
    """The causes that a call's output shows, surer with what compilers said of their versions before."""
    asked = [each for each in record.calls if _VERSION_WORDS.intersection(each.words) and each.state == "succeeded"]
    versions = dict.fromkeys(reader.read_printed(record, each, 4096) for each in asked[:_ASKED])
    line = " ".join((*_flags(record, call), quoting.shown((call.program, *(call.ran or call.words)))))
    problem = f"{call.program}: {call.problem}\n" if call.problem else ""
    return inquiry.causes("\n".join((*versions, line, printed + problem)))
