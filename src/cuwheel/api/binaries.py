"""What is in a binary: the verbs that read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code.target import downloaded_if_pinned
from cuwheel.support.request_fields import environment_folder

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.compare import Compare
    from cuwheel.report.inspect import Inspect
    from cuwheel.report.kernels import Kernels


def inspect(
    target: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    entries: bool = False,
    whole: bool = False,
) -> Inspect:
    """What device code is in a wheel or its facts file, a library, folder, installed package or `name==version`."""
    from cuwheel.device_code.target import description_of_target, survey_target
    from cuwheel.report import inspect as report

    env = environment_folder(env)
    place = downloaded_if_pinned(target, platform)
    found = survey_target(
        place,
        env=env,
        detail="entries" if entries else "containers",
        search="whole" if whole else "data",
        python=False,  # nothing that is shown depends on it, and PyTorch's takes as long as its libraries
    )
    described, unclear = description_of_target(found, place, env=env)
    return report.answer_of(found, described, unclear, entries=entries)


def kernels(
    target: str | Path, pattern: str | None = None, *, env: Path | None = None, platform: str | None = None
) -> Kernels:
    """Which kernels are in which cubin; with a pattern, where those that match it are and where they are missing."""
    from cuwheel.device_code import kernels as stage
    from cuwheel.report.answer import of_fields
    from cuwheel.report.kernels import Kernels

    return of_fields(
        Kernels, stage.kernels(downloaded_if_pinned(target, platform), pattern, env=environment_folder(env))
    )


def compare(
    before: str | Path,
    after: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    kernels: bool = True,
) -> Compare:
    """What an architecture, or a change, costs in bytes; what was gained and lost."""
    from cuwheel.device_code import compare as stage
    from cuwheel.device_code import kernels as kernel_stage
    from cuwheel.device_code.survey import survey
    from cuwheel.report.answer import of_fields
    from cuwheel.report.compare import Compare

    env = environment_folder(env)
    targets = [downloaded_if_pinned(target, platform) for target in (before, after)]
    old, new = (survey(target, env=env) for target in targets)
    named = [kernel_stage.kernels(target, env=env) for target in targets] if kernels else None
    return of_fields(Compare, stage.compare(old, new, kernels=(named[0], named[1]) if named else None))
