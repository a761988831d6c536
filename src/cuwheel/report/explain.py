"""`cuwheel explain`: the document of its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.diagnosis.text import HALF
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Facts, Row, short, table
from cuwheel.support import quoting
from cuwheel_core.support import printable, wording

if TYPE_CHECKING:
    from cuwheel.diagnosis.answer import Explain
    from cuwheel.diagnosis.case import RecordedCall
    from cuwheel.support.cause import Cause

_CAUSES = 3
_EVIDENCE = 1  # lines of the log that prove a cause; --verbose shows all
_FIXES = 2
_LONGEST_PROOF = 140
_PLACE = re.compile(r"^(?:[A-Za-z]:)?[\\/][^\s:]*[\\/](?=[^\s:\\/]+[:(]\d)")
_SHOWN_LINES = 12  # lines of what a call printed
_LESS_LIKELY = 0.5  # of the first one's confidence: less likely causes are shown only with --verbose


def document(answer: Explain, *, verbose: bool) -> Document:
    if answer.known:
        return _listing(answer, verbose=verbose)
    blocks: list[Block] = []
    for cause in _shown_causes(answer, verbose=verbose):
        blocks += [Heading(cause.title[:1].upper() + cause.title[1:]), *_proof_and_fixes(cause, verbose=verbose)]
    blocks += _consequences(answer)
    blocks += [] if verbose else _instead(answer)
    if not answer.causes:
        blocks += [Heading("No known cause"), Paragraph(_unknown(answer))]
        if answer.understood:
            heard = tuple(Row(each.speaker, _clipped(each.text), f"line {each.line}") for each in answer.understood)
            blocks += [Heading("What was understood"), Facts(heard)]
    if answer.similar and (verbose or not answer.understood):
        blocks += [
            Heading("Causes with similar words"),
            Facts(tuple(Row(each.id, each.title) for each in answer.similar)),
        ]
    if answer.call:
        blocks += [Heading(f"Call {answer.call.number} of {answer.call.record}"), Facts(tuple(_of_call(answer.call)))]
    if answer.unread:
        blocks.append(Paragraph(_partly_read(answer)))
    # What helps here stands above; the line of the cause says how to see the rest.
    stock = bool(answer.causes and answer.causes[0].fix and not answer.verdicts)
    if answer.ways_out and (verbose or not stock):
        blocks += [Heading("Ways out"), Facts(tuple(Row(way.title, way.text) for way in answer.ways_out))]
    if verbose and answer.versions:
        rows = tuple(Row(each.name, each.value, f"line {each.line}" if each.line else "") for each in answer.versions)
        blocks += [Heading("Found in the log"), Facts(rows)]
    return Document(f"cuwheel explain {answer.log}", tuple(blocks))


def _proof_and_fixes(cause: Cause, *, verbose: bool) -> Iterator[Block]:
    """The line that proves it, what helps, and commands on lines of their own, to copy."""
    lines = cause.evidence if verbose else cause.evidence[:_EVIDENCE]
    width = max(len("cause"), *(len(f"line {each.line}") for each in lines), 0)
    rows = [Row(f"line {each.line}".ljust(width), each.text if verbose else _clipped(each.text)) for each in lines]
    rows += [Row("when".ljust(width), cause.when)] if cause.when else []
    mends = False
    for fix in cause.fixes if verbose else cause.fixes[:_FIXES]:
        looks = fix.changes == ("nothing",)
        name = "see" if looks else "or" if mends else "fix"
        mends = mends or not looks
        rows.append(Row(name.ljust(width), fix.text))
        if fix.commands:
            yield Facts(tuple(rows))
            yield Verbatim(
                tuple(f"{'':{width + 6}}{quoting.command_of_fix(words, fix.shell)}" for words in fix.commands)
            )
            rows = []
    more = "" if verbose else "; other ways: --verbose"
    yield Facts((*rows, Row("cause".ljust(width), f"{cause.id} ({wording.percent(cause.confidence)}){more}")))


def _clipped(text: str) -> str:
    """A line of the log without the folders of the file that it is about, and not more than two lines of it."""
    text = _PLACE.sub("", text)
    return text if len(text) <= _LONGEST_PROOF else f"{text[:_LONGEST_PROOF].rpartition(' ')[0]} …"


def _shown_causes(answer: Explain, *, verbose: bool) -> tuple[Cause, ...]:
    """What may well be it; the also-rans only when asked for."""
    if verbose or not answer.causes:
        return answer.causes
    first, *others = answer.causes
    least = first.confidence * _LESS_LIKELY
    others = [each for each in others if first.when or not each.when]
    return (first, *(each for each in others[: _CAUSES - 1] if each.confidence >= least and each.follows != first.id))


def _consequences(answer: Explain) -> Iterator[Block]:
    """What followed from the first cause, in the order of the log."""
    first = answer.causes[0].id if answer.causes else ""
    followed = [each for each in answer.causes[1:] if first and each.follows == first]
    if followed:
        ordered = sorted(followed, key=lambda cause: cause.evidence[0].line)
        yield Heading("What followed from it")
        yield Facts(tuple(Row(each.id, each.title, f"line {each.evidence[0].line}") for each in ordered))


def _instead(answer: Explain) -> Iterator[Block]:
    """What it may be instead of the first cause, and what to look at: one line each."""
    if (others := [each for each in answer.causes[1:] if each.when]) and not answer.causes[0].when:
        yield Heading("If that is not it")
        yield Facts(tuple(Row(each.id, f"when {each.when}") for each in others))


def _of_call(call: RecordedCall) -> Iterator[Row]:
    yield Row("command", call.command, command=True)
    yield Row("in", call.directory)
    yield Row("ended", call.ended)
    for each in call.settings:
        if each.steers and (each.changed or each.origin):
            value = "(removed)" if each.value is None else each.value or "(empty)"
            yield Row(each.name, value, each.origin or "changed by the build")
    again = quoting.here(["cuwheel", "record", "replay", f"{call.record}:{call.number}"])
    yield Row("again", again, "record diff: what differs from this shell", command=True)


def _partly_read(answer: Explain) -> str:
    searched = f"  Only the first and the last {wording.size(HALF)} were searched"
    return printable.Lines(
        (
            f"{searched}, not the {answer.unread:,} lines between.",
            "  For those: grep -i -A 20 error LOG | cuwheel explain",
        )
    )


def _unknown(answer: Explain) -> str:
    if answer.call and answer.call.output:
        about = f"  What call {answer.call.number} printed matches no known cause (--list shows them):"
        return printable.Lines((about, *(f"  | {line}" for line in answer.call.output[-_SHOWN_LINES:])))
    if not answer.lines:
        return (
            f"  There is nothing to explain in {answer.log}: it is empty, not text, or a record without a failed call."
        )
    if answer.prose:
        looks = f"  {answer.log} looks like notes, not like the output of a program: {answer.prose} of its"
        hint = "  Give the log itself, alone or in a code block (```)."
        return printable.Lines((f"{looks} {answer.lines} lines are prose.", hint))
    lines = "the one line" if answer.lines == 1 else f"the {answer.lines} lines"
    none = f"  Nothing in {lines} of {answer.log} matches a cause that cuwheel knows (--list shows them)."
    return printable.Lines((none, "  The first error is the one that counts: make sure the log contains it."))


def _listing(answer: Explain, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    for family in dict.fromkeys(each.family for each in answer.known):
        rows = ((each.id, each.why if verbose else each.title) for each in answer.known if each.family == family)
        blocks += [Heading(family), table((short("cause"), "means"), rows)]
    return Document("cuwheel explain --list", tuple(blocks))
