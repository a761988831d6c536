"""nvcc's own timing of its inner programs: the table that `--time` writes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cuwheel.recording.calls import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLUMNS = 8  # source , phase , inputs , output , arch , tool , metric , unit
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def parse(text: str) -> Iterator[Phase]:
    """Rows are counted from both ends: the names of files in between may hold commas."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < _COLUMNS or cells[-1] not in _UNITS:
            continue
        try:
            seconds = float(cells[-2]) * _UNITS[cells[-1]]
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            yield Phase(name=cells[1], file=cells[0], arch=cells[-4], seconds=seconds)
