"""The mark of a distribution that was cut to a workload: in the note that `slim` leaves in its dist-info folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuwheel.support import codec
from cuwheel.support.finding import Finding
from cuwheel.support.units import some

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "cuwheel-slim.json"
RULE = "cut-to-workload"
LIMIT = 1 << 24  # of the note: it has a row for each library
_DEPTH = 100


def commands(note: str | bytes | None) -> tuple[str, ...] | None:
    """What was traced; None where nothing was cut by use, in this run of `slim` or an earlier one."""
    if not note:
        return None
    try:
        found = codec.decode(note if isinstance(note, bytes) else note.encode(), dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None  # not ours
    earlier = found.get("earlier")
    notes = [found, *(earlier[:_DEPTH] if isinstance(earlier, list) else [])]
    cut = [each["workload"] for each in notes if isinstance(each, dict) and isinstance(each.get("workload"), list)]
    return tuple(dict.fromkeys(str(word) for each in cut for word in each)) if cut else None


def finding(names: Iterable[str], traced: Iterable[str]) -> Finding:
    words = some(list(traced)) or "one that was traced"
    return Finding(
        rule=RULE,
        severity="warning",
        message=f"{some(list(names))} was cut to a workload ({words}): only the device code that this loads is left; "
        "anything else may fail, in words that do not say so, or give slightly other results",
        fix="trace again with what is missing and slim anew (cuwheel slim --used), or undo: cuwheel slim --undo",
    )
