"""Questions about compute capabilities: generations, families, renamings."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts.tables import tables
from cuwheel.support import wording

if TYPE_CHECKING:
    from cuwheel.facts.arch import Capability
    from cuwheel.facts.rows.architectures import Architecture


@cache
def _rows() -> dict[Capability, Architecture]:
    return {row.capability: row for row in tables().architectures.architecture}


def seconds_to_compile(ptx: int) -> tuple[float, float]:
    """How long the driver takes for so many bytes of PTX: at least, and at most."""
    rate = tables().architectures.compiling
    return ptx / rate.fastest, ptx / rate.slowest


def find_architecture(capability: Capability) -> Architecture:
    """The row of a capability: its generation, whether it is a Tegra, its family."""
    if row := _rows().get(capability):
        return row
    near = wording.similar_names(str(capability), map(str, _rows()))
    hint = "" if near else "'cuwheel gpus' lists the GPUs and their capabilities"
    raise UnknownNameError("compute capability", str(capability), near, hint=hint)


@lru_cache(maxsize=256)
def current(capability: Capability) -> Capability:
    """The same hardware under its present number: Thor was 10.1 before it became 11.0."""
    row = _rows().get(capability)
    return row.renamed_to if row and row.renamed_to else capability


def family(capability: Capability) -> tuple[Capability, ...]:
    """The capabilities that `f` code for this one serves; none where the table has no family."""
    row = _rows().get(capability)
    return tuple(current(each) for each in row.family) if row else ()


@cache
def current_capabilities() -> tuple[Capability, ...]:
    """All of them, oldest first, each under its present number."""
    return tuple(sorted(capability for capability, row in _rows().items() if not row.renamed_to))
