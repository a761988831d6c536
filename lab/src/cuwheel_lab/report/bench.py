"""`cuwheel lab bench`: the document of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cuwheel.report.document import Block, Document, Heading, Paragraph
from cuwheel.report.drawings import Chart, Point, Series, ticks_of_values
from cuwheel.report.tables import Facts, Row, Table, figure, short, table
from cuwheel_core.support.wording import duration, percent_change, size
from cuwheel_lab.measuring.bench import Bench, Change, Difference, Level, Moment, rate_in_words, time_in_words

_SHORT = 10e-6  # seconds of a call


def document(answer: Bench, *, verbose: bool) -> Document:
    return Document(f"cuwheel lab bench {answer.what}", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Bench, *, verbose: bool) -> Iterator[Block]:
    yield Heading(_headline(answer))
    if answer.against:
        yield Heading(f"{answer.label}, by {answer.by}")
    yield _table(answer.levels)
    if answer.against:
        yield Heading(answer.against.label)
        yield _table(answer.against.levels)
        yield Heading("Difference in throughput, both run by turns")
        yield _ratios(answer.differences, lambda each: "differs" if each.differs else "chance alone may do that")
    if answer.earlier_file:
        yield Heading(f"Throughput, compared with {answer.earlier_file}")
        yield _ratios(answer.earlier, lambda each: "worse" if each.worse else "not worse")
    yield Heading("The first call, in a new process with nothing compiled")
    yield _first(answer)
    for label, levels in (
        (answer.label, answer.levels),
        *(((answer.against.label, answer.against.levels),) if answer.against else ()),
    ):
        for each in levels:
            if each.errors:
                yield Paragraph(
                    f"{label}, {each.concurrency} at once: {each.errors} of {each.calls} failed: {each.error}"
                )
    if brief := [each for each in answer.levels if each.p50 < _SHORT]:
        yield Paragraph(
            f"warning: a call takes {time_in_words(min(each.p50 for each in brief))}: below {time_in_words(_SHORT)} "
            "calling it, and the clock, are a large part of what is measured. Let the function do its work many times "
            "over."
        )
    yield from _charts(answer)
    if verbose:
        yield Facts((Row("took", duration(answer.seconds)), Row("by", answer.tool)))


def _headline(answer: Bench) -> str:
    """Whether it got worse, where that was asked; how it compares with the other side; how fast it is."""
    figures = answer.line if answer.against else f"{answer.what}: {answer.line}"
    if not answer.earlier_file:
        return figures
    worst = min((each for each in answer.earlier if each.worse), key=lambda each: each.ratio.value, default=None)
    if worst:
        less = percent_change(1.0, worst.ratio.value)
        return f"Slower than {answer.earlier_file}: {less} calls/s at {worst.concurrency} at once. {figures}"
    known = "Not slower than" if answer.earlier else "Not measured at the same numbers at once:"
    return f"{known} {answer.earlier_file}. {figures}"


def _table(levels: Sequence[Level]) -> Table:
    watched = any(each.gpu_memory is not None for each in levels)
    titles = ("at once", "calls", "calls/s", "least", "median", "mean", "±", "95 %", "99 %", "errors")
    return table(
        map(figure, (*titles, "GPU memory", "use") if watched else titles),
        (
            (
                str(each.concurrency),
                f"{each.calls:,}",
                rate_in_words(each.throughput).removesuffix("/s"),
                *(
                    "" if value is None else time_in_words(value)
                    for value in (each.least, each.p50, each.mean, each.deviation, each.p95, each.p99)
                ),
                str(each.errors),
                *_gpu(each, watched=watched),
            )
            for each in levels
        ),
    )


def _gpu(level: Level, *, watched: bool) -> tuple[str, ...]:
    if not watched:
        return ()
    use = f"{level.gpu_use:.0f} %" if level.gpu_use is not None else ""
    return (size(level.gpu_memory) if level.gpu_memory is not None else "", use)


def _ratios(rows: Sequence[Difference] | Sequence[Change], verdict: Callable[..., str]) -> Table:
    return table(
        (figure("at once"), figure("ratio"), short("95 %"), ""),
        (
            (
                str(each.concurrency),
                f"{each.ratio.value:.3g}",
                f"{each.ratio.low:.3g} to {each.ratio.high:.3g}",
                verdict(each),
            )
            for each in rows
        ),
    )


def _first(answer: Bench) -> Facts:
    sides = [(answer.label if answer.against else answer.what, answer.first_call)]
    sides += [(answer.against.label, answer.against.first_call)] if answer.against else []
    return Facts(
        tuple(
            Row(
                label,
                (f"import {time_in_words(each.import_seconds)}, " if each.import_seconds else "")
                + f"first call {time_in_words(each.seconds)}"
                + (f", of which the driver compiled for {each.jit_ms:.0f} ms" if each.jit_ms is not None else ""),
            )
            for label, each in sides
        )
    )


def _charts(answer: Bench) -> Iterator[Chart]:
    sides = [(answer.label, answer.levels)]
    sides += [(answer.against.label, answer.against.levels)] if answer.against else []
    yield _curve("Throughput", "calls a second", sides, lambda each: each.throughput, 1.0)
    yield _curve("Median latency", "milliseconds", sides, lambda each: each.p50, 1e3)
    yield _curve("Latency of 99 %", "milliseconds", sides, lambda each: each.p99, 1e3)
    if any(each.memory is not None for each in answer.moments):
        yield _over_time("GPU memory over time", "GB", answer.moments, lambda each: (each.memory or 0) / 1e9)
    if any(each.use is not None for each in answer.moments):
        yield _over_time("GPU use over time", "%", answer.moments, lambda each: each.use or 0.0)


def _curve(
    caption: str,
    unit: str,
    sides: Sequence[tuple[str, Sequence[Level]]],
    value: Callable[[Level], float],
    factor: float,
) -> Chart:
    series = tuple(
        Series(
            label,
            tuple(
                Point(
                    each.concurrency,
                    value(each) * factor,
                    tip=f"{each.concurrency} at once: {value(each) * factor:.4g}",
                )
                for each in levels
            ),
        )
        for label, levels in sides
    )
    most = max(point.y for each in series for point in each.points)
    return Chart(
        caption=caption,
        x_title="calls at once",
        y_title=unit,
        series=series,
        x_ticks=tuple((each.concurrency, str(each.concurrency)) for each in sides[0][1]),
        y_ticks=tuple((at, f"{at:g}") for at in ticks_of_values(most)),
    )


def _over_time(caption: str, unit: str, moments: Sequence[Moment], value: Callable[[Moment], float]) -> Chart:
    points = tuple(Point(each.at, value(each), tip=f"{each.at:.1f} s: {value(each):.3g}") for each in moments)
    return Chart(
        caption=caption,
        x_title="seconds",
        y_title=unit,
        series=(Series(unit, points),),
        x_ticks=tuple((at, f"{at:g}") for at in ticks_of_values(moments[-1].at)),
        y_ticks=tuple((at, f"{at:g}") for at in ticks_of_values(max(point.y for point in points))),
    )
