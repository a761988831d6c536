"""What grafting or splitting came to, or would come to: frozen values."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.changes.graft.proof import Proof
from cuwheel.device_code.libraries import Kind
from cuwheel.facts.arch import Arch
from cuwheel.support.finding import Finding


class AddedCode(Struct, frozen=True, kw_only=True):
    """Entries of one kind and architecture that a library got; `bytes` as stored, headers included."""

    kind: Kind
    arch: Arch
    count: int
    bytes: int


class GraftedLibrary(Struct, frozen=True, kw_only=True):
    """`containers`: how many of its containers got code. `proof` is null where nothing was added or it was refused."""

    path: str
    bytes_before: int
    bytes_after: int
    containers: int
    added: tuple[AddedCode, ...]
    proof: Proof | None


class WheelSize(Struct, frozen=True, kw_only=True):
    bytes_before: int
    bytes_after: int


class Outcome(Struct, frozen=True, kw_only=True):
    """`outputs`: what was written, or would be. `refused`: nothing was written; the findings say which rule decided."""

    base: str
    donors: tuple[str, ...] = ()
    libraries: tuple[GraftedLibrary, ...] = ()
    findings: tuple[Finding, ...] = ()
    outputs: tuple[str, ...] = ()
    written: bool = False
    refused: bool = False
    wheel: WheelSize | None = None


def nothing_new(name: str) -> Finding:
    return Finding(
        rule="graft-nothing-new",
        severity="note",
        message=f"{name} already has every architecture of the donors: nothing was written",
    )
