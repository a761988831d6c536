"""What a library would get from its donors, and whether that is proven: decided, and nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.graft import fitting, host, proof
from cuwheel.changes.graft.fitting import Misfit, Pair
from cuwheel.changes.graft.outcome import AddedCode, GraftedLibrary
from cuwheel.changes.graft.proof import Proof
from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.changes.graft.note import Origin
    from cuwheel.changes.graft.subject import Held, Subject
    from cuwheel.device_code.description import Description
    from cuwheel.device_code.fatbin import RawEntry
    from cuwheel.support.finding import Finding

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
        return GraftedLibrary(
            path=self.base.name,
            bytes_before=self.base.buffer.size,
            bytes_after=after,
            containers=len(self.containers),
            added=_rows(self.added),
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
            return _refused(base, (*findings, fitting.finding(base.name, misfit)))
        pair = fitting.matched(base, donor, state)
        if not pair.growing:
            continue
        shown, misfit = _shown(pair, about, of_donor)
        if misfit:
            findings.append(fitting.finding(base.name, misfit, forced=force))
            if not force:
                return _refused(base, tuple(findings))
        proofs.append(shown or Proof(kind="forced"))
        for match in pair.growing:
            state[match.number] = _merged(match.there, match.added, (about.origin, of_donor.origin))
            added += match.added
    changed = {number: held for number, held in enumerate(state) if held != base.held[number]}
    made = Decision(base, changed, tuple(added), proof.weakest(proofs), tuple(findings), refused=False)
    try:
        if changed:
            rewrite.draft_grown(base.buffer, made.contents, None, drop_signature=base.drop_signature)
    except MalformedError as error:
        misfit = Misfit(rule="graft-unsupported", why=error.problem)
        return _refused(base, (*findings, fitting.finding(base.name, misfit)))
    return made


def _refused(base: Subject, findings: tuple[Finding, ...]) -> Decision:
    return Decision(base, {}, (), None, findings, refused=True)


def _shown(pair: Pair, about: Known, of_donor: Known) -> tuple[Proof | None, Misfit | None]:
    """What proves that the donor's code fits, or why nothing does."""
    if misfit := fitting.misfit(pair):
        return None, misfit
    if isinstance(seen := proof.by_witness(pair, about.description, of_donor.description), Misfit):
        return None, seen
    if seen:
        return seen, None
    same_origin = about.origin is not None and about.origin == of_donor.origin
    misfit = None if same_origin else proof.other_record(about.description, of_donor.description)
    if misfit and misfit.rule == "graft-other-record":
        return None, misfit
    if differs := host.difference(pair.base, pair.donor):
        fix = "build the donor with the host compiler and flags of the base, or for one of its architectures too"
        return None, Misfit(rule="graft-other-host", why=f"the host sides are not the same: {differs}", fix=fix)
    if misfit:
        return None, misfit
    what = "the wheel that both are parts of" if same_origin else "sources, flags, toolchain and list of both builds"
    return Proof(kind="record", compared=(what, proof.interface(pair), "the host sides")), None


def _merged(there: Sequence[Held], added: Sequence[Held], origins: Sequence[Origin | None]) -> tuple[Held, ...]:
    """As nvcc orders them, where the base does; else behind what is there. Parts of one wheel: as they were in it."""
    every = (*there, *added)
    names = {_name(each) for each in every}
    orders = [order for origin in filter(None, origins) for order in origin.orders if names <= set(order)]
    if orders:
        nearest = min(orders, key=len)
        return tuple(sorted(every, key=lambda each: nearest.index(_name(each))))
    if list(there) == sorted(there, key=_usual):
        return tuple(sorted(every, key=_usual))
    return every


def _name(held: Held) -> str:
    return str(held.entry.arch)


def _usual(held: Held) -> tuple[int, str, int]:
    arch = held.entry.arch
    return arch.capability.number, arch.suffix, _KINDS.get(held.entry.kind, len(_KINDS))


def _rows(added: Sequence[Held]) -> tuple[AddedCode, ...]:
    sums: dict[tuple[str, str], list[Held]] = {}
    for each in added:
        sums.setdefault(each.code, []).append(each)
    return tuple(
        AddedCode(
            kind=held[0].entry.kind,
            arch=held[0].entry.arch,
            count=len(held),
            bytes=sum(each.entry.header_size + each.entry.bytes for each in held),
        )
        for held in sums.values()
    )
