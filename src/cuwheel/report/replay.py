"""The document of `cuwheel record replay`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.building.recording.calls import status_words
from cuwheel.building.recording.replays import CallLine, Replay
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Facts, Row, figure, short, table
from cuwheel_core.support import printable

if TYPE_CHECKING:
    from cuwheel.building.recording.culprits import Explanation
    from cuwheel.building.recording.differences import Differences, VariableDifference

__all__ = ["Replay", "document"]

_SHOWN = 4  # elements of a list, without --verbose
_NAMED = 8  # variables by their names alone
_NARROW = 100  # of a value, without --verbose


def document(answer: Replay, *, verbose: bool) -> Document:
    return Document(f"cuwheel record replay {answer.record}", tuple(_BLOCKS[answer.action](answer, verbose=verbose)))


def _run(answer: Replay, *, verbose: bool) -> Iterator[Block]:  # noqa: ARG001 - one signature
    """What it printed went out as it came: nothing is added to it."""
    if answer.stdout is not None:
        yield Verbatim(tuple((answer.stdout + (answer.stderr or "")).splitlines()))


def _print(answer: Replay, *, verbose: bool) -> Iterator[Block]:  # noqa: ARG001
    yield Verbatim(answer.lines)


def _list(answer: Replay, *, verbose: bool) -> Iterator[Block]:  # noqa: ARG001
    if not answer.calls:
        yield Paragraph("  The record has no compiler calls.")
        return
    yield table((figure(""), short("ended"), figure("seconds"), "call"), map(_row, answer.calls))


def _row(line: CallLine) -> tuple[str, str, str, str]:
    ended = f"status {status_words(line.status)}" if line.state == "failed" else line.state
    return f":{line.number}", ended, f"{line.seconds:.1f}" if line.seconds is not None else "", line.what


def _diff(answer: Replay, *, verbose: bool) -> Iterator[Block]:
    found, blame = answer.differences, answer.blame
    if blame:
        yield Heading(blame.answer)
        yield Facts(tuple(_blamed(blame, found)))
    if found is None:
        return
    blamed = {each.name for each in blame.culprits} if blame else set()
    rows = tuple(_variable_rows(found, blamed, verbose=verbose))
    if rows:
        yield Heading(f"What differs: {found.left}, {found.right}")
        yield Facts(rows)
    else:
        yield Heading(f"Nothing differs between {found.left} and {found.right}")
        yield Paragraph("  program, folder, arguments and environment are the same")
    hidden = [each.name for each in found.variables if each.weight != "steers" and each.name not in blamed]
    if hidden and not verbose:
        names = ", ".join(hidden[:_NAMED]) + (", …" if len(hidden) > _NAMED else "")
        yield Facts((Row(f"{len(hidden)} more", f"not known to affect compilers (--verbose): {names}"),))
    for each in answer.masked:
        taken = "taken from this environment" if each.restored else "not set"
        yield Paragraph(f"  {each.name} is masked in the record: {taken}")
    yield from (Paragraph(f"  {note}") for note in answer.notes)


def _blamed(blame: Explanation, found: Differences | None) -> Iterator[Row]:
    for each in blame.culprits:
        if each.origin:
            yield Row(each.name, f"is set by {each.origin}")
    names = (found.left, found.right) if found else ("left", "right")
    for name, outcome in zip(names, (blame.left, blame.right), strict=True):
        status = "out of time" if outcome.status is None else f"status {status_words(outcome.status)}"
        yield Row(name, "works" if outcome.works else f"fails: {outcome.error or status}")
    yield Row("runs", str(blame.runs))


def _variable_rows(found: Differences, blamed: set[str], *, verbose: bool) -> Iterator[Row]:
    if found.program:
        yield Row("program", printable.Lines((found.program.left, found.program.right)))
    for name, pair in found.versions.items():
        yield Row(name, printable.Lines((str(pair.left), str(pair.right))))
    if found.directory:
        yield Row("directory", printable.Lines((found.directory.left, found.directory.right)))
    for argument in found.arguments:
        name = argument.option or "input"
        lines = [f"- {name} {value}".rstrip() for value in argument.only_left]
        lines += [f"+ {name} {value}".rstrip() for value in argument.only_right]
        yield Row(argument.meaning, printable.Lines(lines) or f"{name}: the same in another order")
    for variable in found.variables:
        if verbose or variable.weight == "steers" or variable.name in blamed:
            yield Row(variable.name, printable.Lines(_lines(variable, verbose=verbose)), origin=variable.origin)


def _lines(variable: VariableDifference, *, verbose: bool) -> Iterator[str]:
    if variable.reordered:
        yield "the same folders in another order"
    elif variable.only_left or variable.only_right:
        yield from _some("-", variable.only_left or _absent(variable.left), verbose=verbose)
        yield from _some("+", variable.only_right or _absent(variable.right), verbose=verbose)
    else:
        yield from (_side("-", variable.left, verbose=verbose), _side("+", variable.right, verbose=verbose))


def _absent(value: str | None) -> tuple[str, ...]:
    return ("(not set)",) if value is None else ()


def _some(sign: str, elements: Sequence[str], *, verbose: bool) -> Iterator[str]:
    shown = elements if verbose else elements[:_SHOWN]
    yield from (f"{sign} {each}" for each in shown)
    if len(shown) < len(elements):
        yield f"{sign} and {len(elements) - len(shown)} more"


def _side(sign: str, value: str | None, *, verbose: bool) -> str:
    if value is None:
        return f"{sign} (not set)"
    if not value:
        return f"{sign} (empty)"
    return f"{sign} {value if verbose or len(value) <= _NARROW else value[: _NARROW - 1] + '…'}"


_BLOCKS = {"run": _run, "print": _print, "list": _list, "diff": _diff}
