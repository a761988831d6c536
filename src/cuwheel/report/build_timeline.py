"""The compiler calls of a job in time: from its record to spans, from spans to the drawing on the page."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cuwheel.building.recording.calls import parse_call, source_of
from cuwheel.report.build import Calls, Piece, Span
from cuwheel.report.document import Bar, Timeline, ticks
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.values import WorkerSpan
    from cuwheel.report.build import Job

_MOST_SPANS = 5000  # a page of more would not open; the record has them all
_MOST_ROWS = 32
_PROGRAMS = {"cicc": "cicc", "ptxas": "ptxas", "gcc": "host", "g++": "host", "cudafe++": "host", "cl": "host"}
_LEGEND = (
    ("phase", "steps of the job"),
    ("nvcc", "nvcc"),
    ("compiler", "host compiler"),
    ("linker", "linker"),
    ("hit", "from the cache"),
    ("failed", "failed"),
)
_INSIDE = (("cicc", "inside nvcc: cicc"), ("ptxas", "ptxas"), ("host", "host compiler and cudafe++"))


def calls_of(record: Record | None, offset: float = 0.0, cached: tuple[int, int] | None = None) -> Calls:
    """What a record holds; `offset`: when it began, in seconds since its job did. See `build_made`."""
    calls = sorted(record.calls if record else (), key=lambda call: call.number)
    known_hits = [call.cache_hit for call in calls if call.cache_hit is not None]
    hits, misses = cached or ((known_hits.count(True), known_hits.count(False)) if known_hits else (None, None))
    took = [call.ended - call.began for call in calls if call.ended is not None]
    return Calls(
        total=len(calls),
        compiled=len({(call.cwd, file) for call in calls if (file := source_of(call))}),
        failed=sum(call.failed for call in calls),
        seconds=round(sum(took), 3),
        hits=hits,
        misses=misses,
        spans=tuple(_span(call, offset) for call in calls[:_MOST_SPANS]),
    )


def _span(call: Call, offset: float) -> Span:
    pieces: dict[tuple[str, str], float] = defaultdict(float)
    for phase in call.phases:
        pieces[phase.name, phase.arch] += phase.seconds
    return Span(
        number=call.number,
        tool=call.tool,
        name=call.name,
        file=source_of(call) or output_of(call),
        began=round(call.began + offset, 3),
        ended=None if call.ended is None else round(call.ended + offset, 3),
        state=call.state,
        cache_hit=call.cache_hit,
        pieces=tuple(Piece(name=name, arch=arch, seconds=round(took, 3)) for (name, arch), took in pieces.items()),
    )


def output_of(call: Call) -> str:
    return parse_call(call).output


def blocks(job: Job) -> Iterator[Timeline]:
    """The steps of the job above, what ran at the same time in as many rows below."""
    bars = [_bar(span, job.seconds) for span in job.calls.spans]
    end = max([job.seconds, *(bar.began + bar.seconds for bar in bars)]) or 1.0
    phases = tuple(
        Bar(each.name, each.began, each.seconds, "phase", f"{each.name}: {each.seconds:.1f} s") for each in job.phases
    )
    lanes = _lanes(bars)
    kinds = {bar.kind for bar in bars} | ({"phase"} if phases else set())
    inner = {kind for bar in bars for kind, _ in bar.parts}
    hidden = sum(map(len, lanes[_MOST_ROWS:]))
    yield Timeline(
        caption=f"{job.id}: compiler calls in time, at most {len(lanes)} at once"
        + (f"; {hidden} are not drawn" if hidden else ""),
        seconds=end,
        rows=(*((phases,) if phases else ()), *map(tuple, lanes[:_MOST_ROWS])),
        legend=(
            *(each for each in _LEGEND if each[0] in kinds),
            *(each for each in _INSIDE if each[0] in inner),
        ),
        ticks=ticks(end),
    )


def over_workers(spans: Sequence[WorkerSpan]) -> Iterator[Timeline]:
    """A row for each worker of a cluster; two where it did two things at once."""
    names = sorted({span.worker for span in spans})
    rows: list[tuple[Bar, ...]] = []
    for name in names[:_MOST_ROWS]:
        own = [span for span in spans if span.worker == name]
        bars = [
            Bar(
                span.name,
                span.began,
                span.ended - span.began,
                "failed" if span.failed else "phase",
                f"{name}: {span.name}\n{span.ended - span.began:.1f} s",
            )
            for span in own
        ]
        rows += map(tuple, _lanes(bars))
    end = max((span.ended for span in spans), default=1.0) or 1.0
    used = sum(span.ended - span.began for span in spans) / (end * max(len(names), 1))
    yield Timeline(
        caption=f"{len(names)} workers, at work for {used:.0%} of the time: {', '.join(names)}",
        seconds=end,
        rows=tuple(rows),
        legend=(("phase", "a share or a job"), ("failed", "failed")),
        ticks=ticks(end),
    )


def _bar(span: Span, end: float) -> Bar:
    ended = span.ended if span.ended is not None else max(end, span.began)
    took = max(ended - span.began, 0.0)
    failed = span.state not in ("succeeded", "started")
    kind = "failed" if failed else "hit" if span.cache_hit else span.tool
    tip = f"{span.number}: {span.name} {span.file}\n{took:.2f} s, {span.state}" + (", cached" if span.cache_hit else "")
    shown = sorted(span.pieces, key=lambda piece: -piece.seconds)
    tip += "".join(f"\n  {piece.name} {piece.arch} {piece.seconds:.2f} s" for piece in shown[:12])
    return Bar(file_name(span.file) or span.name, span.began, took, kind, tip, _parts(span.pieces))


def _parts(pieces: Iterable[Piece]) -> tuple[tuple[str, float], ...]:
    """Shares of the time that nvcc itself measured; its own start-up is in none of them."""
    listed = list(pieces)
    total = sum(piece.seconds for piece in listed)
    if not total:
        return ()
    return tuple(
        (next((kind for name, kind in _PROGRAMS.items() if name in piece.name), "other"), piece.seconds / total)
        for piece in listed
    )


def _lanes(bars: Iterable[Bar]) -> list[list[Bar]]:
    """Each bar in the first row that is free when it begins."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda each: each.began):
        for lane in lanes:
            if lane[-1].began + lane[-1].seconds <= bar.began:
                lane.append(bar)
                break
        else:
            lanes.append([bar])
    return lanes
