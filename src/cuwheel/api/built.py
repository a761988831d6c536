"""What is told of a job: before it, without a toolchain, after success and after failure."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.api.building_steps import Steps
    from cuwheel.building.values import Built, Job, Trouble
    from cuwheel.diagnose.values import Cause
    from cuwheel.errors import CuwheelError
    from cuwheel.finding import Finding
    from cuwheel.planning.values import Job as PlanJob
    from cuwheel.recording.values import Call, Record
    from cuwheel.report import build as answers

_TAIL = 200_000  # bytes of a log that are looked through for a cause


def planned(job: Job) -> answers.Job:
    """As a dry run tells it."""
    return _told(job, outcome="planned")


def without_toolchain(plan: PlanJob, python: str, error: CuwheelError) -> answers.Job:
    from cuwheel.report.build import Failure, Job

    hint = f" ({error.hint})" if error.hint else ""
    return Job(
        id=f"cu{plan.cuda.replace('.', '')}-cp{python.replace('.', '')}",
        cuda=plan.cuda,
        python=python,
        archs=plan.archs,
        ptx=plan.ptx,
        outcome="failed",
        failure=Failure(what=error.message + hint, phase="toolchain"),
    )


def served(job: Job, first: answers.Job) -> answers.Job:
    from dataclasses import replace

    name = Path(first.wheel.path).name if first.wheel else ""
    told = _told(job, outcome="skipped", reason=f"{name} serves Python {job.python} too")
    return replace(told, wheel=first.wheel)


def _told(job: Job, *, outcome: answers.Outcome, reason: str = "") -> answers.Job:
    from cuwheel import masking
    from cuwheel.report.build import Job as Answer
    from cuwheel.report.build_made import tools_of
    from cuwheel.toolchains.values import Setting

    return Answer(
        id=job.id,
        cuda=job.cuda,
        python=job.python,
        archs=job.plan.archs,
        ptx=job.plan.ptx,
        outcome=outcome,
        reason=reason,
        coverage=job.plan.coverage,
        backend=job.backend,
        commands=tuple(masking.known(each, job.environ) for each in _commands(job)),
        settings=tuple(Setting(name=each.name, value=masking.variable(each.name, each.value)) for each in job.settings),
        tools=tools_of(job.toolchain),
        findings=job.notes,
    )


def _commands(job: Job) -> Iterator[str]:
    if job.requires:
        yield shlex.join(["install", *job.requires])
    yield from job.before
    options = [f"-C{name}={value}" for name, value in job.config_settings.items()]
    yield shlex.join(["python", "-m", "build", "--wheel", *options])
    if job.force_archs:
        yield shlex.join(["nvcc", *job.force_archs]) + "   (instead of every list that it is given)"


def finished(steps: Steps, job: Job, built: Built) -> answers.Job:
    """A job's answer, and its wheel where it belongs."""
    from dataclasses import replace

    from cuwheel.api.finishing import Finishing
    from cuwheel.errors import CuwheelError
    from cuwheel.report.build_made import calls_of, tools_of

    record = _record(built)
    cached = built.cached
    counted = (cached.hits, cached.misses) if cached and not cached.problem else None
    told = replace(
        _told(job, outcome="failed"),
        tools=tools_of(job.toolchain, built.others),
        phases=built.phases,
        seconds=built.seconds,
        calls=calls_of(record, built.recorded, counted),
        findings=(*job.notes, *_about_cache(built)),
        log=built.log,
        record=built.record,
    )
    if built.trouble:
        return replace(told, failure=_failure(job, built, record))
    work = Finishing(steps, job, built, record)
    try:
        return work.through(told)
    except CuwheelError as error:
        from cuwheel.report.build import Failure

        hint = f" ({error.hint})" if error.hint else ""
        failure = Failure(what=error.message + hint, phase=work.phase)
        return replace(told, phases=(*told.phases, *work.phases), failure=failure)


def _about_cache(built: Built) -> Iterator[Finding]:
    from cuwheel.finding import Finding

    if built.cached and built.cached.problem:
        yield Finding(rule="no-compiler-cache", severity="warning", message=f"built without: {built.cached.problem}")


def _record(built: Built) -> Record | None:
    from cuwheel import log
    from cuwheel.errors import CuwheelError
    from cuwheel.recording import reader

    if not built.record:
        return None
    try:
        return reader.read(Path(built.record))
    except CuwheelError as error:
        log.debug("the record cannot be read: %s", error)
        return None


def _failure(job: Job, built: Built, record: Record | None) -> answers.Failure:
    """What made it stop: the call that it failed of, or the build system's own words; and what is known of that."""
    from dataclasses import replace

    from cuwheel import masking
    from cuwheel.building.values import Trouble
    from cuwheel.diagnose import ending
    from cuwheel.recording import reader
    from cuwheel.report.build_made import failure_of

    def told(text: str) -> str:
        return masking.known(text, job.environ)

    trouble = built.trouble or Trouble(phase="", what="")
    trouble = replace(trouble, what=told(trouble.what))
    call = _guilty(trouble, record) if record else None
    tail = told(_tail(Path(built.log)))
    words = ending.of(tail) if trouble.kind == "program" else None
    said = told("".join(reader.output(record, call))) if record and call else ""
    if words and words.decides and not words.quotes(said):
        call = None  # a trial, or what it went on after
    if call is None:
        causes = _causes("\n".join(words.lines) if words else "", tail) if trouble.kind == "program" else ()
        failed = failure_of(trouble, output="\n".join(words.lines) if words else tail, causes=causes)
        return replace(failed, what=words.what) if words else failed
    replay = shlex.join(["cuwheel", "replay", f"{built.record}:{call.number}"])
    causes = () if trouble.kind == "time" else _causes(said, tail)
    failed = failure_of(trouble, call, said, replay=replay, causes=causes)
    what = failed.what
    if trouble.kind == "time":
        what = f"{trouble.what}; call {call.number} was at it, {call.name} ({trouble.hint})"
    elif words and not words.of_call:
        what = f"{what}; then {words.what}"
    return replace(failed, what=what, command=told(failed.command))


def _guilty(trouble: Trouble, record: Record) -> Call | None:
    """Where time ran out, what was running then; where a program failed, the first call that did and mattered."""
    from cuwheel.recording import failures

    if trouble.kind == "time":
        return next((each for each in record.calls if each.state in ("started", "signalled")), None)
    return failures.first(record) if trouble.kind == "program" else None


def _causes(*texts: str) -> tuple[Cause, ...]:
    """Of the first that tells something."""
    import io

    from cuwheel.api.diagnosis import explain

    found = (explain(io.BytesIO(text.encode()), building=True).causes for text in texts if text.strip())
    return next((causes for causes in found if causes), ())


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
