"""The verb that adds architectures to what was built before."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.errors import MalformedError
from cuwheel.grafting import missing
from cuwheel.grafting import targets as stage
from cuwheel.grafting.request import GraftRequest
from cuwheel.inspection import pinned
from cuwheel.report import graft as report

if TYPE_CHECKING:
    from cuwheel.report.graft import Graft


@verb.of(GraftRequest)
def graft(request: GraftRequest) -> Graft:
    """The wheel or library `base` with the device code of `donors` too, where it is proven to fit."""
    if not request.add:
        return report.answer_of(stage.graft(request), dry_run=request.dry_run, split=request.split)
    with tempfile.TemporaryDirectory(prefix="cuwheel-graft-") as folder:
        donor = _built(request, Path(folder))
        plain = dataclasses.replace(request, donors=[donor], add=(), source=None, cuda=None)  # noqa: TID251 - a request
        return report.answer_of(stage.graft(plain), dry_run=request.dry_run, split=False)


def _built(request: GraftRequest, folder: Path) -> Path:
    """A wheel of the missing architectures and the witness, configured as the base was."""
    from cuwheel.building import pipeline
    from cuwheel.building.request import BuildRequest

    base = Path(pinned.on_disk(request.base, request.platform))
    wanted = missing.of(base, tuple(request.add), request.cuda)
    asked = BuildRequest(
        request.source or ".",
        machines=[str(each.capability) for each in wanted.listed],
        cuda=[wanted.cuda],
        settings={"plan": {"native": True}, "naming": "none", "repair": {"enabled": False}},
        only=[str(each) for each in wanted.compiled],
        output=folder,
    )
    made = pipeline.build(asked, os.environ)
    for each in made.jobs:
        if each.wheel and each.outcome in ("built", "resumed"):
            return each.wheel.path
    job = made.jobs[0]
    problem = job.problem.what if job.problem else "; ".join(each.message for each in job.findings)
    raise MalformedError(str(request.source), f"could not be built for {', '.join(wanted.compiled)}: {problem}")
