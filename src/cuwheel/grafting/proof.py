"""What shows that kernels of two builds do the same: a witness, or what both builds recorded of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.grafting.fitting import Misfit, Pair

if TYPE_CHECKING:
    from cuwheel.inspection.description import BuildRecord, Description

ProofKind: TypeAlias = Literal["witness", "record", "forced"]


class Proof(Struct, frozen=True, kw_only=True):
    """`compared`: what was found to be the same, in words. `witness`: architectures of both, with the same code."""

    kind: ProofKind
    witness: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()


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
