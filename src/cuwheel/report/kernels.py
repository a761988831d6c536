"""`cuwheel kernels`: its document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Document, Heading, Paragraph, findings_section, hidden
from cuwheel.report.tables import Amount, Cell, Table, figure, short, table
from cuwheel_core.facts.arch import machine_code_first
from cuwheel_core.support import printable
from cuwheel_core.support.wording import counted, elided, file_name, size

if TYPE_CHECKING:
    from cuwheel.device_code.kernels import CodeKernels, Kernels, Presence

_SHOWN = 12
_NAME_WIDTH = 22  # what the other columns leave of a line


def document(answer: Kernels, *, verbose: bool) -> Document:
    blocks: list[Block] = [Heading(answer.target), Paragraph(_overview(answer))]
    if answer.pattern or verbose:
        shown = answer.presence if verbose else answer.presence[:_SHOWN]
        for presence in shown:
            blocks += _kernel(answer, presence)
        if len(shown) < len(answer.presence):
            blocks += [Heading(""), hidden(len(answer.presence) - len(shown))]
    elif answer.code:
        blocks.append(_totals(answer))
    if answer.pattern and answer.presence and answer.absent_from:
        blocks += [
            Heading("Without any of them"),
            Paragraph(printable.Lines(f"  {path}" for path in answer.absent_from)),
        ]
    if answer.unread:
        blocks.append(Paragraph(f"{answer.unread} pieces of LTO-IR were not read: only NVIDIA's linker can"))
    return Document(f"cuwheel inspect {answer.target} --kernels", (*blocks, *findings_section(answer.findings)))


def _overview(answer: Kernels) -> str:
    names = len({each.name for each in answer.presence})
    if answer.pattern and not names:
        return f"no kernel name contains {answer.pattern!r}"
    kernels = counted(names, "kernel")
    return f"{kernels} matching {answer.pattern!r}" if answer.pattern else f"{kernels} in all"


def _totals(answer: Kernels) -> Table:
    """A row for each library, kind of code and architecture."""
    groups: dict[tuple[str, str, str, bool], list[CodeKernels]] = {}
    for code in sorted(answer.code, key=lambda each: (each.library, machine_code_first(each.arch))):
        groups.setdefault((code.library, code.arch, code.kind, code.linked), []).append(code)
    rows: list[tuple[Cell, ...]] = []
    previous = ""
    for (library, arch, kind, linked), codes in groups.items():
        kernels = [kernel for code in codes for kernel in code.kernels]
        registers = max((kernel.registers or 0 for kernel in kernels), default=0)
        stacked = sum(bool(kernel.stack_bytes) for kernel in kernels)
        rows.append(
            (
                elided(file_name(library), _NAME_WIDTH) if library != previous else "",
                arch,
                kind,
                "linked" if linked else "relocatable",
                Amount(f"{len(kernels):,}", len(kernels)),
                Amount(str(registers) if registers else "", registers),
                Amount(f"{stacked:,}" if kind == "cubin" else "", stacked),
            )
        )
        previous = library
    names = map(short, ("arch", "kind", "link"))
    return table(("library", *names, *map(figure, ("kernels", "regs", "stack"))), rows)


def _kernel(answer: Kernels, presence: Presence) -> Iterator[Block]:
    yield Heading(presence.demangled)
    where = f"{file_name(presence.library)}: in {', '.join(presence.present)}"
    missing = f"; missing in {', '.join(presence.missing)}" if presence.missing else ""
    mangled = [presence.name] if presence.name != presence.demangled else []
    yield Paragraph(printable.Lines((*mangled, f"{where}{missing}")))
    columns = (*map(short, ("arch", "kind", "link")), *map(figure, ("registers", "shared", "stack", "code")))
    rows = (
        (
            code.arch,
            code.kind,
            "linked" if code.linked else "relocatable",
            "" if kernel.registers is None else Amount(str(kernel.registers), kernel.registers),
            _bytes(kernel.shared_bytes),
            _bytes(kernel.stack_bytes),
            _bytes(kernel.code_bytes),
        )
        for code in answer.code
        for kernel in code.kernels
        if code.library == presence.library and kernel.name == presence.name
    )
    yield table(columns, rows)


def _bytes(value: int | None) -> Cell:
    return "" if value is None else Amount(size(value), value)
