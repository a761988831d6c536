"""`cuwheel repair`: the answer and its document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.changes.repair.decision import Fact, SearchPath
from cuwheel.report.document import (
    Amount,
    Column,
    Document,
    Facts,
    Findings,
    Heading,
    Paragraph,
    Row,
    Table,
    Verbatim,
    hidden,
)
from cuwheel.support.finding import Finding
from cuwheel.support.wording import file_name, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.changes.repair.decision import Decision, Repaired
    from cuwheel.report.document import Block

Outcome: TypeAlias = Literal["repaired", "unchanged", "refused"]
_SHOWN = 12
_FATES = {
    "kept-out": "kept out",
    "grafted": "grafted",
    "inside": "inside",
    "system": "system",
    "removed": "removed",
    "missing": "missing",
}


class RepairedWheel(Struct, frozen=True, kw_only=True):
    """One wheel. `tags`: its platforms afterwards; `because`: what keeps them from being lower.

    `bundled`: what NVIDIA's libraries that were found would have added, unpacked. `output`: null where nothing is
    written. `grafted`: the files that are new in it.
    """

    wheel: str
    outcome: Outcome
    machine: str | None
    policy: str | None
    because: tuple[str, ...]
    tags: tuple[str, ...]
    output: str | None
    bytes_before: int
    bytes_after: int | None
    bundled: int
    changes: tuple[str, ...]
    grafted: tuple[str, ...]
    requires: tuple[str, ...]
    libraries: tuple[Fact, ...]
    paths: tuple[SearchPath, ...]
    findings: tuple[Finding, ...]


class Repair(Struct, frozen=True, kw_only=True):
    """With `dry_run` nothing was written, and the outcomes are those that would be."""

    schema: Literal["cuwheel.repair/1"] = "cuwheel.repair/1"
    dry_run: bool
    wheels: tuple[RepairedWheel, ...]

    @property
    def succeeded(self) -> bool:
        return all(each.outcome != "refused" for each in self.wheels)


def answer_of(done: Sequence[tuple[Decision, Repaired | None]], folder: Path, *, dry_run: bool) -> Repair:
    planned = str(folder) if dry_run else None
    return Repair(dry_run=dry_run, wheels=tuple(wheel_of(each, made, planned) for each, made in done))


def wheel_of(decision: Decision, made: Repaired | None = None, folder: str | None = None) -> RepairedWheel:
    """`made`: None where it was refused, or only decided; `folder`: where it would be written."""
    outcome: Outcome = "refused" if decision.refused else "repaired" if decision.changes else "unchanged"
    planned = f"{folder}/{decision.file_name}" if folder and not decision.refused else None
    return RepairedWheel(
        wheel=str(decision.wheel),
        outcome=outcome,
        machine=decision.machine,
        policy=decision.policy,
        because=decision.because,
        tags=decision.platforms,
        output=str(made.path) if made else planned,
        bytes_before=decision.bytes_before,
        bytes_after=made.bytes_after if made else None,
        bundled=decision.bundled,
        changes=decision.changes,
        grafted=made.grafted if made else (),
        requires=decision.requires,
        libraries=decision.libraries,
        paths=decision.paths,
        findings=(*decision.findings, *(made.findings if made else ())),
    )


def document(answer: Repair, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    for each in answer.wheels:
        blocks += _wheel(each, dry_run=answer.dry_run, verbose=verbose)
    return Document("cuwheel repair", tuple(blocks))


def _wheel(each: RepairedWheel, *, dry_run: bool, verbose: bool) -> Iterator[Block]:
    yield Heading(file_name(each.wheel))
    yield Paragraph("\n".join(_sums(each, dry_run=dry_run)))
    yield from _libraries(each, verbose=verbose)
    yield from _search_paths(each.paths, verbose=verbose)
    if each.requires and each.outcome != "refused":
        yield Heading("Requirements added")
        yield Verbatim(tuple(f"  {line}" for line in each.requires))
    if each.findings:
        yield Heading("Findings")
        yield Findings(each.findings)
    if verbose:
        yield from _trails(each.libraries)
    if each.output and not dry_run:
        yield Paragraph(f"written: {each.output}")


def _sums(each: RepairedWheel, *, dry_run: bool) -> Iterator[str]:
    would = "would be " if dry_run else ""
    if each.outcome == "refused":
        yield "not repaired, nothing was written (see the findings)"
    elif each.outcome == "unchanged":
        yield "nothing to do" if dry_run else "nothing to do: it is copied unchanged"
    else:
        yield f"{would}repaired: {', '.join(each.changes)}"
    if each.policy and each.outcome != "refused":
        why = f" (not lower: {each.because[0]})" if each.because else ""
        yield f"tag: {'.'.join(each.tags)}{why}"
    yield from _sizes(each)


def _sizes(each: RepairedWheel) -> Iterator[str]:
    if each.bytes_after is not None and each.outcome == "repaired":
        yield f"size: {size(each.bytes_before)} → {size(each.bytes_after)}"
    found = [fact for fact in each.libraries if fact.fate == "kept-out" and fact.bytes]
    if found:
        count = "library" if len(found) == 1 else f"{len(found)} libraries"
        yield f"kept out: {size(each.bundled)}, unpacked, of the {count} that bundling would have added"


def _libraries(each: RepairedWheel, *, verbose: bool) -> Iterator[Block]:
    shown = [fact for fact in each.libraries if verbose or not (fact.fate == "system" or fact.indirect)]
    if not shown:
        return
    columns = (
        Column("library", wrap=False),
        Column("fate", wrap=False),
        Column("size", numeric=True),
        Column("found", numeric=True),
        Column("why"),
    )
    vias: dict[str, str] = {}
    for fact in shown:
        if folder := _folder(fact):
            vias.setdefault(folder, fact.via)
    yield Table(columns, tuple(_row(fact, list(vias)) for fact in shown))
    if hidden := len(each.libraries) - len(shown):
        yield Paragraph(f"  and {hidden} of the system, or needed only by NVIDIA's own (--verbose)")
    elif any(fact.indirect for fact in shown):
        yield Paragraph("  * needed only by NVIDIA's own libraries")
    if vias:
        rows = (Row(f"found in {number}", folder, origin=via) for number, (folder, via) in enumerate(vias.items(), 1))
        yield Facts(tuple(rows))


def _folder(fact: Fact) -> str:
    """Where it is on this machine."""
    return fact.place.rpartition("/")[0] if fact.place and fact.fate != "inside" else ""


def _row(fact: Fact, folders: Sequence[str]) -> tuple[str | Amount, ...]:
    place = _folder(fact)
    return (
        fact.soname,
        _FATES[fact.fate] + (" *" if fact.indirect else ""),
        Amount(size(fact.bytes) if fact.bytes else "", fact.bytes),
        f"in {folders.index(place) + 1}" if place else "no" if fact.trail else "",
        _why(fact),
    )


def _why(fact: Fact) -> str:
    if fact.fate == "inside":
        return fact.place or fact.reason
    if fact.fate == "kept-out" and fact.packages and fact.reason == "NVIDIA's":
        return " or ".join(fact.packages)
    return fact.reason


def _search_paths(paths: Sequence[SearchPath], *, verbose: bool) -> Iterator[Block]:
    shown = [each for each in paths if verbose or each.changes]
    if not shown:
        return
    by_python = all(each.path.endswith(".py") for each in shown)
    yield Heading("Folders for DLLs (os.add_dll_directory)" if by_python else "Search paths (RPATH)")
    rows = []
    for each in shown if verbose else shown[:_SHOWN]:
        rows.append(
            Row(
                each.path if by_python else file_name(each.path),
                _joined(each.after),
                origin=f"CUDA {each.cuda}" if each.cuda else "",
            )
        )
        if gone := [entry for entry in each.before if entry not in each.after]:
            rows.append(Row("", f"without {_joined(gone)}"))
    yield Facts(tuple(rows))
    if not verbose and len(shown) > _SHOWN:
        yield hidden(len(shown) - _SHOWN)


def _joined(entries: Sequence[str]) -> str:
    return " ".join(entries) or "none"


def _trails(libraries: Sequence[Fact]) -> Iterator[Block]:
    for fact in libraries:
        if fact.trail and not fact.indirect:
            yield Heading(f"{fact.soname} was searched for in")
            yield Facts(tuple(Row(each.found, each.folder, origin=each.via) for each in fact.trail))
