"""Why a job of a build ended without its wheel: the call that failed or the last words, and the cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building.recording import calls, reader
from cuwheel.diagnosis import ending, inquiry
from cuwheel.diagnosis.diagnosis import Failure
from cuwheel.support import files, masking, quoting
from cuwheel.support.wording import uncoloured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.values import Built, Job, JobResult, Problem
    from cuwheel.diagnosis.diagnosis import Cause
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


def _of_build(problem: Problem, built: Built, record: Record | None, job: Job | None) -> Failure:
    environ = job.environ if job else {}

    def masked(text: str) -> str:
        return masking.known(text, environ)

    call = _guilty(problem, record) if record else None
    tail = masked(files.tail(Path(built.log), _TAIL))
    words = ending.of(tail) if problem.kind == "program" else None
    printed = masked("".join(reader.read_output(record, call))) if record and call else ""
    if record and call and words and words.outweighs(printed):
        call = calls.last_failure(record)
        printed = masked("".join(reader.read_output(record, call))) if call else ""
    if call is None:
        causes = _causes(job, "\n".join(words.lines) if words else "", tail) if problem.kind == "program" else ()
        failed = described(problem, output="\n".join(words.lines) if words else tail, causes=causes)
        return replace(failed, what=words.what) if words else failed
    replay = quoting.here(["cuwheel", "replay", f"{built.record}:{call.number}"])
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


def _causes(job: Job | None, *texts: str) -> tuple[Cause, ...]:
    """Of the first that tells something."""
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
