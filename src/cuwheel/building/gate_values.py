"""What the gate is asked and what it answers: frozen values."""

from __future__ import annotations

from msgspec import Struct, field

from cuwheel.building.recording.calls import Record
from cuwheel.building.tables import GateTable
from cuwheel.facts.arch import Arch
from cuwheel.support.finding import Finding


class Wanted(Struct, frozen=True, kw_only=True):
    """What a wheel was to be.

    `archs` and `ptx` as the plan has them (`sm_90a`, `compute_90`). `places`: folders of this machine that no library
    may name: the job's, the source's, the toolkit store's. `toolkit_root`: whose static archives are looked into for
    unplanned device code; empty if there is none. `record`: shows which archives were linked.
    """

    archs: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    cuda: str
    table: GateTable = field(default_factory=GateTable)
    places: tuple[str, ...] = ()
    toolkit_root: str = ""
    record: Record | None = None


class Listed(Struct, frozen=True, kw_only=True):
    """Unplanned device code that is accepted: it came from an archive of the toolkit, or is allowed."""

    library: str
    archs: tuple[Arch, ...]
    containers: int
    bytes: int
    origin: str  # `libcudadevrt.a`, or the word of `allow` that names it


class Result(Struct, frozen=True, kw_only=True):
    """`succeeded`: whether the wheel may leave the build. With `enabled = false` it always may."""

    findings: tuple[Finding, ...]
    listed: tuple[Listed, ...]
    succeeded: bool
