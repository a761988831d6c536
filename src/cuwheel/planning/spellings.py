"""The list of a job in every spelling that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.planning.plan import Flags, Spellings
from cuwheel.spellings import table
from cuwheel.spellings.row import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.facts.arch import Arch


def spell(
    archs: Sequence[Arch], ptx: Sequence[Arch], *, cmake: str | None = None, torch: str | None = None
) -> Spellings:
    """`archs` is machine code, `ptx` is PTX; `cmake`, `torch`: the versions that have to take it, where known."""
    releases = Releases(cmake=cmake, torch=torch)
    return Spellings(**{row.name: row.write(row.variable, archs, ptx, releases) for row in table.ROWS})


def flags(spelt: Spellings) -> Flags:
    return Flags(**{name: getattr(spelt, name).value for name in spelt.__struct_fields__})
