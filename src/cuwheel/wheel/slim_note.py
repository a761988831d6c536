"""The mark of a distribution that was cut to a workload: in the note that `slim` leaves in its dist-info folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cuwheel.support import codec
from cuwheel.support.finding import finding
from cuwheel_core.support.wording import a_few

if TYPE_CHECKING:
    from cuwheel_core.support.finding import Finding

SLIM_NOTE = "cuwheel-slim.json"
CUT_RULE = "cut-to-workload"
SLIM_NOTE_LIMIT = 1 << 24  # of the note: it has a row for each library
_DEPTH = 100


def workload_commands(note: str | bytes | None) -> tuple[str, ...] | None:
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


def cut_to_workload(names: Iterable[str], traced: Iterable[str]) -> Finding:
    words = a_few(list(traced)) or "one that was traced"
    return finding(
        CUT_RULE,
        f"{a_few(list(names))} was cut to a workload ({words}): only the device code that this loads is left; "
        "anything else may fail, in words that do not say so, or give slightly other results",
    )
