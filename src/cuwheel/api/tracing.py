"""What a program loads at run time, and what failed in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report import trace as report
from cuwheel.tracing import attribution, events, session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cuwheel.report.trace import Traced


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
    with session.folder(keep) as place:
        status = session.run(command, place, environ=environ, cwd=cwd, cupti=cupti)
        found = events.read(place)
        return report.answer_of(command, status, attribution.attributed(found, succeeded=status == 0))


def read_trace(folder: Path) -> Traced:
    """Of a folder that `keep` named: also where cuwheel itself was killed."""
    return report.answer_of((), None, attribution.attributed(events.read(folder), succeeded=False))


def save_trace(answer: Traced, *, output: Path | None = None, timeline: Path | None = None) -> None:
    """`output`: as JSON. `timeline`: for Perfetto's and Chrome's viewers."""
    from cuwheel import files
    from cuwheel.report.answer import to_json

    if output:
        files.write(output, to_json(answer))
    if timeline:
        files.write(timeline, report.timeline_json(answer))
