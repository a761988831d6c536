"""Ways out, ranked for the situation: by what the likeliest cause leaves open, and by where it happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.diagnosis.causes import placeholders
from cuwheel.diagnosis.diagnosis import WayOut
from cuwheel.support.wording import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.diagnosis.known import Known
    from cuwheel.diagnosis.rows import CauseFile, Way, Ways
    from cuwheel.verdicts.verdict import Verdict

_WHEEL = "prebuilt-wheel"
_RUNS = ("native", "compatible", "jit")


def rank(causes: Sequence[CauseFile], ways: Ways, known: Known, verdicts: Sequence[Verdict] = ()) -> tuple[WayOut, ...]:
    """In the order of the first cause's own list; those that do not exist here are left out.

    A wheel at hand that `check` approves is the shortest way of all; one that it refuses is none.
    """
    rows = {way.id: way for way in ways.way}
    wanted = list(dict.fromkeys(id_ for cause in causes for id_ in cause.ways_out))
    checked = tuple(_checked(rows[_WHEEL], each) for each in verdicts if causes)
    if any(each.outcome in _RUNS for each in verdicts):
        return (
            *checked,
            *(_way_out(rows[id_], known) for id_ in wanted if id_ != _WHEEL and _exists(rows[id_], known)),
        )
    found = tuple(_way_out(rows[id_], known) for id_ in wanted if _exists(rows[id_], known))
    return (*found, *checked)


def _checked(way: Way, verdict: Verdict) -> WayOut:
    wheel = file_name(verdict.target)
    if verdict.outcome in _RUNS:
        rest = f"; {len(verdict.conditions) - 1} more conditions" if len(verdict.conditions) > 1 else ""
        conditions = f", if {verdict.conditions[0]}{rest}" if verdict.conditions else ""
        return WayOut(
            id=way.id, title=way.title, text=f"{wheel} runs on {verdict.machine} ({verdict.outcome}{conditions})"
        )
    error = f" with error {verdict.predicted_error.code}" if verdict.predicted_error else ""
    return WayOut(
        id=way.id,
        title=f"not {way.title}",
        text=f"{wheel} on {verdict.machine}: {verdict.outcome}{error} (cuwheel check)",
    )


def _exists(way: Way, known: Known) -> bool:
    return known.situations.issuperset(way.when) and not known.situations.intersection(way.unless)


def _way_out(way: Way, known: Known) -> WayOut:
    filled = known.filled()
    text = next((each for each in _texts(way) if placeholders(each) <= filled.keys()), way.title)
    return WayOut(id=way.id, title=way.title, text=text.format_map(filled))


def _texts(way: Way) -> Iterator[str]:
    yield from filter(None, (way.text, way.general))
