"""The verb that makes a wheel travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.report.repair import Repair


def repair(
    *wheels: str | Path,
    output: Path | None = None,
    policy: str | None = None,
    exclude: Sequence[str] = (),
    requires: bool = False,
    cuda: str | int | None = None,
    libraries: Sequence[Path] = (),
    platform: str | None = None,
    dry_run: bool = False,
) -> Repair:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them.

    All are decided on before the first is written. `output`: the folder, `wheelhouse` if none is given.
    """
    from pathlib import Path

    from cuwheel import repairing as stage
    from cuwheel.inspection.pinned import on_disk
    from cuwheel.report.repair import Repair, wheel_of

    wish = stage.Wish(
        policy=None if policy == "auto" else policy,
        exclude=tuple(exclude),
        requires=requires,
        cuda_major=stage.major_of(cuda),
        libraries=tuple(libraries),
    )
    folder = output or Path("wheelhouse")
    decisions = [stage.decide(Path(on_disk(wheel, platform)), wish) for wheel in wheels]
    if dry_run:
        return Repair(dry_run=True, wheels=tuple(wheel_of(each, folder=str(folder)) for each in decisions))
    done = []
    for each in decisions:
        made = None if each.refused else stage.execute(each, folder)
        done.append(wheel_of(each, made))
    return Repair(dry_run=False, wheels=tuple(done))
