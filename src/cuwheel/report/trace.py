"""`cuwheel trace`: the document of its answer. It goes to stderr, beside the command's own output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice, repeat
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph, hidden
from cuwheel.report.drawings import Bar, Timeline, lanes_of, ticks_of_time
from cuwheel.report.tables import Amount, Cell, Facts, Row, Table, figure, table
from cuwheel_core.support.wording import counted, duration, file_name, size

if TYPE_CHECKING:
    from cuwheel.tracing.traced import Failure, LibraryUse, Load, Process, Traced

_FAILURES, _LIBRARIES, _STACK, _KERNELS, _STARTS, _ROWS, _TIMES = 5, 12, 6, 5, 3, 40, 10
_NAME = 160
_WORTH_TELLING_MS = 50.0
_HOW = {
    "native": "machine code",
    "compatible": "machine code of an earlier GPU",
    "jit": "compiled by the driver",
    "none": "nothing that fits",
    "unknown": "not known",
}


def document(answer: Traced, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    grave = [each for each in answer.failures if not each.swallowed]
    swallowed = [each for each in answer.failures if each.swallowed]
    shown = grave if verbose else grave[:_FAILURES]
    for each in shown:
        blocks += _failure(answer, each, verbose=verbose)
    if len(shown) < len(grave):
        blocks.append(hidden(len(grave) - len(shown), "failed calls"))
    if swallowed:
        blocks += _swallowed(swallowed, verbose=verbose)
    if verbose:
        for each in swallowed:
            blocks += _failure(answer, each, verbose=True)
    blocks += _summary(answer, verbose=verbose)
    return Document("cuwheel trace", tuple(blocks))


def _failure(answer: Traced, failure: Failure, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{failure.api}: error {failure.error.code}, {failure.error.name}")
    yield Facts(tuple(_failure_rows(answer, failure, verbose=verbose)))


def _failure_rows(answer: Traced, failure: Failure, *, verbose: bool) -> Iterator[Row]:
    if failure.meaning:
        yield Row("means", failure.meaning)
    yield from _culprit(failure, verbose=verbose)
    if failure.reason:
        yield Row("why", failure.reason)
    # The launches before, the latest first; of the same one after another only how many they were.
    places = chain(failure.last_libraries, repeat(None))
    names = (
        _short(name, verbose=verbose) + (f" in {file_name(place)}" if place else "")
        for name, place in zip(failure.last, places, strict=False)
    )
    runs = ((name, sum(1 for _ in same)) for name, same in groupby(names))
    for index, (launched, times) in enumerate(islice(runs, None if verbose else _KERNELS)):
        yield Row(
            "last launched" if index == 0 else "before that", f"{launched}, {times} times" if times > 1 else launched
        )
    for index, each in enumerate(failure.python[: None if verbose else _STACK]):
        yield Row("Python" if index == 0 else "", each)
    if failure.fix:
        yield Row("fix", failure.fix)
    if failure.times > 1:
        yield Row("times", str(failure.times))
    if len(answer.processes) > 1:
        yield Row("process", _process_name(answer.processes[failure.process]))


def _culprit(failure: Failure, *, verbose: bool) -> Iterator[Row]:
    """The kernel, and the file that it is in; of a call that concerns none, the file that made it."""
    if failure.kernel:
        yield Row("kernel", _short(failure.demangled or failure.kernel, verbose=verbose))
        if failure.demangled and failure.demangled != failure.kernel:
            yield Row("mangled", failure.kernel)
    elif failure.kernels:
        names = [_short(each, verbose=verbose) for each in failure.kernels[: None if verbose else _KERNELS]]
        more = len(failure.kernels) - len(names)
        yield Row("kernel", "one of: " + "; ".join(names) + (f"; and {more} more" if more else ""))
    if failure.library:
        yield Row("in", _where(failure.library, failure.package), failure.library if verbose else "")
    elif failure.caller:
        yield Row("called by", file_name(failure.caller), failure.caller if verbose else "")


def _short(name: str, *, verbose: bool) -> str:
    """Names of templates fill screens: the beginning says which kernel it is."""
    return name if verbose or len(name) <= _NAME else f"{name[: _NAME - 2]} …"


def _where(path: str, package: str | None) -> str:
    return f"{file_name(path)} of {package}" if package else file_name(path)


def _swallowed(failures: Sequence[Failure], *, verbose: bool) -> Iterator[Block]:
    yield Heading("Failed calls that the program dealt with")
    shown = failures if verbose else failures[:_FAILURES]
    rows: list[tuple[Cell, ...]] = []
    for each in shown:
        what = each.demangled or each.kernel or (size(each.bytes) if each.bytes else "")
        place = each.library or each.caller or ""
        error = f"{each.error.code} {each.error.name}"
        why = each.reason if each.archs else ""
        rows.append((error, each.api, _short(what, verbose=verbose), file_name(place), why, str(each.times)))
    yield table(("error", "call", "what", "in", "why", figure("times")), rows)
    if len(shown) < len(failures):
        yield hidden(len(failures) - len(shown), "failed calls")


def _summary(answer: Traced, *, verbose: bool) -> Iterator[Block]:
    if not answer.processes:
        yield Heading("No process of the command called the CUDA driver")
        yield Paragraph(
            "It uses no GPU, or found none; cuwheel doctor shows what is here. trace does not see programs that are "
            "linked statically, run as another user, or have a cleared environment."
        )
        return
    unseen = all(each.swallowed for each in answer.failures)
    yield Heading("No call of the CUDA driver failed" if unseen else "What it used")
    yield Facts(tuple(_facts(answer)))
    if not answer.succeeded and unseen:
        yield Paragraph(
            "The CUDA runtime refuses some things by itself (--cupti sees that), and "
            "CUDA 11's loads its code in private (drivers for CUDA 12.9 and later tell in their log if that fails)."
        )
    if answer.libraries:
        yield Heading("Device code by library")
        found = sorted(answer.libraries, key=lambda each: -each.loaded_bytes)
        yield _libraries(found if verbose else found[:_LIBRARIES])
    yield from _kernels(answer, verbose=verbose)
    if answer.loads:
        yield _timeline(answer)


def _facts(answer: Traced) -> Iterator[Row]:
    used = dict.fromkeys(gpu for process in answer.processes for gpu in process.gpus)
    for gpu in used:
        yield Row("GPU", f"{gpu.name}, {gpu.capability}; driver for CUDA {gpu.cuda}")
    alive = sum(not each.ended for each in answer.processes)
    yield Row(
        "processes",
        f"{len(answer.processes)}"
        + (f", {alive} of which ended without a word (killed, or by _exit)" if alive else ""),
    )
    memory = sum(each.library is None for each in answer.loads)
    launched = sum(bool(each.launched) for each in answer.loads)
    yield Row("loads", f"{len(answer.loads)}, {launched} of them used; {memory} from the program's own memory")
    named = {name for each in answer.loads for name in each.launched}
    kernels = max(len(named), *(each.kernels for each in answer.processes))
    launches = sum(each.launches or 0 for each in answer.processes)
    yield Row("kernels", f"{kernels:,} different, in {launches:,} launch{'' if launches == 1 else 'es'}")
    private = {each.process for each in answer.loads}
    if any(each.kernels and number not in private for number, each in enumerate(answer.processes)):
        yield Row("not seen", "where some kernels came from: CUDA 11's runtime loads its code in private")
    yield from _start(answer)
    if lost := sum(each.lost for each in answer.processes):
        yield Row("lost", f"{lost} events could not be written")
    if answer.unread:
        yield Row("damaged", f"{answer.unread} lines could not be read")


def _start(answer: Traced) -> Iterator[Row]:
    """Where the time before the first kernel went, as far as the driver's part of it was measured."""
    launching = [
        (each.first_launch, index) for index, each in enumerate(answer.processes) if each.first_launch is not None
    ]
    slowest = sorted(launching, reverse=True)[:_STARTS]
    if len(launching) > len(slowest):
        yield Row("starts", f"{len(launching)} processes launched kernels; those that took longest until the first:")
    for first_launch, index in slowest:
        loads = [each for each in answer.loads if each.process == index]
        before = [each for each in loads if each.at <= first_launch]
        start = duration(first_launch)
        loading = sum(each.seconds for each in before)
        yield Row("start", f"first kernel after {start}; loading code took {loading * 1000:,.0f} ms of that")
        if compiled := _compiling(before):
            yield Row("", f"{compiled[0]} of these {start} are the driver compiling {compiled[1]}")
        if compiled := _compiling([each for each in loads if each.at > first_launch]):
            yield Row("" if before else "compiling", f"later the driver was compiling for {compiled[0]}: {compiled[1]}")


def _compiling(loads: Sequence[Load]) -> tuple[str, str] | None:
    """How long the driver compiled, and what, for want of machine code; None where it is too little to tell."""
    compiled = [each for each in loads if each.jit_ms and not each.cached]
    total = sum(each.jit_ms or 0.0 for each in compiled)
    if total < _WORTH_TELLING_MS:
        return None
    places = dict.fromkeys(file_name(each.library or each.caller or "memory") for each in compiled)
    modules = f"{counted(len(compiled), 'PTX module')} of {', '.join(places)}"
    why = "they have no machine code for this GPU" if len(places) > 1 else "it has no machine code for this GPU"
    return duration(total / 1000), f"{modules}: {why}"


def _libraries(found: Sequence[LibraryUse]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            _where(each.library, each.package),
            f"{each.loaded:,} of {each.containers:,}",
            str(each.launched),
            Amount(
                f"{size(each.loaded_bytes)} of {size(each.bytes)}",
                each.loaded_bytes,
                each.loaded_bytes / (each.bytes or 1),
            ),
            ", ".join(_HOW[how] for how in each.how),
        )
        for each in found
    ]
    return table(("library", figure("loaded"), figure("used"), "bytes", "how"), rows)


def _kernels(answer: Traced, *, verbose: bool) -> Iterator[Block]:
    """Each over all processes; those that ran longest first, where CUPTI told, then those that were launched most."""
    where: dict[tuple[str, str], int] = {}
    for each in answer.kernels:
        key = each.demangled or each.kernel, _where(each.library, each.package) if each.library else ""
        where[key] = where.get(key, 0) + (each.launches or 0)
    timed: dict[str, tuple[int, float]] = {}
    for time in answer.times:
        launches, seconds = timed.get(time.demangled or time.kernel, (0, 0.0))
        timed[time.demangled or time.kernel] = launches + time.launches, seconds + time.seconds
    named = {name for name, _ in where}
    where |= {(name, ""): 0 for name in timed if name not in named}  # of CUDA graphs
    if not where:
        return
    # CUPTI tells kernels apart by name alone: one that two libraries have is told its time once.
    first = dict(reversed(where))
    rows: list[tuple[float, int, tuple[Cell, ...]]] = []
    for (name, place), seen in where.items():
        launches, seconds = timed.get(name, (0, 0.0)) if first[name] == place else (0, 0.0)
        count = max(seen, launches)
        cells: tuple[Cell, ...] = (
            _short(name, verbose=verbose),
            place,
            Amount(f"{count:,}", count) if count else "not told",
        )
        if timed:
            cells += (
                (
                    Amount(f"{seconds * 1e3:,.3f} ms", seconds),
                    Amount(f"{seconds * 1e6 / max(launches, 1):,.1f} µs", seconds / max(launches, 1)),
                )
                if launches
                else ("", "")
            )
        rows.append((seconds, count, cells))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    shown = rows if verbose else rows[:_TIMES]
    titles = ("launches", "together", "each") if timed else ("launches",)
    yield Heading("Kernels")
    yield table(("kernel", "library", *map(figure, titles)), (cells for _, _, cells in shown))
    if len(shown) < len(rows):
        yield hidden(len(rows) - len(shown), "kernels")


def _timeline(answer: Traced) -> Timeline:
    """A row for each process: what was loaded when, and how long that took; of many those that loaded longest."""
    loads: dict[int, list[Load]] = {}
    for each in answer.loads:
        loads.setdefault(each.process, []).append(each)
    longest = sorted(loads, key=lambda number: -sum(each.seconds for each in loads[number]))[:_ROWS]
    shown = [number for number in loads if number in longest]
    rows: list[tuple[Bar, ...]] = []
    labels: list[str] = []
    for number in shown:
        lanes = lanes_of([_bar(answer, each) for each in loads[number]])
        rows += lanes
        labels += [_process_name(answer.processes[number]), *[""] * (len(lanes) - 1)]
    end = max((each.began + each.seconds for each in answer.processes), default=0.0) or 1.0
    return Timeline(
        caption="Loads over time, a row for each process"
        + (f"; the {len(shown)} that loaded longest, of {len(loads)}" if len(shown) < len(loads) else ""),
        seconds=end,
        rows=tuple(rows),
        legend=tuple((kind, _HOW[kind]) for kind in dict.fromkeys(each.how for each in answer.loads)),
        ticks=ticks_of_time(end),
        labels=tuple(labels),
    )


def _bar(answer: Traced, load: Load) -> Bar:
    name = file_name(load.library or load.caller or "memory")
    return Bar(
        text=name,
        began=answer.processes[load.process].began + load.at,
        seconds=load.seconds,
        kind=load.how,
        tip=f"{name}: {load.arch or load.kind}, {_HOW[load.how]}, {load.seconds * 1000:,.1f} ms",
    )


def _process_name(process: Process) -> str:
    return f"{process.pid}: {file_name(process.program)} {process.script or ''}".rstrip()


def timeline_json(answer: Traced) -> str:
    """For Perfetto's and Chrome's viewers: loads as spans with the compiling inside of them, failed calls as marks."""
    events: list[dict[str, object]] = []
    for number, process in enumerate(answer.processes):
        named = {"name": _process_name(process)}
        events.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": named})
    for load in answer.loads:
        details = {"arch": load.arch, "how": load.how, "container": load.container, "jit_ms": load.jit_ms}
        name = file_name(load.library or load.caller or "memory")
        span = {"ph": "X", "cat": load.how, "ts": _microseconds(answer, load), "pid": load.process, "tid": load.thread}
        events.append({**span, "name": name, "dur": round(load.seconds * 1e6, 3), "args": details})
        if load.jit_ms and not load.cached:
            events.append(
                {**span, "name": "compiling PTX", "dur": round(min(load.jit_ms * 1e3, load.seconds * 1e6), 3)}
            )
    for failure in answer.failures:
        details = {"kernel": failure.demangled or failure.kernel, "library": failure.library, "why": failure.reason}
        mark = {"ph": "i", "s": "p", "ts": _microseconds(answer, failure), "pid": failure.process, "tid": 0}
        events.append({**mark, "name": f"{failure.api}: {failure.error.name}", "args": details})
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1)


def _microseconds(answer: Traced, event: Load | Failure) -> float:
    """On a clock that all processes share."""
    return round((answer.processes[event.process].began + event.at) * 1e6, 3)
