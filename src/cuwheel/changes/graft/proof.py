"""What shows that kernels of two builds do the same: a witness, or what both builds recorded of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.changes.graft.fitting import Misfit, Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.description import BuildRecord, Description

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


def by_witness(pair: Pair, base: Description | None, donor: Description | None) -> Proof | Misfit | None:
    """What a witness shows; None without one.

    The same code for one architecture is not the same source for another: what stands under
    `#if __CUDA_ARCH__ >= 900` is in no witness for sm_80. The hashes of both sources decide that, where both are known.
    """
    names = witness(pair)
    if not names:
        return None
    added = ", ".join(dict.fromkeys(each.words for match in pair.growing for each in match.added))
    shown = (f"the code for {', '.join(names)}", interface(pair))
    ours, theirs = (each.sources if each else "" for each in (base, donor))
    if not ours or not theirs:
        unseen = f"what the source has for {added} alone (#if __CUDA_ARCH__): no source is recorded in both"
        return Proof(kind="witness", witness=names, compared=shown, not_compared=(unseen,))
    if ours == theirs:
        return Proof(kind="witness", witness=names, compared=(*shown, "the sources of both, by their hashes"))
    return Misfit(
        rule="graft-other-record",
        why=f"the builds are of different sources: {_short(ours)} in the base, {_short(theirs)} in the donor. "
        f"The code for {', '.join(names)} is the same, but it does not show what a source has for {added} alone "
        "(#if __CUDA_ARCH__)",
        fix="build the donor from the source of the base",
    )


def interface(pair: Pair) -> str:
    return f"kernels, parameters and variables of {len(pair.growing)} containers"


def witness(pair: Pair) -> tuple[str, ...]:
    """The architectures that prove it: every container that grows has one in common, with the same code.

    Empty where one has none. That the code is the same was asked before.
    """
    found: dict[str, None] = {}
    for match in pair.growing:
        names = [ours.words for ours, _ in match.shared if ours.entry.kind == "cubin" and ours.interface.kernels]
        if not names and any(each.interface.kernels for each in match.added):
            return ()
        found |= dict.fromkeys(names)
    return tuple(found)


def other_record(base: Description | None, donor: Description | None) -> Misfit | None:
    """How the records of two builds differ; None where they are there and the same."""
    if base is None or donor is None or base.build is None or donor.build is None:
        neither = not _has(base) and not _has(donor)
        which = "neither of them has a record" if neither else f"the {_lacking(base)} has no record"
        return Misfit(
            rule="graft-no-proof",
            why="nothing shows that both were compiled from the same source with the same flags: no architecture is in "
            f"both, and {which} of its build",
            fix="build the donor for an architecture of the base too, as a witness",
        )
    differences = list(_differences(base, donor, base.build, donor.build))
    if not differences:
        return None
    return Misfit(
        rule="graft-other-record",
        why=f"the builds are not of the same things: {differences[0]}",
        fix="build both from the same source and settings: cuwheel build --shares",
        evidence=tuple(differences[1:]),
    )


def _has(description: Description | None) -> bool:
    return description is not None and description.build is not None


def _lacking(base: Description | None) -> str:
    return "donor" if _has(base) else "base"


def _differences(base: Description, donor: Description, ours: BuildRecord, theirs: BuildRecord) -> list[str]:
    tools, others = base.toolchain, donor.toolchain
    rows = (
        ("the source", base.sources, donor.sources),
        ("CUDA", base.cuda, donor.cuda),
        ("nvcc", tools and tools.nvcc, others and others.nvcc),
        ("the host compiler", tools and tools.host_compiler, others and others.host_compiler),
        ("the platform", tools and tools.platform, others and others.platform),
        ("the toolkit's archives", tools and tools.archives, others and others.archives),
        ("the list of architectures", " ".join(ours.listed), " ".join(theirs.listed)),
        ("the flags and variables", ours.flags, theirs.flags),
        ("the installed build requirements", ours.installed, theirs.installed),
    )
    return [
        f"{what}: {_short(one)} in the base, {_short(other)} in the donor" for what, one, other in rows if one != other
    ]


def _short(value: object) -> str:
    if isinstance(value, str):
        return f"{value[:16]}…" if len(value) == 64 else value or "unknown"  # noqa: PLR2004 - a SHA-256
    return "unknown" if value is None else "other files"
