"""One run of a program, from its job to its end. A job is a plain value: where it runs is its caller's affair."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel.errors import CuwheelError, ToolError
from cuwheel.proving.measuring.journal import End, FailedCall
from cuwheel.proving.measuring.programs import call_function
from cuwheel.proving.measuring.trials_file import Failing, Function, Kind
from cuwheel.proving.runner import checks, child
from cuwheel.proving.runner.capture import Capture
from cuwheel.support import codec, masking
from cuwheel.tracing import attribution, events, session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.tracing.traced import Failure

_KILLED = 9  # SIGKILL, of which Windows has not even the name
_KEPT_OUTPUT = 4000
_LONGEST_NAME = 500
_LAST_KERNELS = 3


class Job(Struct, frozen=True, kw_only=True):
    """`environ`: all variables. `mark`: among them, by which its processes are known."""

    command: tuple[str, ...]
    directory: str
    environ: dict[str, str] = field(default_factory=dict)
    timeout: float
    memory: int
    failure: Failing
    traced: bool
    mark: str


class Result(Struct, frozen=True, kw_only=True):
    """`kind`: how it failed; None where it passed."""

    kind: Kind | None
    seconds: float
    status: int | None
    memory: int
    message: str
    output: str
    failed_call: FailedCall | None = None

    def as_end(self, trial: int, counting: Sequence[Kind]) -> End:
        """`counting`: the kinds that count as a failure."""
        ignored = self.kind if self.kind not in (*counting, None) else None
        return End(
            trial=trial,
            outcome="passed" if self.kind is None or ignored else self.kind,
            at=round(time.time(), 3),
            seconds=round(self.seconds, 4),
            status=self.status,
            memory=self.memory,
            message=self.message,
            output=self.output if self.kind else "",
            ignored=ignored,
            failed_call=self.failed_call,
        )


def function_command(python: str, function: Function) -> tuple[str, ...]:
    arguments = codec.encode(function.arguments).decode()
    return (python, call_function.__file__, function.file, function.name, arguments)


def can_trace(environ: Mapping[str, str]) -> bool:
    """Whether this machine's programs can be traced; that there is a GPU is the caller's question."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        session.environ_for(Path(os.curdir), environ)
    except CuwheelError:
        return False
    return True


def run(job: Job) -> Result:
    """Whatever becomes of the program, nothing that it started is left."""
    capture = Capture((*job.failure.expect, *job.failure.forbid))
    limits = child.Limits(seconds=job.timeout, memory=job.memory, guarded=False)
    with contextlib.ExitStack() as stack:
        environ = job.environ
        place: Path | None = None
        if job.traced:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cuwheel-trace-")))
            environ = session.environ_for(place, environ)
        end = child.run(job.command, environ, job.directory, limits, capture, job.mark)
        if end.error:
            raise ToolError(job.command, f"could not be started: {end.error}", hint="check 'command' and 'directory'")
        kind, message = judged(job.failure, end, capture)
        failed_call = _failed_call(place) if place and kind else None
    return Result(
        kind=kind,
        seconds=end.seconds,
        status=end.status,
        memory=end.memory,
        message=message,
        output=masking.known(capture.whole.text()[-_KEPT_OUTPUT:], environ),
        failed_call=failed_call,
    )


def judged(failure: Failing, end: child.End, capture: Capture) -> tuple[Kind | None, str]:
    """How it failed and in which words: the gravest thing first."""
    if end.stopped == "timeout":
        return "timeout", f"did not end within {end.seconds:.1f} s and was stopped"
    if end.stopped:
        return "memory", f"took {end.memory / 1e6:,.0f} MB and was stopped"
    status = end.status if end.status is not None else -_KILLED
    if status < 0:
        return "signal", f"ended by {checks.signal_name(-status) or f'signal {-status}'}"
    if status not in failure.status:
        return "status", f"ended with status {status}"
    found = capture.found()
    wrong = [f"did not print {text!r}" for text in failure.expect if text not in found]
    wrong += [f"printed {text!r}" for text in failure.forbid if text in found]
    if wrong:
        return "output", "; ".join(wrong)[:_LONGEST_NAME]
    problems = checks.number_problem({"number": failure.number, "tolerance": failure.tolerance}, capture)
    return ("result", problems[0]) if problems else (None, "")


def _failed_call(place: Path) -> FailedCall | None:
    """The first call that failed and was not dealt with."""
    found = attribution.attributed(events.read_events(place), succeeded=False)
    failures = [each for each in found.failures if not each.swallowed]
    return _of_failure(failures[0]) if failures else None


def _of_failure(failure: Failure) -> FailedCall:
    kernel = failure.demangled or failure.kernel
    return FailedCall(
        api=failure.api,
        code=failure.error.code,
        error=failure.error.name,
        kernel=kernel[:_LONGEST_NAME] if kernel else None,
        library=failure.library,
        last=tuple(each[:_LONGEST_NAME] for each in failure.last[:_LAST_KERNELS]),
    )
