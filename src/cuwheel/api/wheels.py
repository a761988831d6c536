"""What makes wheels, changes them (into a new file, or in a way that can be undone) and proves that they work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuwheel.building.request import BuildRequest
from cuwheel.changes.graft.request import GraftRequest
from cuwheel.changes.repair.request import RepairRequest
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.proving.request import PackRequest, VerifyRequest
from cuwheel.support.request_fields import takes_request

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.build import Build
    from cuwheel.report.graft import Graft
    from cuwheel.report.install import Install
    from cuwheel.report.proof import Proof
    from cuwheel.report.repair import Repair
    from cuwheel.report.slim import Slim
    from cuwheel.report.verify import Verify


@takes_request(BuildRequest)
def build(request: BuildRequest) -> Build:
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons."""
    from cuwheel.building import pipeline
    from cuwheel.diagnosis import failed_job
    from cuwheel.report import build_made

    made = pipeline.build(request, dict(os.environ))
    answer = build_made.answer_of(made, [failed_job.failure(each) for each in made.jobs])
    return answer if request.dry_run else build_made.write_beside_wheels(answer, request.output)


def build_editable(request: BuildRequest, env: Path | None = None) -> Install:
    """A project's folder, installed into an environment so that its Python files are used where they are.

    `env`: the folder of the environment; without one, the active one. `install_undo` takes it back.
    """
    from cuwheel.delivery import editable
    from cuwheel.report import install as report

    return report.answer_of(editable.install(request, env, dict(os.environ)), dry_run=request.dry_run)


@takes_request(RepairRequest)
def repair(request: RepairRequest) -> Repair:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them."""
    from cuwheel.changes.repair import wheels as stage
    from cuwheel.report import repair as report

    return report.answer_of(stage.repair(request), request.output, dry_run=request.dry_run)


@takes_request(SlimRequest)
def slim(request: SlimRequest) -> Slim:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load."""
    from cuwheel.changes.slim import targets as stage
    from cuwheel.report import slim as report

    return report.answer_of(stage.slim(request), dry_run=request.dry_run)


def slim_undo(root: Path) -> Slim:
    """Every original of the environment or folder back in its place."""
    from cuwheel.changes.slim import targets as stage
    from cuwheel.report import slim as report

    return report.settled(stage.take_back(root), root, "undo")


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    from cuwheel.changes.slim import targets as stage
    from cuwheel.report import slim as report

    return report.settled(stage.settle(root), root, "commit")


@takes_request(GraftRequest)
def graft(request: GraftRequest) -> Graft:
    """The wheel or library `base` with the device code of `donors` too, where it is proven to fit."""
    from cuwheel.building import donor
    from cuwheel.changes.graft import targets as stage
    from cuwheel.report import graft as report

    with donor.built(request) as complete:
        return report.answer_of(stage.graft(complete), dry_run=request.dry_run, split=request.split)


@takes_request(VerifyRequest)
def verify(request: VerifyRequest) -> Verify:
    """Install each wheel into fresh environments and try it there; `name==version` is downloaded.

    This runs the code of the wheel and of what it requires.
    """
    from cuwheel.proving import wheels as stage
    from cuwheel.report import verify as report

    return report.answer_of(stage.verify(request), dry_run=request.dry_run)


@takes_request(PackRequest)
def verify_pack(request: PackRequest) -> Verify:
    """One file with the wheels and their checks, to be run on a machine that has nothing but Python."""
    from cuwheel.proving import wheels as stage
    from cuwheel.report import verify as report

    return report.answer_of(stage.pack(request))


def verify_read(proof: Path, *wheels: str | Path) -> Proof:
    """The proof that a kit wrote elsewhere; of `wheels`, if they are said, whether it is theirs."""
    from cuwheel.proving import proof as proofs
    from cuwheel.proving import wheels as stage

    return proofs.read_proof(proof, [stage.wheel_on_disk(each) for each in wheels])
