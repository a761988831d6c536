"""The document of `cuwheel record`. It goes to stderr, beside the command's own output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cuwheel.building.recording.calls import REPORT_FILE, CallSummary, FileTime, Share, Summary, status_words
from cuwheel.building.recording.command import Failure, LastWords, Reason, Recorded
from cuwheel.report import replay
from cuwheel.report.document import Block, Document, Heading, Paragraph, Verbatim
from cuwheel.report.tables import Amount, Facts, Row, Table, figure, table
from cuwheel.support import files, log
from cuwheel.support.answer import to_json
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import wording
from cuwheel_core.support.wording import a_few, size

__all__ = ["Recorded", "document"]

_ROWS = 10
_LINES = 25
_MINUTE = 60.0
_WAYS = {
    "watch": "watching every process of the command",
    "path": "stand-ins on PATH and in CUDA's variables: calls by other paths were not seen",
}


def save(answer: Recorded, folder: Path) -> Recorded:
    """The answer beside what was recorded, where that can be written."""
    try:
        files.write(folder / REPORT_FILE, to_json(answer))
    except UnreadableError as error:
        log.debug("%s", error.message)
    return answer


def document(answer: Recorded, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    if answer.failure:
        blocks += _failure(answer, answer.failure, verbose=verbose)
    elif answer.exit_status:
        ended = status_words(answer.status) if answer.status > 0 else answer.exit_status
        culprit = "no compiler call made it stop" if answer.summary.failed else "no compiler call failed"
        blocks.append(Heading(f"The command ended with {ended}, and {culprit}"))
    if answer.last_words:
        blocks += _last_words_shown(answer.last_words, after_call=bool(answer.failure), verbose=verbose)
    blocks += _summary(answer, verbose=verbose)
    return Document("cuwheel record", tuple(blocks))


def _failure(answer: Recorded, failure: Failure, *, verbose: bool) -> Iterator[Block]:
    went_on = "" if answer.exit_status else ", and the build went on"
    yield Heading(f"Call {failure.number} {_end(failure)}{went_on}")
    yield Facts(tuple(_failure_rows(failure, compared=answer.comparison is not None, verbose=verbose)))
    lines = failure.output.splitlines()
    if lines:
        first = 0 if verbose else _first_error(lines)
        shown = lines if verbose else lines[first : first + _LINES]
        part = f" (lines {first + 1}–{first + len(shown)} of {len(lines)})" if len(shown) < len(lines) else ""
        yield Heading(f"Its output{part}")
        yield Verbatim(tuple(f"  {line}" for line in shown))
    elif failure.state != "not-started":
        yield Paragraph("  It printed nothing.")
    yield from _causes(failure.causes, verbose=verbose)
    if answer.comparison:
        yield from replay.document(answer.comparison, verbose=verbose).blocks


def _last_words_shown(words: LastWords, *, after_call: bool, verbose: bool) -> Iterator[Block]:
    yield Heading("The last that it printed" if not words.what else "Then" if after_call else "What made it stop")
    yield Verbatim(tuple(f"  {line}" for line in (words.lines if verbose else words.lines[:_LINES])))
    yield from _causes(words.causes, verbose=verbose)


def _causes(causes: tuple[Reason, ...], *, verbose: bool) -> Iterator[Block]:
    for cause in causes[: 3 if verbose else 1]:
        yield Heading(f"{cause.id}  {wording.percent(cause.confidence)}")
        yield Paragraph(f"  {cause.title}")
        yield Facts(tuple(Row("fix" if index == 0 else "or", fix) for index, fix in enumerate(cause.fix)))


def _failure_rows(failure: Failure, *, compared: bool, verbose: bool) -> Iterator[Row]:
    yield Row("command", failure.command if verbose else _shortened(failure.command), command=True)
    for each in failure.flags:
        yield Row("variable", each, "nvcc adds its words to the command")
    yield Row("in", failure.cwd)
    if failure.files:
        yield Row("files", a_few(failure.files, len(failure.files) if verbose else 1))
    if failure.archs:
        yield Row("for", " ".join(failure.archs))
    for each in failure.inside:
        yield Row("inside it", each)
    yield Row("again", failure.replay, command=True)
    if not compared:
        note = "finds which difference to this shell makes it fail"
        yield Row("compare", failure.compare, note, command=True)


def _end(failure: Failure) -> str:
    if failure.state == "not-started":
        return f"could not start: {failure.problem}"
    return f"was ended by {failure.signal}" if failure.signal else f"failed with status {status_words(failure.status)}"


def _first_error(lines: list[str]) -> int:
    """Where to begin to read: a little before the first line that speaks of an error."""
    telling = (index for index, line in enumerate(lines) if "error" in line.lower() or "fatal" in line.lower())
    return max(next(telling, len(lines) - _LINES) - 2, 0)


def _shortened(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[:most]} … ({len(text):,} characters; --verbose shows them)"


def _summary(answer: Recorded, *, verbose: bool) -> Iterator[Block]:
    found = answer.summary
    yield Heading("Recorded")
    yield Facts(tuple(_facts(answer)))
    if not found.calls:
        yield Paragraph("  No compiler call was seen (calls inside containers are not recorded).")
        return
    rows = None if verbose else _ROWS
    if found.files:
        yield Heading("Time per file")
        yield _files(found.files[:rows], found)
    if found.phases:
        yield Heading("Time per phase of nvcc")
        yield _shares("phase", found.phases[:rows], sum(each.seconds for each in found.phases))
    if len(found.archs) > 1 and verbose:
        yield Heading("Time per architecture")
        yield _shares("architecture", found.archs, sum(each.seconds for each in found.archs))
    if found.longest and (verbose or any(each.calls > 1 for each in found.files) or not found.files):
        yield Heading("The longest calls")
        yield _longest(found.longest[: rows if verbose else 5])


def _facts(answer: Recorded) -> Iterator[Row]:
    found = answer.summary
    failed = f", {found.failed} failed" if found.failed else ""
    open_ = f", {found.unfinished} that never ended" if found.unfinished else ""
    nvcc = f", {found.nvcc} of nvcc" if found.nvcc else ""
    yield Row("calls", f"{found.calls}{nvcc}{failed}{open_}")
    if found.seconds:
        at_once = f", {found.busy / found.seconds:.1f} at once" if found.busy > found.seconds else ""
        yield Row("time", f"{_time(found.seconds)}; compilers {_time(found.busy)}{at_once}")
    if found.hits is not None:
        yield Row("cache", f"{found.hits} of {found.hits + (found.misses or 0)} calls answered from it")
    yield Row("record", answer.folder, "" if answer.masked else "secrets are not masked: think before you share it")
    if answer.way in _WAYS:
        yield Row("seen by", _WAYS[answer.way])
    for path in answer.written:
        yield Row("written", path)
    if answer.damaged:
        yield Row("damaged", f"{answer.damaged} lines could not be read")


def _files(files: tuple[FileTime, ...], found: Summary) -> Table:
    whole = sum(each.seconds for each in found.files) or 1.0
    rows = ((_amount(each.seconds, whole), str(each.calls), each.file, " ".join(each.archs)) for each in files)
    return table(("time", figure("calls"), "file", "for"), rows)


def _shares(title: str, shares: tuple[Share, ...], whole: float) -> Table:
    rows = ((_amount(each.seconds, whole or 1.0), str(each.runs), each.name) for each in shares)
    return table(("time", figure("runs"), title), rows)


def _longest(calls: tuple[CallSummary, ...]) -> Table:
    return table(
        (figure("call"), figure("time"), figure("memory"), "what"),
        (
            (f":{each.number}", _time(each.seconds or 0.0), size(each.memory) if each.memory else "", each.what)
            for each in calls
        ),
    )


def _amount(seconds: float, whole: float) -> Amount:
    return Amount(text=_time(seconds), value=seconds, share=seconds / whole)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    return f"{int(seconds // _MINUTE)} min {seconds % _MINUTE:.0f} s"
