"""What a library would get from its donors, and what proves that it fits: decided, and nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.binaries.plan import AddedCode
from cuwheel.changes.graft import fitting, host
from cuwheel.changes.graft.answer import GraftedLibrary, Proof, weakest
from cuwheel.changes.graft.fitting import Misfit, Pair
from cuwheel_core.errors import MalformedError
from cuwheel_core.support.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.changes.graft.answer import Origin
    from cuwheel.changes.graft.subject import Held, Subject
    from cuwheel.device_code.description import Description
    from cuwheel_core.device_code.fatbin import RawEntry
    from cuwheel_core.support.finding import Finding

_KINDS = {"ptx": 0, "cubin": 1}


class Known(NamedTuple):
    """What the wheel of a library says of itself; `origin`: the wheel that it is a part of."""

    description: Description | None = None
    origin: Origin | None = None


class Decision(NamedTuple):
    """`containers`: what those hold that change, by their number. `findings`: what decided against it, or is forced."""

    base: Subject
    containers: Mapping[int, Sequence[Held]]
    added: tuple[Held, ...]
    proof: Proof | None
    findings: tuple[Finding, ...]
    refused: bool

    @property
    def contents(self) -> dict[int, list[RawEntry | rewrite.Foreign]]:
        return {
            number: [
                each.raw if each.subject is self.base else rewrite.Foreign(each.subject.buffer, each.raw)
                for each in held
            ]
            for number, held in self.containers.items()
        }

    def library(self, after: int) -> GraftedLibrary:
        sums: dict[tuple[str, str], list[Held]] = {}
        for each in self.added:
            sums.setdefault(each.code, []).append(each)
        return GraftedLibrary(
            path=self.base.name,
            bytes_before=self.base.buffer.size,
            bytes_after=after,
            containers=len(self.containers),
            added=tuple(
                AddedCode(
                    kind=held[0].entry.kind,
                    arch=held[0].entry.arch,
                    count=len(held),
                    bytes=sum(each.entry.header_size + each.entry.bytes for each in held),
                )
                for held in sums.values()
            ),
            proof=self.proof,
        )


def decide(base: Subject, about: Known, donors: Sequence[tuple[Subject, Known]], *, force: bool = False) -> Decision:
    """One donor after the other; the first misfit that is not forced ends it."""
    state = list(base.held)
    added: list[Held] = []
    findings: list[Finding] = []
    proofs: list[Proof] = []
    for donor, of_donor in donors:
        misfit = fitting.possible(base, donor)
        if misfit:
            return _refused(base, (*findings, fitting.misfit_finding(base.name, misfit)))
        pair = fitting.matched(base, donor, state)
        if not pair.growing:
            continue
        shown, misfit = _proven(pair, about, of_donor)
        if misfit:
            findings.append(fitting.misfit_finding(base.name, misfit, forced=force))
            if not force:
                return _refused(base, tuple(findings))
        proofs.append(shown or Proof(kind="forced"))
        for match in pair.growing:
            state[match.number] = _in_order(match.present, match.added, (about.origin, of_donor.origin))
            added += match.added
    changed = {number: held for number, held in enumerate(state) if held != base.held[number]}
    made = Decision(base, changed, tuple(added), weakest(proofs), tuple(findings), refused=False)
    try:
        if changed:
            rewrite.draft_grown(base.buffer, made.contents, None, drop_signature=base.drop_signature)
    except MalformedError as error:
        misfit = Misfit(rule="graft-unsupported", why=error.problem)
        return _refused(base, (*findings, fitting.misfit_finding(base.name, misfit)))
    return made


def _refused(base: Subject, findings: tuple[Finding, ...]) -> Decision:
    return Decision(base, {}, (), None, findings, refused=True)


def _proven(pair: Pair, about: Known, of_donor: Known) -> tuple[Proof | None, Misfit | None]:
    """What proves that the donor's code fits, or why nothing does."""
    if misfit := fitting.misfit(pair):
        return None, misfit
    if isinstance(seen := _by_witness(pair, about.description, of_donor.description), Misfit):
        return None, seen
    if seen:
        return seen, None
    same_origin = about.origin is not None and about.origin == of_donor.origin
    misfit = None if same_origin else other_record(about.description, of_donor.description)
    if misfit and misfit.rule == "graft-other-record":
        return None, misfit
    if differs := host.difference(pair.base, pair.donor):
        return None, Misfit(rule="graft-other-host", why=f"the host sides are not the same: {differs}")
    if misfit:
        return None, misfit
    what = "the wheel that both are parts of" if same_origin else "sources, flags, toolchain and list of both builds"
    return Proof(kind="record", compared=(what, _interface(pair), "the host sides")), None


def _in_order(present: Sequence[Held], added: Sequence[Held], origins: Sequence[Origin | None]) -> tuple[Held, ...]:
    """Orders the code as nvcc does, where the base does; else puts it behind what is there.

    Parts of one wheel stay in its order.
    """
    every = (*present, *added)
    names = {each.words for each in every}
    orders = [order for origin in filter(None, origins) for order in origin.orders if names <= set(order)]
    if orders:
        nearest = min(orders, key=len)
        return tuple(sorted(every, key=lambda each: nearest.index(each.words)))
    if list(present) == sorted(present, key=_usual):
        return tuple(sorted(every, key=_usual))
    return every


def _usual(held: Held) -> tuple[int, str, int]:
    arch = held.entry.arch
    return arch.capability.number, arch.suffix, _KINDS.get(held.entry.kind, len(_KINDS))


# What shows that kernels of two builds do the same: a witness, or what both builds recorded of themselves.


def _by_witness(pair: Pair, base: Description | None, donor: Description | None) -> Proof | Misfit | None:
    """What a witness shows; None without one.

    The same code for one architecture is not the same source for another: what stands under
    `#if __CUDA_ARCH__ >= 900` is in no witness for sm_80. The hashes of both sources decide that, where both are known.
    """
    names = witness(pair)
    if not names:
        return None
    added = ", ".join(dict.fromkeys(each.words for match in pair.growing for each in match.added))
    shown = (f"the code for {', '.join(names)}", _interface(pair))
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


def _interface(pair: Pair) -> str:
    return f"kernels, parameters and variables of {counted(len(pair.growing), 'container')}"


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
        which = "neither of them has a record" if neither else f"the {'donor' if _has(base) else 'base'} has no record"
        return Misfit(
            rule="graft-no-proof",
            why="nothing shows that both were compiled from the same source with the same flags: no architecture is in "
            f"both, and {which} of its build",
        )
    tools, others = base.toolchain, donor.toolchain
    rows = (
        ("the source", base.sources, donor.sources),
        ("CUDA", base.cuda, donor.cuda),
        ("nvcc", tools and tools.nvcc, others and others.nvcc),
        ("the host compiler", tools and tools.host_compiler, others and others.host_compiler),
        ("the platform", tools and tools.platform, others and others.platform),
        ("the toolkit's archives", tools and tools.archives, others and others.archives),
        ("the list of architectures", " ".join(base.build.listed), " ".join(donor.build.listed)),
        ("the flags and variables", base.build.flags, donor.build.flags),
        ("the installed build requirements", base.build.installed, donor.build.installed),
    )
    differences = [
        f"{what}: {_short(one)} in the base, {_short(other)} in the donor" for what, one, other in rows if one != other
    ]
    if not differences:
        return None
    return Misfit(
        rule="graft-other-record",
        why=f"the builds are not of the same things: {differences[0]}",
        evidence=tuple(differences[1:]),
    )


def _has(description: Description | None) -> bool:
    return description is not None and description.build is not None


def _short(value: object) -> str:
    if isinstance(value, str):
        return f"{value[:16]}…" if len(value) == 64 else value or "unknown"  # noqa: PLR2004 - a SHA-256
    return "unknown" if value is None else "other files"
