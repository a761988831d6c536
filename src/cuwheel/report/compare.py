"""`cuwheel compare`: its document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph, hidden
from cuwheel.report.tables import Amount, Facts, Row, Table, figure, short, table
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support import printable
from cuwheel_core.support.wording import a_few, file_name

if TYPE_CHECKING:
    from cuwheel.device_code.compare import Compare, KernelChange, LibraryComparison, PartChange, SetChange, SizeChange

_SHOWN = 8


def document(answer: Compare, *, verbose: bool) -> Document:
    blocks: list[Block] = [
        Heading(f"{file_name(answer.before)} → {file_name(answer.after)}"),
        Paragraph(_sizes(answer.size)),
    ]
    if answer.parts:
        blocks.append(_parts(answer.parts))
    changed = [each for each in answer.libraries if _differs(each)]
    if len(answer.libraries) > 1:
        facts = (*_gained_and_lost("architectures", answer.architectures), *_gained_and_lost("needed", answer.needed))
        blocks += [Facts(facts)] if facts else []
        for library in changed if verbose else changed[:_SHOWN]:
            blocks += _library(library)
        if not verbose and len(changed) > _SHOWN:
            blocks.append(hidden(len(changed) - _SHOWN, "libraries that differ"))
    else:
        blocks += [Facts(tuple(_values(library))) for library in changed]
    blocks += _kernels(answer.kernels, verbose=verbose)
    if not (changed or answer.kernels):
        blocks.append(Paragraph("no difference in device code, dependencies or registration"))
    return Document(f"cuwheel inspect {file_name(answer.before)} --against {file_name(answer.after)}", tuple(blocks))


def _sizes(size: SizeChange) -> str:
    percent = f" ({size.percent:+.2f} %)" if size.percent is not None else ""
    return f"{size.before:,} → {size.after:,} bytes, {size.difference:+,}{percent}"


def _parts(parts: Iterable[PartChange]) -> Table:
    columns = (short("part"), figure("before"), figure("after"), figure("change"), figure("%"))
    rows = (
        (
            f"{part.name} {part.arch}" if part.arch else part.name,
            Amount(f"{part.before:,}", part.before),
            Amount(f"{part.after:,}", part.after),
            Amount(f"{part.difference:+,}", part.difference),
            Amount(f"{part.percent:+.2f}" if part.percent is not None else "new", part.percent or 0.0),
        )
        for part in sorted(parts, key=_by_arch)
    )
    return table(columns, rows)


def _by_arch(part: PartChange) -> tuple[object, ...]:
    return (False, *machine_code_first(part.arch)) if part.arch else (True, part.name)


def _differs(library: LibraryComparison) -> bool:
    sets = (library.architectures, library.needed, library.module_ids)
    return bool(library.size.difference or library.values or any(each.gained or each.lost for each in sets))


def _library(library: LibraryComparison) -> Iterator[Block]:
    path = library.after or library.before or ""
    only = " (gone)" if library.after is None else " (new)" if library.before is None else ""
    yield Heading(f"{path}{only}")
    size = library.size
    # Of a file that only one side has, everything differs: its size and what it is for are enough.
    yield Paragraph(f"{size.before or size.after:,} bytes" if only else _sizes(size))
    if rows := tuple(_gained_and_lost("architectures", library.architectures) if only else _values(library)):
        yield Facts(rows)


def _values(library: LibraryComparison) -> Iterator[Row]:
    yield from _gained_and_lost("architectures", library.architectures)
    yield from _gained_and_lost("needed", library.needed)
    for value in library.values:
        yield Row(value.name, f"{value.before or 'none'} → {value.after or 'none'}")
    yield from _gained_and_lost("module ids", library.module_ids)


def _gained_and_lost(name: str, change: SetChange) -> Iterator[Row]:
    if change.gained:
        yield Row(f"+ {name}", a_few(change.gained, _SHOWN))
    if change.lost:
        yield Row(f"- {name}", a_few(change.lost, _SHOWN))


def _kernels(changes: tuple[KernelChange, ...] | None, *, verbose: bool) -> Iterator[Block]:
    if not changes:
        return
    yield Heading("Kernels")
    alike: dict[tuple[str, int, int], list[Arch]] = {}  # most libraries have the same kernels for each architecture
    for change in changes:
        alike.setdefault((change.library, len(change.gained), len(change.lost)), []).append(change.arch)
    columns = ("library", "arch", figure("+"), figure("-"))
    rows = (
        (
            file_name(library),
            " ".join(str(each) for each in sorted(archs, key=machine_code_first)),
            Amount(f"{gained:,}", gained),
            Amount(f"{lost:,}", lost),
        )
        for (library, gained, lost), archs in alike.items()
    )
    yield table(columns, rows)
    if verbose:
        for change in changes:
            named = [*(f"+ {name}" for name in change.gained), *(f"- {name}" for name in change.lost)]
            yield Heading(f"{file_name(change.library)} {change.arch}")
            yield Paragraph(printable.Lines(named))
