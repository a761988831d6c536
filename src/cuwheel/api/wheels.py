"""What makes wheels, and changes them: every one leaves a new file, or can be undone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuwheel.building.request import BuildRequest
from cuwheel.grafting.request import GraftRequest
from cuwheel.repairing.request import RepairRequest
from cuwheel.request_or_fields import takes
from cuwheel.slimming.request import SlimRequest

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.build import Build
    from cuwheel.report.graft import Graft
    from cuwheel.report.repair import Repair
    from cuwheel.report.slim import Slim


@takes(BuildRequest)
def build(request: BuildRequest) -> Build:
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons."""
    from cuwheel.building import pipeline
    from cuwheel.diagnose import failed_job
    from cuwheel.report import build_files, build_made

    made = pipeline.build(request, dict(os.environ))
    answer = build_made.answer_of(made, [failed_job.failure(each) for each in made.jobs])
    return answer if request.dry_run else build_files.write(answer, request.output)


@takes(RepairRequest)
def repair(request: RepairRequest) -> Repair:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them."""
    from cuwheel.repairing import wheels as stage
    from cuwheel.report import repair as report

    return report.answer_of(stage.repair(request), request.output, dry_run=request.dry_run)


@takes(SlimRequest)
def slim(request: SlimRequest) -> Slim:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load."""
    from cuwheel.report import slim as report
    from cuwheel.slimming import targets as stage

    return report.answer_of(stage.slim(request), dry_run=request.dry_run)


def slim_undo(root: Path) -> Slim:
    """Every original of the environment or folder back in its place."""
    from cuwheel.report import slim as report
    from cuwheel.slimming import targets as stage

    return report.settled(stage.take_back(root), root, "undo")


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    from cuwheel.report import slim as report
    from cuwheel.slimming import targets as stage

    return report.settled(stage.settle(root), root, "commit")


@takes(GraftRequest)
def graft(request: GraftRequest) -> Graft:
    """The wheel or library `base` with the device code of `donors` too, where it is proven to fit."""
    from cuwheel.building import donor
    from cuwheel.grafting import targets as stage
    from cuwheel.report import graft as report

    with donor.built(request) as complete:
        return report.answer_of(stage.graft(complete), dry_run=request.dry_run, split=request.split)
