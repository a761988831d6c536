"""`cuwheel record --matrix`: the answer, its document, and the table to paste into an issue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import matrix, replays
from cuwheel.building.recording.matrix import Run
from cuwheel.diagnosis.diagnosis import Cause
from cuwheel.errors import CuwheelError, UnreadableError, UsageError
from cuwheel.machine import profile
from cuwheel.report.answer import to_json
from cuwheel.report.document import Column, Document, Facts, Heading, Paragraph, Row, Table, Verbatim
from cuwheel.support import codec, files, quoting, wording
from cuwheel.support.wording import in_markdown
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.recording.matrix import Plan
    from cuwheel.report.document import Block

_STATE, _TABLE = "matrix.json", "matrix.md"
_MINUTE = 60.0


class Cell(Struct, frozen=True, kw_only=True):
    """`choices`: axis → value. `causes`: what `explain` says of a failure, best first. `again`: to look at it again.

    `compare`: the command that finds what makes it fail, against the nearest configuration that works, or else this
    environment; `difference`: what that found, in a sentence.
    """

    choices: dict[str, str]
    command: tuple[str, ...]
    run: Run | None = None
    causes: tuple[Cause, ...] = ()
    error: str = ""
    again: str = ""
    compare: str = ""
    difference: str = ""


class Matrix(Struct, frozen=True, kw_only=True):
    """`cells`: in the order of the file; `run` is None where it is still to do, as with --dry-run."""

    schema: Literal["cuwheel.matrix/1"] = "cuwheel.matrix/1"
    file: str
    folder: str
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def succeeded(self) -> bool:
        return all(cell.run is None or cell.run.result == "succeeded" for cell in self.cells)


def to_do(plan: Plan, file: str, folder: Path) -> Matrix:
    """Before anything was run."""
    cells = (Cell(choices=each.choices, command=each.command) for each in plan.configurations)
    return Matrix(file=file, folder=str(folder), axes=plan.axes, cells=tuple(cells))


def with_run(answer: Matrix, index: int, run: Run, causes: tuple[Cause, ...], error: str) -> Matrix:
    """`index`: of the cell. `causes`, `error`: why it failed, if it did."""
    again = quoting.here(["cuwheel", "replay", _near(run.record)]) if run.failed_calls else ""
    cells = list(answer.cells)
    cells[index] = replace(cells[index], run=run, causes=causes, error=error, again=again)
    # One that comes later may be nearer to one that failed before.
    return replace(answer, cells=tuple(replace(each, compare=_compare(each, cells)) for each in cells))


def _compare(cell: Cell, cells: Sequence[Cell]) -> str:
    if not cell.run or not cell.run.failed_calls:
        return ""
    good = _nearest(cell, cells)
    words = ["cuwheel", "replay", _near(cell.run.record), "--diff"]
    return quoting.here([*words, _near(good.record)] if good else words)


def _nearest(cell: Cell, cells: Sequence[Cell]) -> Run | None:
    """The run that worked and differs in the fewest choices; None where nothing worked."""
    worked = [(each, each.run) for each in cells if each.run and each.run.result == "succeeded" and each.run.calls]
    found = min(worked, key=lambda pair: len(pair[0].choices.items() ^ cell.choices.items()), default=None)
    return found[1] if found else None


def with_comparisons(answer: Matrix) -> Matrix:
    """What makes each failed, tried out. One that cannot be compared does not stop the others."""
    return replace(answer, cells=tuple(_with_comparison(each, answer.cells) for each in answer.cells))


def _with_comparison(cell: Cell, cells: Sequence[Cell]) -> Cell:
    if not cell.run or not cell.compare:
        return cell
    good = _nearest(cell, cells)
    try:
        made = replays.compare_environments(cell.run.record, good.record if good else None)
    except CuwheelError as error:
        return replace(cell, difference=f"cannot be compared: {error.message}")
    if made.blame and made.blame.verdict in ("found", "unfinished"):
        return replace(cell, difference=made.blame.answer)
    sentence = made.blame.answer if made.blame else "Program, folder, arguments and environment are the same."
    return replace(cell, difference=" ".join((sentence, *(f"{note}." for note in made.chosen.notes))))


def _near(path: str) -> str:
    """From where we are, if that is below."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def begun(answer: Matrix, plan: Plan, *, resume: bool) -> Matrix:
    """With what an earlier run has finished already. Makes the folder."""
    earlier = _earlier(Path(answer.folder), resume=resume)
    cells = zip(plan.configurations, answer.cells, strict=True)
    return replace(answer, cells=tuple(earlier.get(matrix.fingerprint(plan, each), cell) for each, cell in cells))


def finished(answer: Matrix) -> frozenset[str]:
    """Fingerprints of what need not be run."""
    return frozenset(each.run.fingerprint for each in answer.cells if each.run)


def _earlier(folder: Path, *, resume: bool) -> dict[str, Cell]:
    """By fingerprint; none in a new folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            return {}
        if not resume:
            raise UsageError(f"{folder} is not empty", hint="continue it with --resume, or choose another with -o")
        state = folder / _STATE
        before = codec.decode(state.read_bytes(), Matrix) if state.is_file() else None
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    except msgspec.DecodeError:
        before = None  # cut short, or of another kind: everything is run again
    cells = before.cells if before else ()
    return {each.run.fingerprint: each for each in cells if each.run and each.run.result != "not-run"}


def save(answer: Matrix) -> None:
    for name, text in ((_STATE, to_json(answer)), (_TABLE, wording.printable_text(markdown(answer)))):
        files.write(Path(answer.folder, name), text)


def document(answer: Matrix, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(f"{answer.file}: {_count(answer)}")]
    columns = [Column(axis) for axis in answer.axes]
    columns += [Column("result", wrap=False), Column("time", numeric=True), Column("cause")]
    blocks.append(Table(tuple(columns), tuple(_row(answer, each) for each in answer.cells)))
    if verbose or not any(each.run for each in answer.cells):
        lines = (
            (f"  {', '.join(each.choices.values())}:", f"    {quoting.here(each.command)}") for each in answer.cells
        )
        blocks.append(Verbatim(tuple(line for pair in lines for line in pair)))
    failed = [each for each in answer.cells if each.run and each.run.result != "succeeded"]
    for cause in {each.causes[0].id: each.causes[0] for each in failed if each.causes}.values():
        blocks += [Heading(f"{cause.id}  {cause.confidence:.0%}"), Paragraph(f"  {cause.title}")]
        blocks.append(Facts(tuple(Row("fix" if not index else "or", fix) for index, fix in enumerate(cause.fix))))
    again = tuple(f"  {each.again}" for each in failed if each.again)
    if again:
        blocks += [Heading("Again"), Verbatim(again)]
    found = [each for each in failed if each.difference]
    if found:
        blocks += [Heading("What makes the difference"), Facts(tuple(map(_difference, found)))]
    compare = tuple(f"  {each.compare}" for each in failed if each.compare and not each.difference)
    if compare:
        blocks += [Heading("To find what makes the difference (or all of them with --diff)"), Verbatim(compare)]
    if any(each.run for each in answer.cells):
        blocks.append(Paragraph(f"Written to {answer.folder}: matrix.md to paste, matrix.json, and each record."))
    return Document(f"cuwheel record --matrix {answer.file}", tuple(blocks))


def _difference(cell: Cell) -> Row:
    return Row(", ".join(cell.choices.values()) or "the command", cell.difference)


def _count(answer: Matrix) -> str:
    ran = [each.run for each in answer.cells if each.run]
    if not ran:
        return f"{len(answer.cells)} configurations"
    good = sum(run.result == "succeeded" for run in ran)
    return f"{good} of {len(ran)} configurations succeeded"


def _row(answer: Matrix, each: Cell) -> tuple[str, ...]:
    return (*(each.choices.get(axis, "") for axis in answer.axes), _result(each), _time(each), _cause(each))


def _result(each: Cell) -> str:
    run = each.run
    if run is None:
        return "to do"
    if run.result == "failed" and run.status is not None:
        return f"failed ({run.status})" if run.status >= 0 else f"failed (signal {-run.status})"
    return f"{run.result}, {run.cache_hits} cached" if run.cache_hits else run.result


def _time(each: Cell) -> str:
    if each.run is None or not each.run.seconds:
        return ""
    minutes, seconds = divmod(each.run.seconds, _MINUTE)
    return f"{minutes:.0f} min {seconds:02.0f} s" if minutes else f"{seconds:.1f} s"


def _cause(each: Cell) -> str:
    if each.causes:
        first = each.causes[0]
        return f"{first.id}: {first.evidence[0].text}" if first.evidence else first.id
    return each.error or (each.run.problem if each.run else "")


def markdown(answer: Matrix) -> str:
    """A table to paste into an issue, without the names of people's home folders."""
    return "\n".join(_lines(profile.scrub(answer, home="", names=()))) + "\n"


def _lines(answer: Matrix) -> Iterator[str]:
    yield from (f"# {in_markdown(answer.file)}: {_count(answer)}", "", f"By cuwheel {__version__}.", "")
    titles = [*answer.axes, "result", "time", "cause"]
    yield "| " + " | ".join(map(in_markdown, titles)) + " |"
    yield "|" + " --- |" * len(titles)
    for each in answer.cells:
        yield "| " + " | ".join(map(in_markdown, _row(answer, each))) + " |"
    for each in answer.cells:
        if each.run and each.run.result != "succeeded":
            yield from ("", f"## {in_markdown(', '.join(each.choices.values()))}", "")
            yield f"    {wording.printable_line(quoting.here(each.command))}"
            yield ""
            yield from (f"- **{cause.id}** ({cause.confidence:.0%}): {cause.title}" for cause in each.causes[:3])
            yield from (f"- fix: {fix}" for cause in each.causes[:1] for fix in cause.fix)
            if each.difference:
                yield f"- {in_markdown(each.difference)}"
            if not each.causes:
                yield f"- {in_markdown(_cause(each)) or 'no known cause'}"
