"""From an index to the machine that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.delivery import best_candidate
from cuwheel.delivery.request import FindRequest
from cuwheel.report import find as report

if TYPE_CHECKING:
    from cuwheel.report.find import Find


@verb.of(FindRequest)
def find(request: FindRequest) -> Find:
    """Every file of a package that the user's indexes have, and which of them runs on machines, the best first."""
    return report.answer_of(best_candidate.find(request))
