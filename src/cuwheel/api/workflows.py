"""The verb that writes workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery.workflows import rendering, watching, writing
from cuwheel.delivery.workflows.request import CiRequest
from cuwheel.report import ci as report
from cuwheel.support.request_fields import takes_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.report.ci import Ci


@takes_request(CiRequest)
def ci(request: CiRequest) -> Ci:
    """The workflow of a project, from its configuration; with `write` it is made or renewed."""
    return report.of_workflow(writing.workflow(request), "write")


def ci_check(request: CiRequest) -> Ci:
    """What the workflow that is there does otherwise than the one that would be written, and traps in it."""
    return report.of_workflow(writing.check(request), "check")


def ci_matrix(plan: Path, *, cpus: Sequence[str] = ("x86_64",), windows: bool = False, image: str = "") -> Ci:
    """The jobs of a workflow's matrix, from the file that `cuwheel build --dry-run --json` printed.

    `image`: the container of each job on Linux; `{cuda}` and `{cpu}` in it stand for those of the job.
    """
    return report.of_rows(rendering.matrix_rows(plan, cpus, windows=windows, image=image))


def ci_watch(upstream: str, *, built: str, name: str = "") -> Ci:
    """Whether a package, or a git repository, has a release that is later than what was built.

    `built`: an index, at an address or in a folder, or a version. `name`: of the package there, if it is another.
    """
    return report.of_watched(watching.watch(upstream, built, name))
