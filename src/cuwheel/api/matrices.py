"""A matrix of commands, each recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel import log
from cuwheel.diagnose import failed_run
from cuwheel.recording import matrix, matrix_run
from cuwheel.report import matrix as report

if TYPE_CHECKING:
    from cuwheel.recording.instructions import Wish
    from cuwheel.report.matrix import Matrix

_FOLDER = "cuwheel-matrix"


def record_matrix(
    file: str | Path,
    *,
    output: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    wish: Wish | None = None,
) -> Matrix:
    """Runs every configuration of a matrix, each recorded into its own folder below `output` (`cuwheel-matrix`).

    What fails does not stop the rest. `resume`: what an earlier run finished, with the same settings, is taken over.
    """
    plan = matrix.load(Path(file))
    folder = (output or Path(_FOLDER)).absolute()
    cells = [report.cell(each) for each in plan.configurations]
    answer = report.Matrix(file=str(file), folder=str(folder), axes=plan.axes, cells=tuple(cells))
    if dry_run:
        return answer
    done = report.begun(folder, resume=resume)
    with log.progress("configurations", len(plan.configurations)) as progress:
        for index, each in enumerate(plan.configurations):
            progress.show(each.name)
            cell = done.get(matrix_run.fingerprint(plan, each))
            if cell is None:
                run = matrix_run.run(plan, each, folder / matrix_run.folder_name(plan, each), os.environ, wish)
                cell = report.cell(each, run, *failed_run.causes(run))
            log.info("%s: %s", each.name, cell.outcome)
            progress.advance()
            cells[index] = cell
            answer = replace(answer, cells=tuple(cells))
            report.save(folder, answer)
    return answer
