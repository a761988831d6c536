"""What others find out about recorded calls afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError
from cuwheel.recording import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cuwheel.recording.calls import Record


def mark_hits(record: Record, hits: Mapping[int, bool]) -> None:
    """By the numbers of calls: whether a compiler cache answered. Read it again to see them."""
    ids = {call.number: call.id for call in record.calls}
    try:
        for number, hit in hits.items():
            if number in ids:
                layout.append(Path(record.folder), {"event": "cache", "id": ids[number], "hit": hit})
    except OSError as error:
        raise UnreadableError.from_os(error, record.folder) from error
