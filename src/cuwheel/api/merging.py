"""With `--merge`: the wheels of all CUDA versions as one for each Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.api.building_steps import Steps
    from cuwheel.report import build as answers


def merged(steps: Steps, done: Sequence[answers.Job]) -> tuple[answers.Merged, ...]:
    return tuple(_merged(steps, group) for group in _groups(done))


def _groups(done: Sequence[answers.Job]) -> Iterator[list[answers.Job]]:
    """By Python; Pythons that are served by the same wheels are one."""
    seen: set[tuple[str, ...]] = set()
    for python in dict.fromkeys(job.python for job in done):
        group = [job for job in done if job.python == python]
        wheels = tuple(job.wheel.path if job.wheel else job.id for job in group)
        if wheels not in seen:
            seen.add(wheels)
            yield group


def _merged(steps: Steps, group: Sequence[answers.Job]) -> answers.Merged:
    import shutil

    from cuwheel.errors import CuwheelError
    from cuwheel.report.build import Merged

    ids = tuple(job.id for job in group)
    if lacking := [job.id for job in group if job.wheel is None or job.outcome == "refused"]:
        return Merged(jobs=ids, reason=f"there is no wheel of {', '.join(lacking)}: see above")
    scratch = steps.options.output / f".cuwheel-merge-{group[0].python}"
    try:
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        return _checked(steps, group, scratch)
    except CuwheelError as error:
        kept = "\n".join(f"kept: {job.wheel.path}" for job in group if job.wheel)
        hint = f"\nhint: {error.hint}" if error.hint else ""
        return Merged(jobs=ids, reason=f"{error.message}{hint}\n{kept}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _checked(steps: Steps, group: Sequence[answers.Job], scratch: Path) -> answers.Merged:
    """Into the output folder by a rename, if the whole may leave the build too."""
    from dataclasses import replace

    from cuwheel.building import gate
    from cuwheel.files import sha256
    from cuwheel.inspection.survey import survey
    from cuwheel.report.build import Merged
    from cuwheel.report.build_made import wheel_of
    from cuwheel.stamping import merge

    ids = tuple(job.id for job in group)
    made = merge.merge([Path(job.wheel.path) for job in group if job.wheel], scratch)
    found = survey(str(made), detail="containers")
    result = gate.examine_merged(found, steps.table.gate)
    if not result.succeeded:
        return Merged(jobs=ids, reason="the merged wheel did not pass the gate", findings=result.findings)
    made.chmod(0o644)
    place = made.replace(steps.options.output / made.name)
    planned = [arch for job in group for arch in (*job.archs, *job.ptx)]
    wheel = wheel_of(replace(found, target=str(place)), sha256(place), planned)
    return Merged(jobs=ids, wheel=wheel, findings=result.findings)
