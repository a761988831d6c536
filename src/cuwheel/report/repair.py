"""The document of `cuwheel repair`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cuwheel.changes.repair.answer import Fact, Repair, RepairedWheel, SearchPath
from cuwheel.report.document import Block, Document, Findings, Heading, Paragraph, Verbatim, findings_section, hidden
from cuwheel.report.tables import Amount, Facts, Row, figure, short, table
from cuwheel_core.support import printable
from cuwheel_core.support.wording import file_name, size
from cuwheel_core.wheel.tags import release_of_file

__all__ = ["Repair", "RepairedWheel", "document"]
_SHOWN = 12
_FATES = {
    "kept-out": "kept out",
    "grafted": "grafted",
    "inside": "inside",
    "system": "system",
    "removed": "removed",
    "missing": "missing",
}


def document(answer: Repair, *, verbose: bool) -> Document:
    blocks: list[Block] = []
    for each in answer.wheels:
        blocks += _wheel(each, dry_run=answer.dry_run, verbose=verbose)
    return Document("cuwheel repair", tuple(blocks))


def _wheel(each: RepairedWheel, *, dry_run: bool, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{release_of_file(file_name(each.wheel))}: {_outcome(each, dry_run=dry_run)}")
    yield Paragraph(printable.Lines(_sums(each)))
    errors = tuple(finding for finding in each.findings if finding.severity == "error")
    if errors:  # what refuses it comes before what else there is to say
        yield Findings(errors)
    yield from _libraries(each, verbose=verbose)
    yield from _search_paths(each.paths, verbose=verbose)
    if each.requires and each.outcome != "refused":
        yield Heading("Requirements added")
        yield Verbatim(tuple(f"  {line}" for line in each.requires))
    yield from findings_section(finding for finding in each.findings if finding.severity != "error")
    if verbose:
        yield from _trails(each.libraries)
    if each.output and not dry_run:
        yield Paragraph(f"written: {each.output}")


def _outcome(each: RepairedWheel, *, dry_run: bool) -> str:
    if each.outcome == "refused":
        return "cannot be repaired, nothing was written"
    if each.outcome == "unchanged":
        return "nothing to do" if dry_run else "nothing to do, it is copied unchanged"
    return f"{'would be repaired' if dry_run else 'repaired'}: {', '.join(each.changes)}"


def _sums(each: RepairedWheel) -> Iterator[str]:
    yield f"wheel: {file_name(each.wheel)}"
    if each.policy and each.outcome != "refused":
        why = f" (not lower: {each.because[0]})" if each.because else ""
        yield f"tag: {'.'.join(each.tags)}{why}"
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
    columns = (short("library"), short("fate"), figure("size"), figure("found"), "why")
    vias: dict[str, str] = {}
    for fact in shown:
        if folder := _folder(fact):
            vias.setdefault(folder, fact.via)
    yield table(columns, (_row(fact, list(vias)) for fact in shown))
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
