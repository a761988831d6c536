"""What grafting or splitting came to, or would come to; and the note of it that stays in the wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuwheel.changes.binaries.plan import AddedCode
from cuwheel.support import codec
from cuwheel.support.answer import Answer
from cuwheel.version import __version__
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts.predict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from cuwheel.changes.graft.request import GraftRequest
    from cuwheel.wheel.file import WheelFile

ProofKind: TypeAlias = Literal["witness", "record", "forced"]


class Proof(Struct, frozen=True, kw_only=True):
    """`compared`: what was found to be the same, in words. `witness`: architectures of both, with the same code.

    `not_compared`: where the two could differ all the same, because nothing that is there shows it.
    """

    kind: ProofKind
    witness: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()


def weakest(proofs: Sequence[Proof]) -> Proof | None:
    """One for several libraries or donors: what holds of each of them."""
    if not proofs:
        return None
    order = ("forced", "record", "witness")
    return Proof(
        kind=min((each.kind for each in proofs), key=order.index),
        witness=tuple(dict.fromkeys(name for each in proofs for name in each.witness)),
        compared=tuple(dict.fromkeys(text for each in proofs for text in each.compared)),
        not_compared=tuple(dict.fromkeys(text for each in proofs for text in each.not_compared)),
    )


class GraftedLibrary(Struct, frozen=True, kw_only=True):
    """`containers`: how many of its containers got code.

    `proof` is null where nothing was added, or it was refused, or the code was made of the library's own PTX.
    """

    path: str
    bytes_before: int
    bytes_after: int
    containers: int
    added: tuple[AddedCode, ...]
    proof: Proof | None


class CompiledCode(Struct, frozen=True, kw_only=True):
    """Machine code that was made of PTX in the library's own container.

    `ptxas`: the version that made it; in a dry run the CUDA whose ptxas will. `kept`: it was made for another file, or
    in a run before, and came from the cache.
    """

    library: str
    container: int
    arch: Arch
    source: Arch = msgspec.field(name="from")
    ptxas: str
    kept: bool = False


class Reached(Struct, frozen=True, kw_only=True):
    """What `check` says of a library's device code on a machine that it was compiled for, before and after."""

    library: str
    machine: str
    before: Outcome
    after: Outcome


class WheelSize(Struct, frozen=True, kw_only=True):
    bytes_before: int
    bytes_after: int


class Graft(Answer, frozen=True, kw_only=True):
    """`added`: over all libraries. `proof`: what holds for each of them; null where nothing was added.

    `outputs`: what was written, or in a dry run would be. `action`: `split` makes a wheel per architecture, `compile`
    machine code of the base's own PTX (`compiled`, `reached`; in its dry run sizes are estimates). `seconds`: what
    compiling was estimated to take of one core, at least and at most. `undo`: the command that takes back what was done
    in place. `refused`: nothing was written; the findings say which rule decided.
    """

    schema: Literal["cuwheel.graft/1"] = "cuwheel.graft/1"
    action: Literal["graft", "split", "compile"] = "graft"
    base: str
    donors: tuple[str, ...]
    added: tuple[AddedCode, ...]
    proof: Proof | None
    libraries: tuple[GraftedLibrary, ...]
    dry_run: bool
    written: bool
    refused: bool
    outputs: tuple[str, ...]
    wheel: WheelSize | None
    findings: tuple[Finding, ...]
    compiled: tuple[CompiledCode, ...] = ()
    reached: tuple[Reached, ...] = ()
    seconds: tuple[float, float] | None = None
    undo: str | None = None

    @property
    def succeeded(self) -> bool:
        return not self.refused


def answer_of(
    request: GraftRequest,
    base: Path,
    donors: Iterable[Path] = (),
    *,
    libraries: tuple[GraftedLibrary, ...] = (),
    findings: tuple[Finding, ...] = (),
    outputs: Iterable[Path] = (),
    written: bool = False,
    refused: bool = False,
    wheel: WheelSize | None = None,
) -> Graft:
    """`outputs`: what was written, or would be."""
    sums: dict[tuple[str, str], list[AddedCode]] = {}
    for row in (row for each in libraries for row in each.added):
        sums.setdefault((row.kind, row.arch), []).append(row)
    added = tuple(
        replace(same[0], count=sum(each.count for each in same), bytes=sum(each.bytes for each in same))
        for same in sums.values()
    )
    return Graft(
        action="split" if request.split else "compile" if request.compile else "graft",
        base=str(base),
        donors=tuple(map(str, donors)),
        added=added,
        proof=weakest([each.proof for each in libraries if each.proof]),
        libraries=libraries,
        dry_run=request.dry_run,
        written=written,
        refused=refused,
        outputs=tuple(map(str, outputs)),
        wheel=wheel,
        findings=findings,
    )


# `cuwheel-graft.json` in a dist-info folder: what was put into a wheel, from where, and what proved that it fits.

GRAFT_NOTE = "cuwheel-graft.json"
_LIMIT = 1 << 22


class Giver(Struct, frozen=True, kw_only=True):
    """A wheel that went in, by its content."""

    file: str
    version: str
    sha256: str


class Origin(Struct, frozen=True, kw_only=True):
    """The wheel that a part was split from. `archs`: all that it had; `orders`: how its containers have them."""

    sha256: str
    version: str
    archs: tuple[str, ...]
    orders: tuple[tuple[str, ...], ...]


class Note(Struct, frozen=True, kw_only=True):
    """`forced`: what spoke against it, and was overruled by a person. `compiled`: what was made of its own PTX.

    Of a wheel that was grafted before, `donors`, `libraries`, `forced` and `compiled` of then come first.
    """

    schema: Literal["cuwheel.graft-note/1"] = "cuwheel.graft-note/1"
    tool: str = f"cuwheel {__version__}"
    base: Giver | None = None
    donors: tuple[Giver, ...] = ()
    libraries: tuple[GraftedLibrary, ...] = ()
    forced: tuple[Finding, ...] = ()
    part_of: Origin | None = None
    compiled: tuple[CompiledCode, ...] = ()


def note_of(earlier: Note | None, **new: Any) -> bytes:  # noqa: ANN401 - fields of Note
    """The note of a distribution; `earlier`: the one that is there already, if any: what was forced then still is."""
    made, before = Note(**new), earlier or Note()
    return codec.indented(
        replace(
            made,
            donors=(*before.donors, *made.donors),
            libraries=(*before.libraries, *made.libraries),
            forced=(*before.forced, *made.forced),
            # The same wheel, whether a piece was compiled for it or before.
            compiled=(*before.compiled, *(replace(each, kept=False) for each in made.compiled)),
        )
    )


def note_of_distribution(
    before: bytes | None,
    names: Mapping[str, str],
    libraries: Iterable[GraftedLibrary],
    compiled: Iterable[CompiledCode],
    base: Giver | None = None,
) -> bytes:
    """The note of one among several distributions. `names`: of its libraries, as its RECORD has them."""
    return note_of(
        codec.understood(before, Note) if before else None,
        base=base,
        libraries=tuple(replace(each, path=names[each.path]) for each in libraries if each.path in names),
        compiled=tuple(replace(each, library=names[each.library]) for each in compiled if each.library in names),
    )


def read_note(wheel: WheelFile) -> Note | None:
    """Reads the note of a wheel; None where there is none, or none that can be understood: it proves nothing then."""
    name = wheel.info + GRAFT_NOTE
    there = name in wheel.members and wheel.sizes[name] <= _LIMIT
    return codec.understood(wheel.read(name), Note) if there else None
