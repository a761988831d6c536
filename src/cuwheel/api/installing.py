"""From an index to the machine that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.delivery.request import FindRequest, InstallRequest

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.report.find import Find
    from cuwheel.report.install import Install


@verb.of(FindRequest)
def find(request: FindRequest) -> Find:
    """Every file of a package that the user's indexes have, and which of them runs on machines, the best first."""
    from cuwheel.delivery import best_candidate
    from cuwheel.report import find as report

    return report.answer_of(best_candidate.find(request))


@verb.of(InstallRequest)
def install(request: InstallRequest) -> Install:
    """The wheel that `find` puts first, installed and imported; the environment is put back where that fails."""
    from cuwheel.delivery import installing
    from cuwheel.report import install as report

    return report.answer_of(installing.install(request), dry_run=request.dry_run)


def install_undo(env: Path | None = None) -> Install:
    """The environment as it was before the last install."""
    from cuwheel.delivery import installing
    from cuwheel.report import install as report

    return report.answer_of(installing.undo(env))
