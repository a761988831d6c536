"""What is decided about a library, and what became of it: frozen values."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.device_code.libraries import Compression, Entry, Kind
from cuwheel.facts.arch import Arch
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import Finding
from cuwheel.tracing.traced import Workload


class SlimOptions(Struct, frozen=True, kw_only=True):
    """`targets`: the machines it must still run on as before; None keeps all architectures.

    `future`: keep PTX that later GPUs can use. `recompress`: store what is raw or LZ4 as ZSTD, or as LZ4 where a
    target's driver is too old for it. `drop_relocatable`: where linked code covers every target. `strip_debug`: where
    the same code is beside it without. `force`: drop relocatable code that a target needs, and all of a library that
    has nothing for any target. `workload`: keep only what it loads. `drop_signature`: of a signed Windows binary,
    whose signature no change survives.
    """

    targets: tuple[Machine, ...] | None
    future: bool = False
    recompress: bool = False
    drop_relocatable: bool = False
    strip_debug: bool = False
    force: bool = False
    workload: Workload | None = None
    drop_signature: bool = False


class EntryDecision(Struct, frozen=True, kw_only=True):
    """What becomes of an entry, and why. `index`: of the entry in the library's list."""

    index: int
    entry: Entry
    keep: bool
    recompress_to: Compression | None
    reason: str

    @property
    def bytes(self) -> int:
        """As it is stored, header included."""
        return self.entry.header_size + self.entry.bytes


class LibraryPlan(Struct, frozen=True, kw_only=True):
    """`untouched`: what could be saved and is left, and why. `refused`: what would leave a target without code.

    A plan with `refused` findings keeps what the targets had.
    """

    path: str
    options: SlimOptions
    entries: tuple[EntryDecision, ...]
    untouched: tuple[Finding, ...]
    refused: tuple[Finding, ...]
    bytes_before: int
    bytes_after_estimate: int

    @property
    def changes(self) -> bool:
        return any(not each.keep or each.recompress_to for each in self.entries)


class Dropped(Struct, frozen=True, kw_only=True):
    kind: Kind
    arch: Arch
    section: str
    count: int
    bytes: int


class Recompressed(Struct, frozen=True, kw_only=True):
    kind: Kind
    arch: Arch
    section: str
    before: Compression
    after: Compression
    count: int
    bytes_before: int
    bytes_after: int


class FileResult(Struct, frozen=True, kw_only=True):
    """`written` is false where nothing was to be changed: no target file was made."""

    path: str
    written: bool
    bytes_before: int
    bytes_after: int
    dropped: tuple[Dropped, ...]
    recompressed: tuple[Recompressed, ...]
    findings: tuple[Finding, ...]
