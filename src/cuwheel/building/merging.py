"""With `--merge`: the wheels of all CUDA versions as one for each Python."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import gate
from cuwheel.building.values import MadeWheel, MergedWheel
from cuwheel.changes.stamp import merge
from cuwheel.device_code.survey import survey
from cuwheel.errors import CuwheelError
from cuwheel.support import system_calls
from cuwheel.support.files import sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.building.values import BuildContext, JobResult


def merged(order: BuildContext, done: Sequence[JobResult]) -> tuple[MergedWheel, ...]:
    return tuple(_merged(order, group) for group in _groups(done))


def _groups(done: Sequence[JobResult]) -> Iterator[list[JobResult]]:
    """By Python; Pythons that are served by the same wheels are one."""
    seen: set[tuple[str, ...]] = set()
    for python in dict.fromkeys(job.python for job in done):
        group = [job for job in done if job.python == python]
        wheels = tuple(str(job.wheel.path) if job.wheel else job.id for job in group)
        if wheels not in seen:
            seen.add(wheels)
            yield group


def _merged(order: BuildContext, group: Sequence[JobResult]) -> MergedWheel:
    ids = tuple(job.id for job in group)
    if lacking := [job.id for job in group if job.wheel is None or job.outcome == "refused"]:
        return MergedWheel(jobs=ids, reason=f"{', '.join(lacking)} made no wheel: see above")
    scratch = order.request.output / f".cuwheel-merge-{group[0].python}"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        return _checked(order, group, scratch)
    except CuwheelError as error:
        kept = "\n".join(f"kept: {job.wheel.path}" for job in group if job.wheel)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return MergedWheel(jobs=ids, reason=f"{error.message}{hint}\n{kept}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked(order: BuildContext, group: Sequence[JobResult], scratch: Path) -> MergedWheel:
    """Into the output folder by a rename, if the whole may leave the build too."""
    ids = tuple(job.id for job in group)
    made = merge.merge([job.wheel.path for job in group if job.wheel], scratch)
    found = survey(str(made), detail="containers")
    result = gate.examine_merged(found, order.table.gate)
    if not result.succeeded:
        return MergedWheel(jobs=ids, reason="the merged wheel did not pass the gate", findings=result.findings)
    made.chmod(0o644)
    place = system_calls.rename_over(made, order.request.output / made.name)
    planned = tuple(arch for job in group for arch in (*job.plan.archs, *job.plan.ptx))
    wheel = MadeWheel(survey=replace(found, target=str(place)), sha256=sha256(place), planned=planned)
    return MergedWheel(jobs=ids, wheel=wheel, findings=result.findings)
