"""`cuwheel bench`: the answer, its document, and the line to quote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.proving.measuring import samples
from cuwheel.proving.measuring.bench import Level, Measured, Moment
from cuwheel.proving.measuring.bench_side import FirstCall
from cuwheel.proving.measuring.samples import Ratio
from cuwheel.report import chart
from cuwheel.report.document import Chart, Column, Document, Facts, Heading, Paragraph, Point, Row, Series, Table
from cuwheel.support import codec, masking, quoting
from cuwheel.support.wording import a_few, duration, size
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cuwheel.proving.measuring.bench import Bench as Result
    from cuwheel.proving.request import BenchRequest
    from cuwheel.report.document import Block

SCHEMA = "cuwheel.bench/1"
_MOST_BYTES = 64 << 20
_SHORT = 10e-6  # seconds of a call


class Difference(Struct, frozen=True, kw_only=True):
    """Throughput of this side over the other's, at one level. `differs`: by more than chance does."""

    concurrency: int
    ratio: Ratio
    differs: bool


class Change(Struct, frozen=True, kw_only=True):
    """Throughput over that of the earlier run. `worse`: by more than chance and `noise` together."""

    concurrency: int
    ratio: Ratio
    worse: bool


class Bench(Struct, frozen=True, kw_only=True):
    """`levels`: so many at once, of this side. `against`: the other side, and `differences` between them.

    `earlier`: level by level against a run that was kept. `line`: to quote. `moments`: of the GPUs, over time.
    """

    schema: Literal["cuwheel.bench/1"] = "cuwheel.bench/1"
    what: str
    by: Literal["threads", "processes"]
    label: str
    levels: tuple[Level, ...]
    import_seconds: float
    first_call: FirstCall
    against: Measured | None = None
    differences: tuple[Difference, ...] = ()
    earlier: tuple[Change, ...] = ()
    earlier_file: str | None = None
    noise: float
    gpus: tuple[str, ...]
    driver: str | None
    moments: tuple[Moment, ...]
    seconds: float
    tool: str
    line: str

    @property
    def succeeded(self) -> bool:
        sides = (*self.levels, *(self.against.levels if self.against else ()))
        return not any(each.errors for each in sides) and not any(each.worse for each in self.earlier)


def read(path: Path) -> Bench:
    """An earlier run, as `--json` or `--save` wrote it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
        codec.refuse_newer(codec.decode(data), SCHEMA, path)
        return codec.decode(data, Bench)
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    except msgspec.DecodeError as error:
        raise MalformedError(
            path, f"is not what bench wrote: {error}", hint="cuwheel bench … --save earlier.json"
        ) from error


def answer_of(request: BenchRequest, result: Result, earlier: Bench | None) -> Bench:
    measured, other = result.measured, result.other
    differences = tuple(_differences(measured, other)) if other else ()
    return Bench(
        what=request.what if isinstance(request.what, str) else quoting.here(masking.words(request.command)),
        by=request.by,
        label=measured.label,
        levels=measured.levels,
        import_seconds=measured.import_seconds,
        first_call=measured.first_call,
        against=other,
        differences=differences,
        earlier=tuple(_changes(measured.levels, earlier.levels, request.noise)) if earlier else (),
        earlier_file=str(request.earlier) if request.earlier else None,
        noise=request.noise,
        gpus=result.gpus,
        driver=result.driver,
        moments=result.moments,
        seconds=result.seconds,
        tool=f"cuwheel {__version__}",
        line=_line(measured, other, differences, result.gpus),
    )


def _differences(measured: Measured, other: Measured) -> Iterator[Difference]:
    for one, two in zip(measured.levels, other.levels, strict=True):
        if ratio := samples.paired_ratio(one.blocks, two.blocks):
            yield Difference(concurrency=one.concurrency, ratio=ratio, differs=not ratio.low <= 1 <= ratio.high)


def _changes(now: Sequence[Level], before: Sequence[Level], noise: float) -> Iterator[Change]:
    known = {each.concurrency: each for each in before}
    for each in now:
        if each.concurrency in known and (ratio := samples.welch_ratio(each.blocks, known[each.concurrency].blocks)):
            worse = ratio.high < 1 and ratio.value < 1 - noise
            yield Change(concurrency=each.concurrency, ratio=ratio, worse=worse)


def _line(measured: Measured, other: Measured | None, differences: Sequence[Difference], gpus: Sequence[str]) -> str:
    """At the level with the highest throughput."""
    best = max(measured.levels, key=lambda each: each.throughput)
    where = f"; {a_few(gpus)}" if gpus else ""
    at = f"{best.concurrency} at once"
    figures = f"{_rate(best.throughput)}, median {_time(best.p50)}, 99 % within {_time(best.p99)}"
    found = next((each for each in differences if each.concurrency == best.concurrency), None)
    if other is None or found is None:
        return f"{figures} at {at}{where}"
    ratio = found.ratio
    theirs = next(each for each in other.levels if each.concurrency == best.concurrency)
    beside = f"{_rate(best.throughput)} against {_rate(theirs.throughput)}"
    if not found.differs:
        return f"{measured.label} and {other.label} do not differ by more than chance at {at}: {beside}{where}"
    between = f"{ratio.low:.3g} to {ratio.high:.3g}"
    return (
        f"{measured.label} does {ratio.value:.3g} times the calls of {other.label} at {at} "
        f"(95 %: {between}): {beside}, median {_time(best.p50)} against {_time(theirs.p50)}{where}"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"  # noqa: PLR2004 - three digits


def _time(value: float) -> str:
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"  # noqa: PLR2004


def document(answer: Bench, *, verbose: bool) -> Document:
    return Document(f"cuwheel bench {answer.what}", tuple(_blocks(answer, verbose=verbose)))


def _blocks(answer: Bench, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{answer.what}: by {answer.by}, {answer.label}")
    yield _table(answer.levels)
    if answer.against:
        yield Heading(f"Against: {answer.against.label}")
        yield _table(answer.against.levels)
        yield Heading("Difference in throughput, both run by turns")
        yield _ratios(answer.differences, lambda each: "differs" if each.differs else "chance alone may do that")
    if answer.earlier_file:
        yield Heading(f"Compared with {answer.earlier_file}")
        yield _ratios(answer.earlier, lambda each: "worse" if each.worse else "not worse")
    yield Heading("The first call, in a new process with nothing compiled")
    yield _first(answer)
    yield from _errors(answer)
    if short := [each for each in answer.levels if each.p50 < _SHORT]:
        yield Paragraph(
            f"warning: a call takes {_time(min(each.p50 for each in short))}: below {_time(_SHORT)} calling it, "
            "and the clock, are a large part of what is measured. Let the function do its work many times over."
        )
    yield from _charts(answer)
    if verbose:
        yield Facts((Row("took", duration(answer.seconds)), Row("by", answer.tool)))
    yield Paragraph("")
    yield Paragraph(answer.line)


def _table(levels: Sequence[Level]) -> Table:
    watched = any(each.gpu_memory is not None for each in levels)
    titles = [
        "at once",
        "calls",
        "calls/s",
        "least",
        "median",
        "mean",
        "±",
        "95 %",
        "99 %",
        "errors",
        *(("GPU memory", "use") if watched else ()),
    ]
    return Table(
        tuple(Column(title, numeric=True) for title in titles),
        tuple(
            (
                str(each.concurrency),
                f"{each.calls:,}",
                _rate(each.throughput).removesuffix("/s"),
                *("" if value is None else _time(value) for value in _latencies(each)),
                str(each.errors),
                *_gpu(each, watched=watched),
            )
            for each in levels
        ),
    )


def _latencies(level: Level) -> tuple[float | None, ...]:
    return level.least, level.p50, level.mean, level.deviation, level.p95, level.p99


def _gpu(level: Level, *, watched: bool) -> tuple[str, ...]:
    if not watched:
        return ()
    use = f"{level.gpu_use:.0f} %" if level.gpu_use is not None else ""
    return (size(level.gpu_memory) if level.gpu_memory is not None else "", use)


def _ratios(rows: Sequence[Difference] | Sequence[Change], verdict: Callable[..., str]) -> Table:
    columns = (Column("at once", numeric=True), Column("ratio", numeric=True), Column("95 %", wrap=False), Column(""))
    return Table(
        columns,
        tuple(
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
    sides = [(answer.label, answer.first_call)]
    sides += [(answer.against.label, answer.against.first_call)] if answer.against else []
    return Facts(
        tuple(
            Row(
                label,
                f"import {_time(each.import_seconds)}, first call {_time(each.seconds)}"
                + (f", of which the driver compiled for {each.jit_ms:.0f} ms" if each.jit_ms is not None else ""),
            )
            for label, each in sides
        )
    )


def _errors(answer: Bench) -> Iterator[Block]:
    for label, levels in (
        (answer.label, answer.levels),
        *(((answer.against.label, answer.against.levels),) if answer.against else ()),
    ):
        for each in levels:
            if each.errors:
                yield Paragraph(
                    f"{label}, {each.concurrency} at once: {each.errors} of {each.calls} failed: {each.error}"
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
        y_ticks=tuple((at, f"{at:g}") for at in chart.ticks(most)),
    )


def _over_time(caption: str, unit: str, moments: Sequence[Moment], value: Callable[[Moment], float]) -> Chart:
    points = tuple(Point(each.at, value(each), tip=f"{each.at:.1f} s: {value(each):.3g}") for each in moments)
    return Chart(
        caption=caption,
        x_title="seconds",
        y_title=unit,
        series=(Series(unit, points),),
        x_ticks=tuple((at, f"{at:g}") for at in chart.ticks(moments[-1].at)),
        y_ticks=tuple((at, f"{at:g}") for at in chart.ticks(max(point.y for point in points))),
    )
