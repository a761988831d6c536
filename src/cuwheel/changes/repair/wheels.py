"""Several wheels at once: all are decided on before the first is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.changes.repair import deciding, execution
from cuwheel.changes.repair.decision import Wish
from cuwheel.device_code.target import downloaded_if_pinned

if TYPE_CHECKING:
    from cuwheel.changes.repair.decision import Decision, Repaired
    from cuwheel.changes.repair.request import RepairRequest


def repair(request: RepairRequest) -> list[tuple[Decision, Repaired | None]]:
    """None where the wheel was refused, and with `dry_run`."""
    wish = Wish(
        policy=None if request.policy == "auto" else request.policy,
        exclude=tuple(request.exclude),
        requires=request.requires,
        cuda_major=deciding.major_of(request.cuda),
        cuda=deciding.release_of(request.cuda),
        libraries=tuple(request.libraries),
    )
    decisions = [deciding.decide(Path(downloaded_if_pinned(wheel, request.platform)), wish) for wheel in request.named]
    return [
        (each, None if each.refused or request.dry_run else execution.execute(each, request.output))
        for each in decisions
    ]
