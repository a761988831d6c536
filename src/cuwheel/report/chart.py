"""A chart's points as places on a drawing: what the template writes down as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.report.document import Chart, Point, Series

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


def ticks(most: float, count: int = 5) -> Iterator[float]:
    """Round numbers from zero to the first one that is not below `most`."""
    if not (math.isfinite(most) and most > 0):
        most = 1.0
    power = 10 ** math.floor(math.log10(most / count))
    step = next(each * power for each in _STEPS if each * power * count >= most)
    yield from (round(step * index, 12) for index in range(math.ceil(most / step - 1e-9) + 1))
