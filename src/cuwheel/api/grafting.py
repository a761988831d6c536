"""The verb that adds architectures to what was built before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.grafting import targets as stage
from cuwheel.grafting.request import GraftRequest
from cuwheel.report import graft as report

if TYPE_CHECKING:
    from cuwheel.report.graft import Graft


@verb.of(GraftRequest)
def graft(request: GraftRequest) -> Graft:
    """The wheel or library `base` with the device code of `donors` too, where it is proven to fit."""
    return report.answer_of(stage.graft(request), dry_run=request.dry_run, split=request.split)
