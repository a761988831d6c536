"""From a source to the wheels that were asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.building import pipeline
from cuwheel.building.request import BuildRequest
from cuwheel.diagnose import failed_job
from cuwheel.report import build_files, build_made

if TYPE_CHECKING:
    from cuwheel.report.build import Build


@verb.of(BuildRequest)
def build(request: BuildRequest) -> Build:
    """Wheels of a source folder, an sdist or `name==version`, for these machines, CUDA versions and Pythons."""
    made = pipeline.build(request, dict(os.environ))
    answer = build_made.answer_of(made, [failed_job.failure(each) for each in made.jobs])
    return answer if request.dry_run else build_files.write(answer, request.output)
