"""Every compiler call of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.recording import command as stage
from cuwheel.recording import exports, failures
from cuwheel.report import record as report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cuwheel.diagnose.failed_run import Stop
    from cuwheel.recording.command import Ended
    from cuwheel.recording.instructions import Wish
    from cuwheel.report.record import Recorded


def record(
    command: Sequence[str],
    *,
    output: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    wish: Wish | None = None,
    trace: Path | None = None,
    compile_commands: Path | None = None,
    quiet_stdout: bool = False,
) -> Recorded:
    """Run a command as it is, and record every call of nvcc and of host compilers and linkers.

    `output`: a new folder (`cuwheel-record`, with a number where that is taken). `quiet_stdout`: what the command
    prints on stdout goes to stderr.
    """
    exports.see_that_they_can_be_written(*(path for path in (trace, compile_commands) if path))
    ended = stage.run(command, output=output, environ=environ, cwd=cwd, wish=wish, quiet_stdout=quiet_stdout)
    written = tuple(stage.exported(ended.record, trace, compile_commands))
    return report.save(report.answer_of(ended, _stop(ended), written), ended.folder)


def _stop(ended: Ended) -> Stop | None:
    """A command that did not fail needs nothing of what explains failures, which takes a while to load."""
    if not ended.status and failures.first(ended.record) is None:
        return None
    from cuwheel.diagnose import failed_run

    return failed_run.stop(ended.record, ended.tail)
