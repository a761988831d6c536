"""A recorded call once more, and why it does otherwise elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.recording import replays, target
from cuwheel.report import replay as report

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.recording.quoting import Shell
    from cuwheel.report.replay import Replay


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
    chosen = replays.choose(call, here=here, directory=directory)
    same = not here and directory is None
    return report.ran(replays.run(chosen, scratch=scratch, attend=attend, timeout=timeout, as_recorded=same))


def replay_print(
    call: str | Path, *, here: bool = False, directory: Path | None = None, shell: Shell = "posix"
) -> Replay:
    """The lines that run the call, to paste into a shell that has the caller's environment."""
    chosen = replays.choose(call, here=here, directory=directory)
    return report.printed(chosen, replays.lines(chosen, shell))


def replay_list(record: str | Path) -> Replay:
    """The calls of a record."""
    return report.listed(target.read(record)[0])


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
    return report.compared(replays.compare(call, other, directory=directory, runs=runs, most=most, timeout=timeout))
