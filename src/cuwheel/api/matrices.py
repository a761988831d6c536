"""A matrix of commands, each recorded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwheel.diagnose.values import Cause
    from cuwheel.recording.matrix import Configuration
    from cuwheel.recording.matrix_run import Run
    from cuwheel.recording.orders import Wish
    from cuwheel.report.matrix import Cell, Matrix

_FOLDER = "cuwheel-matrix"
_STATE = "matrix.json"
_TABLE = "matrix.md"


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
    from cuwheel import log
    from cuwheel.recording import matrix, matrix_run
    from cuwheel.report.matrix import Matrix, cell

    plan = matrix.load(Path(file))
    folder = (output or Path(_FOLDER)).absolute()
    cells = [cell(each) for each in plan.configurations]
    answer = Matrix(file=str(file), folder=str(folder), axes=plan.axes, cells=tuple(cells))
    if dry_run:
        return answer
    done = _begun(folder, resume=resume)
    with log.progress("configurations", len(plan.configurations)) as progress:
        for index, each in enumerate(plan.configurations):
            progress.tell(each.name)
            to = folder / matrix_run.folder_name(plan, each)
            before = done.get(matrix_run.fingerprint(plan, each))
            cells[index] = before or _cell(each, matrix_run.run(plan, each, to, os.environ, wish))
            log.info("%s: %s", each.name, _told(cells[index]))
            progress.advance()
            answer = replace(answer, cells=tuple(cells))
            _save(folder, answer)
    return answer


def _told(cell: Cell) -> str:
    run = cell.run
    if run is None:
        return "to do"
    return f"{run.result} after {run.seconds:.1f} s" if run.result != "not-run" else f"not run: {run.problem}"


def _cell(configuration: Configuration, run: Run) -> Cell:
    from cuwheel.report.matrix import cell

    causes, error = _causes(run) if run.result in ("failed", "timeout") else ((), "")
    return cell(configuration, run, causes, error)


def _causes(run: Run) -> tuple[tuple[Cause, ...], str]:
    """By the call that failed; where none did, by what the command printed. And the first error."""
    from cuwheel.api.diagnosis import explain
    from cuwheel.recording import again

    found = explain(Path(run.record))
    printed = Path(run.log).read_bytes()[-(1 << 20) :].decode(errors="replace") if Path(run.log).is_file() else ""
    if not found.causes and Path(run.log).is_file():
        call, found = found.call, explain(Path(run.log))
        if call and call.output:
            printed = "\n".join(call.output)
    return found.causes, again.first_error(printed)


def _begun(folder: Path, *, resume: bool) -> dict[str, Cell]:
    """Fingerprint → what is done already."""
    import msgspec

    from cuwheel.errors import UnreadableError, UsageError
    from cuwheel.report.matrix import Matrix

    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return {}
        if not resume:
            raise UsageError(f"{folder} is not empty", hint="--resume goes on with it; -o names another")
        state = folder / _STATE
        before = msgspec.json.decode(state.read_bytes(), type=Matrix) if state.is_file() else None
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        before = None  # cut short, or of another kind: everything is run again
    cells = before.cells if before else ()
    return {each.run.fingerprint: each for each in cells if each.run and each.run.result != "not-run"}


def _save(folder: Path, answer: Matrix) -> None:
    from cuwheel import files, printable
    from cuwheel.report.answer import to_json
    from cuwheel.report.matrix import markdown

    for name, text in ((_STATE, to_json(answer)), (_TABLE, printable.text(markdown(answer)))):
        files.write(folder / name, text)
