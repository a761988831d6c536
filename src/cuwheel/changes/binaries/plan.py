"""What may be changed of a library, what is to become of it, entry by entry, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from cuwheel.machine.fleet import Machine
from cuwheel_core.device_code.libraries import Compression, Entry, Kind, Library
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding

Fate: TypeAlias = Literal["slimmed", "removed", "restored", "unchanged"]
# ELF files of these processors are rewritten; the largest page that a kernel of that machine uses.
PAGES = {"x86_64": 1 << 12, "aarch64": 1 << 16}
WINDOWS_MACHINES = ("x86_64", "aarch64")  # of these, PE files
# What is left of a payload, by how it was and will be stored: measured on bitsandbytes, NCCL and CuPy.
COMPRESSION_RATIOS: dict[tuple[Compression, Compression], float] = {
    ("none", "zstd"): 0.12,
    ("none", "lz4"): 0.2,
    ("lz4", "zstd"): 0.4,
}


class Dropped(Struct, frozen=True, kw_only=True):
    kind: Kind | Literal["bitcode"]
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


class AddedCode(Struct, frozen=True, kw_only=True):
    """Entries of one kind and architecture that a library got; `bytes` as stored, headers included."""

    kind: Kind
    arch: Arch
    count: int
    bytes: int


class FileChange(Struct, frozen=True, kw_only=True):
    """One library. In a dry run `bytes_after` and `recompressed` are estimates.

    `debug`: bytes of debug information that went with it. `added`: machine code made of its PTX.
    """

    path: str
    fate: Fate
    bytes_before: int
    bytes_after: int
    dropped: tuple[Dropped, ...] = ()
    recompressed: tuple[Recompressed, ...] = ()
    debug: int = 0
    added: tuple[AddedCode, ...] = ()


class EntryDecision(Struct, frozen=True, kw_only=True):
    """What becomes of an entry, and why. `index`: of the entry in the library's list."""

    index: int
    entry: Entry
    keep: bool
    recompress_to: Compression | None
    reason: str

    @property
    def bytes(self) -> int:
        """The size as stored, header included."""
        return self.entry.header_size + self.entry.bytes

    @property
    def bytes_after_estimate(self) -> int:
        if not self.keep:
            return 0
        if self.recompress_to is None:
            return self.bytes
        return self.bytes - int(self.entry.bytes * (1 - COMPRESSION_RATIOS[self.entry.compression, self.recompress_to]))


class LibraryPlan(Struct, frozen=True, kw_only=True):
    """`untouched`: what could be saved and is left, and what else to tell. `refused`: what would leave a target
    without code.

    A plan with `refused` findings keeps what the machines had. `machines`: those for which the driver must choose
    as before, None where nobody said; not in containers that lost relocatable code (`drops_relocatable`), nor in
    those that a workload never loads (`by_use`). `drop_signature`: of a signed Windows binary, whose signature no
    change survives. `debug`: bytes of the host code's debug information, which goes too. `made`: those of the entries
    that are not there yet: machine code for which the PTX in their containers will be compiled.
    """

    path: str
    entries: tuple[EntryDecision, ...]
    bytes_before: int
    untouched: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    machines: tuple[Machine, ...] | None = None
    drops_relocatable: bool = False
    by_use: bool = False
    drop_signature: bool = False
    debug: int = 0
    made: tuple[Entry, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.debug or self.made) or self.changes_code

    @property
    def changes_code(self) -> bool:
        return any(not each.keep or each.recompress_to for each in self.entries)

    @property
    def bytes_after_estimate(self) -> int:
        saved = sum(each.bytes - each.bytes_after_estimate for each in self.entries)
        return self.bytes_before + sum(each.header_size + each.bytes for each in self.made) - self.debug - saved

    @property
    def room_to_grow(self) -> int:
        """What the library takes that has both its PTX and what was made of it."""
        return self.bytes_before + sum(each.bytes for each in self.made) if self.made else 0

    @property
    def unchanged(self) -> FileChange:
        """The library, left as it is."""
        return FileChange(
            path=self.path, fate="unchanged", bytes_before=self.bytes_before, bytes_after=self.bytes_before
        )

    @property
    def expected(self) -> FileChange:
        """What it comes to without writing: sizes are estimates."""
        if not self.changes:
            return self.unchanged
        return self.changed(self.bytes_before, self.bytes_after_estimate, lambda each: each.bytes_after_estimate)

    def changed(self, bytes_before: int, bytes_after: int, stored: Callable[[EntryDecision], int | None]) -> FileChange:
        """`stored`: the size of an entry that was to be compressed anew; None where it was left as it was."""
        dropped: dict[tuple[Kind, Arch, str], tuple[int, int]] = {}
        anew: dict[tuple[Kind, Arch, str, Compression, Compression], tuple[int, int, int]] = {}
        for each in self.entries:
            entry = each.entry
            if not each.keep:
                count, size = dropped.get((entry.kind, entry.arch, entry.section), (0, 0))
                dropped[entry.kind, entry.arch, entry.section] = count + 1, size + each.bytes
            elif each.recompress_to and (new := stored(each)) is not None:
                key = (entry.kind, entry.arch, entry.section, entry.compression, each.recompress_to)
                count, before, after = anew.get(key, (0, 0, 0))
                anew[key] = count + 1, before + each.bytes, after + new
        return FileChange(
            path=self.path,
            fate="slimmed",
            bytes_before=bytes_before,
            bytes_after=bytes_after,
            debug=self.debug,
            added=tuple(
                AddedCode(
                    kind="cubin",
                    arch=arch,
                    count=sum(each.arch == arch for each in self.made),
                    bytes=sum(each.header_size + each.bytes for each in self.made if each.arch == arch),
                )
                for arch in dict.fromkeys(each.arch for each in self.made)
            ),
            dropped=tuple(
                Dropped(kind=kind, arch=arch, section=section, count=count, bytes=size)
                for (kind, arch, section), (count, size) in dropped.items()
            ),
            recompressed=tuple(
                Recompressed(
                    kind=kind,
                    arch=arch,
                    section=section,
                    before=was,
                    after=becomes,
                    count=count,
                    bytes_before=before,
                    bytes_after=after,
                )
                for (kind, arch, section, was, becomes), (count, before, after) in anew.items()
            ),
        )


# What of a library may be changed, by its survey: which kinds at all, and which of its containers.

# What a reader says of a file whose parts cannot be trusted to be what they seem.
_DAMAGE = frozenset({"fatbin-damaged", "registration-damaged", "sections-overlap"})


class Reason(NamedTuple):
    """Why a whole library is left as it is."""

    rule: str
    words: str
    fix: str = ""


def why_untouchable(library: Library, *, drop_signature: bool) -> Reason | None:
    if damage := next((each for each in library.findings if each.rule in _DAMAGE), None):
        return Reason("damaged", damage.message, damage.fix)
    if not library.entries:
        return None
    if library.format not in ("elf", "pe") or library.type not in ("shared", "executable"):
        return Reason("not-linked", "it is not linked yet: leave code out when building it")
    if library.machine not in (WINDOWS_MACHINES if library.format == "pe" else PAGES):
        return Reason("other-machine", f"binaries for {library.machine} are not rewritten")
    if library.signed and not drop_signature:
        return Reason("signed", "it is signed, and no change leaves the signature valid", "add --drop-signature")
    return None


def registered_containers(library: Library) -> frozenset[int]:
    """The containers that the runtime registers, in the sections made for them: those that may be changed."""
    if not library.registration.wrappers:
        return frozenset()
    inside = (index for index, each in enumerate(library.containers) if each.section in FATBIN_SECTIONS)
    return frozenset(inside) - frozenset(library.registration.unnamed)
