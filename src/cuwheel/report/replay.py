"""`cuwheel replay`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.recording import replays, words
from cuwheel.building.recording.calls import CallState
from cuwheel.building.recording.culprits import Blame
from cuwheel.building.recording.differences import Differences, VariableDifference
from cuwheel.building.recording.rerun import Masked
from cuwheel.report.document import Column, Document, Facts, Heading, Paragraph, Row, Table, Verbatim

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.recording.replays import Chosen, Compared, Ran
    from cuwheel.report.document import Block

Action: TypeAlias = Literal["run", "print", "list", "diff"]
_SHOWN = 4  # elements of a list, without --verbose
_NAMED = 8  # variables by their names alone
_NARROW = 100  # of a value, without --verbose


class CallLine(Struct, frozen=True, kw_only=True):
    """A call in a line; `what`: the program and what it was given, shortly."""

    number: int
    what: str
    state: CallState
    status: int | None
    seconds: float | None


class Written(Struct, frozen=True, kw_only=True):
    """`path`: as the call names it, `now`: where it went; the same but for --scratch."""

    path: str
    now: str


class Replay(Struct, frozen=True, kw_only=True):
    """`exit_status`: the call's own, as a shell has it; None where nothing was run.

    `stdout`, `stderr`: what it printed, where that was not passed on. `lines`: to paste. `written`: what it writes.
    `masked`: variables whose values the record does not hold. `restored`: response files taken from the record.
    """

    schema: Literal["cuwheel.replay/1"] = "cuwheel.replay/1"
    action: Action
    record: str
    calls: tuple[CallLine, ...] = ()
    call: int | None = None
    command: tuple[str, ...] = ()
    directory: str = ""
    lines: tuple[str, ...] = ()
    masked: tuple[Masked, ...] = ()
    restored: tuple[str, ...] = ()
    written: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()
    exit_status: int | None = None
    seconds: float | None = None
    stdout: str | None = None
    stderr: str | None = None
    differences: Differences | None = None
    blame: Blame | None = None

    @property
    def succeeded(self) -> bool:
        """With --diff: whether something is found to make the difference, or without runs to differ."""
        if self.action == "diff":
            found = self.blame.verdict in ("found", "unfinished") if self.blame else None
            return bool(self.differences and self.differences.any) if found is None else found
        return not self.exit_status


def listed(record: Record) -> Replay:
    return Replay(action="list", record=record.folder, calls=tuple(map(_line, record.calls)))


def printed(chosen: Chosen, lines: tuple[str, ...]) -> Replay:
    return replace(_about(chosen), action="print", lines=lines)


def ran(made: Ran) -> Replay:
    return replace(
        _about(made.chosen),
        command=made.command,
        restored=made.restored,
        written=tuple(Written(path=path, now=now) for path, now in made.written),
        exit_status=replays.shell_status(made.status),
        seconds=made.seconds,
        stdout=made.stdout,
        stderr=made.stderr,
    )


def compared(made: Compared) -> Replay:
    return replace(_about(made.chosen), action="diff", differences=made.differences, blame=made.blame)


def _about(chosen: Chosen) -> Replay:
    situation = chosen.prepared.situation
    return Replay(
        action="run",
        record=chosen.record.folder,
        call=chosen.call.number,
        calls=(_line(chosen.call),),
        command=(situation.program, *situation.words),
        directory=situation.cwd,
        masked=chosen.prepared.masked,
        notes=chosen.notes,
    )


def _line(call: Call) -> CallLine:
    seconds = round(call.ended - call.began, 3) if call.ended is not None else None
    return CallLine(
        number=call.number,
        what=words.label(call.name, call.words),
        state=call.state,
        status=call.status,
        seconds=seconds,
    )


def document(answer: Replay, *, verbose: bool) -> Document:
    return Document(f"cuwheel replay {answer.record}", tuple(_BLOCKS[answer.action](answer, verbose=verbose)))


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
    columns = (Column("", numeric=True), Column("ended", wrap=False), Column("seconds", numeric=True), Column("call"))
    yield Table(columns, tuple(_row(each) for each in answer.calls))


def _row(line: CallLine) -> tuple[str, str, str, str]:
    ended = f"status {replays.status_words(line.status)}" if line.state == "failed" else line.state
    return f":{line.number}", ended, f"{line.seconds:.1f}" if line.seconds is not None else "", line.what


def _diff(answer: Replay, *, verbose: bool) -> Iterator[Block]:
    found, blame = answer.differences, answer.blame
    if blame:
        yield Heading("Answer")
        yield Paragraph(f"  {blame.answer}")
        yield Facts(tuple(_blamed(blame, found)))
    if found is None:
        return
    yield Heading(f"What differs: {found.left}, {found.right}")
    blamed = {each.name for each in blame.culprits} if blame else set()
    rows = tuple(_variable_rows(found, blamed, verbose=verbose))
    yield Facts(rows) if rows else Paragraph("  nothing: program, folder, arguments and environment are the same")
    hidden = [each.name for each in found.variables if each.weight != "steers" and each.name not in blamed]
    if hidden and not verbose:
        names = ", ".join(hidden[:_NAMED]) + (", …" if len(hidden) > _NAMED else "")
        yield Facts((Row(f"{len(hidden)} more", f"not known to affect compilers (--verbose): {names}"),))
    for each in answer.masked:
        taken = "taken from this environment" if each.restored else "not set"
        yield Paragraph(f"  {each.name} is masked in the record: {taken}")
    yield from (Paragraph(f"  {note}") for note in answer.notes)


def _blamed(blame: Blame, found: Differences | None) -> Iterator[Row]:
    for each in blame.culprits:
        if each.origin:
            yield Row(each.name, f"is set by {each.origin}")
    names = (found.left, found.right) if found else ("left", "right")
    for name, outcome in zip(names, (blame.left, blame.right), strict=True):
        status = "out of time" if outcome.status is None else f"status {replays.status_words(outcome.status)}"
        yield Row(name, "works" if outcome.works else f"fails: {outcome.error or status}")
    yield Row("runs", str(blame.runs))


def _variable_rows(found: Differences, blamed: set[str], *, verbose: bool) -> Iterator[Row]:
    if found.program:
        yield Row("program", f"{found.program.left}\n{found.program.right}")
    for name, pair in found.versions.items():
        yield Row(name, f"{pair.left}\n{pair.right}")
    if found.directory:
        yield Row("directory", f"{found.directory.left}\n{found.directory.right}")
    for argument in found.arguments:
        name = argument.option or "input"
        lines = [f"- {name} {value}".rstrip() for value in argument.only_left]
        lines += [f"+ {name} {value}".rstrip() for value in argument.only_right]
        yield Row(argument.meaning, "\n".join(lines) or f"{name}: the same in another order")
    for variable in found.variables:
        if verbose or variable.weight == "steers" or variable.name in blamed:
            yield Row(variable.name, "\n".join(_lines(variable, verbose=verbose)), origin=variable.origin)


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
