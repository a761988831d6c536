"""How fast a function or a command is, under load and against another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.measuring.request import BenchRequest
from cuwheel.report import bench as report

if TYPE_CHECKING:
    from cuwheel.report.bench import Bench


@verb.of(BenchRequest)
def bench(request: BenchRequest) -> Bench:
    """Call a function or a command under several at once, by itself or by turns with another side."""
    from cuwheel.measuring import bench as stage

    earlier = report.read(request.earlier) if request.earlier else None
    return report.answer_of(request, stage.run(request), earlier)
