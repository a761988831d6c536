"""What a page draws: bars over time, and points over two axes. A terminal has no room for either."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

_TICKS, _MINUTE = 8, 60
_TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


class Bar(Struct, frozen=True):
    """Something that lasted, in seconds since the beginning. `kind` chooses its colour; `tip` says all of it.

    `parts`: shares of it, each with a kind of its own, drawn inside it in order.
    """

    text: str
    began: float
    seconds: float
    kind: str
    tip: str = ""
    parts: tuple[tuple[str, float], ...] = ()


class Timeline(Struct, frozen=True):
    """Rows of bars over one axis, drawn from left to right. A page has room for it, a terminal has not.

    `legend`: kind → what it means. The rows are those of what ran at the same time, so their number tells how much did;
    `labels`: where each row is something by itself, what it is.
    """

    caption: str
    seconds: float
    rows: tuple[tuple[Bar, ...], ...]
    legend: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...] = ()
    labels: tuple[str, ...] = ()


def lanes_of(bars: Iterable[Bar]) -> list[tuple[Bar, ...]]:
    """The rows that bars take: each in the first one that is free when it begins."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda each: each.began):
        free = next((each for each in lanes if each[-1].began + each[-1].seconds <= bar.began), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return [tuple(each) for each in lanes]


def ticks_of_time(end: float) -> tuple[tuple[float, str], ...]:
    """The ticks of an axis of so many seconds."""
    step = next((each for each in _TIMES if end / each <= _TICKS), end / _TICKS)
    marks = [step * index for index in range(int(end / step) + 1)]
    return tuple((at, f"{at:g} s" if step < _MINUTE else f"{at / _MINUTE:g} min") for at in marks)


class Point(Struct, frozen=True):
    """`low`, `high`: the ends of its interval, drawn as whiskers."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    tip: str = ""


class Series(Struct, frozen=True):
    """`joined`: its points are connected by a line."""

    name: str
    points: tuple[Point, ...]
    joined: bool = True


class Chart(Struct, frozen=True):
    """Points over two axes. A page has room for it, a terminal has not.

    `x_ticks`, `y_ticks`: where something is written on an axis, and what.
    """

    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


# A chart's points as places on a drawing: what the template writes down as SVG.

WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
_SHAPES = 4  # series differ by shape and dash too, never by colour alone
_STEPS = (1, 2, 2.5, 5, 10)


class Line(Struct, frozen=True):
    """`path`: its points as SVG's polyline has them, empty where they are not joined. `kind`: colour, shape, dash."""

    name: str
    kind: int
    path: str
    dots: tuple[Point, ...]


class Drawing(Struct, frozen=True):
    """`chart`: what it is of, with ticks as places on the drawing; the edges are those of its axes."""

    chart: Chart
    lines: tuple[Line, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


class _Scale:
    """From values to places."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        known = [each for each in values if math.isfinite(each)] or [0.0]
        self._low, high = min(known), max(known)
        self._span = (high - self._low) or 1.0
        self._start, self._length = start, end - start

    def at(self, value: float) -> float:
        return round(self._start + self._length * (value - self._low) / self._span, 2)


def drawn(chart: Chart) -> Drawing:
    points = [point for each in chart.series for point in each.points]
    heights = [each for point in points for each in (point.y, point.low, point.high) if each is not None]
    x = _Scale([*(point.x for point in points), *(at for at, _ in chart.x_ticks)], _LEFT + 8, WIDTH - _RIGHT - 8)
    y = _Scale([*heights, *(at for at, _ in chart.y_ticks)], HEIGHT - _BOTTOM, _TOP)
    x_ticks = tuple((x.at(at), text) for at, text in chart.x_ticks)
    y_ticks = tuple((y.at(at), text) for at, text in chart.y_ticks)
    lines = tuple(_line(each, number % _SHAPES, x, y) for number, each in enumerate(chart.series))
    return Drawing(replace(chart, x_ticks=x_ticks, y_ticks=y_ticks), lines)


def _line(series: Series, kind: int, x: _Scale, y: _Scale) -> Line:
    def placed(point: Point) -> Point:
        low, high = (None if each is None else y.at(each) for each in (point.low, point.high))
        return Point(x.at(point.x), y.at(point.y), low, high, point.tip)

    dots = tuple(placed(each) for each in series.points if math.isfinite(each.y))
    path = " ".join(f"{dot.x},{dot.y}" for dot in dots) if series.joined else ""
    return Line(series.name, kind, path, dots)


def ticks_of_values(most: float, count: int = 5) -> Iterator[float]:
    """Round numbers from zero to the first one that is not below `most`."""
    if not (math.isfinite(most) and most > 0):
        most = 1.0
    power = 10 ** math.floor(math.log10(most / count))
    step = next(each * power for each in _STEPS if each * power * count >= most)
    yield from (round(step * index, 12) for index in range(math.ceil(most / step - 1e-9) + 1))
