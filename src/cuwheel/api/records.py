"""What a command does: every compiler call, recorded and run again; the device code that it loads, traced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.building.recording.instructions import Wish
    from cuwheel.report.matrix import Matrix
    from cuwheel.report.record import Recorded
    from cuwheel.report.replay import Replay
    from cuwheel.report.trace import Traced
    from cuwheel.support.quoting import Shell


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
    diff: bool = False,
) -> Recorded:
    """Run a command as it is, and record every call of nvcc and of host compilers and linkers.

    `output`: a new folder (`cuwheel-record`, with a number where that is taken). `quiet_stdout`: what the command
    prints on stdout goes to stderr. `diff`: if a call fails, it is compared with the caller's environment (see
    `replay_diff`).
    """
    from cuwheel.building.recording import command as stage
    from cuwheel.building.recording import exports
    from cuwheel.report import record as report

    exports.see_that_they_can_be_written(*(path for path in (trace, compile_commands) if path))
    ended = stage.run(command, output=output, environ=environ, cwd=cwd, wish=wish, quiet_stdout=quiet_stdout)
    written = tuple(stage.exported(ended.record, trace, compile_commands))
    stop = None
    if ended.failed:  # what explains failures takes a while to load
        from cuwheel.diagnosis import failed_run

        stop = failed_run.stop(ended.record, ended.tail)
    answer = report.answer_of(ended, stop, written)
    return report.save(report.with_comparison(answer, ended.folder) if diff else answer, ended.folder)


def record_matrix(
    file: str | Path,
    *,
    output: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    wish: Wish | None = None,
    diff: bool = False,
) -> Matrix:
    """Runs every configuration of a matrix, each recorded into its own folder below `output` (`cuwheel-matrix`).

    What fails does not stop the rest. `resume`: what an earlier run finished, with the same settings, is taken over.
    `diff`: calls that failed are compared with those of the nearest configuration that works (see `replay_diff`).
    """
    from cuwheel.building.recording import matrix
    from cuwheel.diagnosis import failed_run
    from cuwheel.report import matrix as report

    plan = matrix.load_matrix(Path(file))
    folder = (output or Path("cuwheel-matrix")).absolute()
    answer = report.to_do(plan, str(file), folder)
    if dry_run:
        return answer
    answer = report.begun(answer, plan, resume=resume)
    report.save(answer)
    for index, run in matrix.run_matrix(plan, folder, report.finished(answer), os.environ, wish):
        answer = report.with_run(answer, index, run, *failed_run.causes(run))
        report.save(answer)
    if diff:
        answer = report.with_comparisons(answer)
        report.save(answer)
    return answer


def replay(
    call: str | Path,
    *,
    here: bool = False,
    scratch: bool = False,
    directory: Path | None = None,
    attend: bool = False,
    timeout: float | None = None,
) -> Replay:
    """Runs a recorded call again (`RECORD` or `RECORD:N`), in its environment or, with `here`, in the caller's.

    `attend`: its output goes to the caller's own streams as it comes; else it is in the answer.
    `scratch`: what it writes goes to a folder that is removed afterwards, not over the build's files.
    """
    from cuwheel.building.recording import replays
    from cuwheel.report import replay as report

    chosen = replays.choose_call(call, here=here, directory=directory)
    same = not here and directory is None
    return report.ran(replays.run_call(chosen, scratch=scratch, attend=attend, timeout=timeout, as_recorded=same))


def replay_print(
    call: str | Path, *, here: bool = False, directory: Path | None = None, shell: Shell | None = None
) -> Replay:
    """The lines that run the call, to paste into a shell that has the caller's environment (`shell`, or this one)."""
    from cuwheel.building.recording import replays
    from cuwheel.report import replay as report

    chosen = replays.choose_call(call, here=here, directory=directory)
    return report.printed(chosen, replays.shell_lines(chosen, shell))


def replay_list(record: str | Path) -> Replay:
    """The calls of a record."""
    from cuwheel.building.recording import reader
    from cuwheel.report import replay as report

    return report.listed(reader.read_target(record)[0])


def replay_diff(
    call: str | Path,
    other: str | Path | None = None,
    *,
    directory: Path | None = None,
    runs: bool = True,
    most: int = 60,
    timeout: float | None = None,
) -> Replay:
    """What differs between a recorded call and the caller's environment, or another call, and which of it matters.

    `runs`: runs the call, writing nothing where the build did, until the smallest change is found that makes the
    difference: at most `most` times, each at most `timeout` seconds (ten times the recorded time, at least a minute).
    """
    from cuwheel.building.recording import replays
    from cuwheel.report import replay as report

    return report.compared(
        replays.compare_environments(call, other, directory=directory, runs=runs, most=most, timeout=timeout)
    )


def trace(
    command: Sequence[str],
    *,
    keep: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    cupti: Path | bool = False,
) -> Traced:
    """Run a command as it is, and see which device code its programs load, launch and fail with.

    `keep`: a new folder for what its processes write. `cupti`: also ask NVIDIA's profiling library, the one that is
    found or this one, which names kernels that the CUDA runtime itself refuses.
    """
    from cuwheel.report import trace as report
    from cuwheel.tracing import attribution, events, session

    with session.trace_folder(keep) as place:
        status = session.run_traced(command, place, environ=environ, cwd=cwd, cupti=cupti)
        found = events.read_events(place)
        return report.answer_of(command, status, attribution.attributed(found, succeeded=status == 0))


def read_trace(folder: Path) -> Traced:
    """Of a folder that `keep` named: also where cuwheel itself was killed."""
    from cuwheel.report import trace as report
    from cuwheel.tracing import attribution, events

    return report.answer_of((), None, attribution.attributed(events.read_events(folder), succeeded=False))


def save_trace(answer: Traced, *, output: Path | None = None, timeline: Path | None = None) -> None:
    """`output`: as JSON. `timeline`: for Perfetto's and Chrome's viewers."""
    from cuwheel.report import trace as report
    from cuwheel.report.answer import to_json
    from cuwheel.support import files

    if output:
        files.write(output, to_json(answer))
    if timeline:
        files.write(timeline, report.timeline_json(answer))
