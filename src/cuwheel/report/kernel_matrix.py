"""Kernels × GPUs, as `inspect --coverage` shows them and `check --report` keeps them: what lacks something first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.report.document import Block, Heading, Paragraph, hidden
from cuwheel.report.tables import Amount, Cell, figure, short, table
from cuwheel_core.support.wording import counted, elided, file_name
from cuwheel_core.verdicts.choice import How

if TYPE_CHECKING:
    from cuwheel.device_code.coverage import CoveredKernel, KernelMatrix
    from cuwheel_core.device_code.libraries import Library

_SHOWN = 12  # rows of a table: more are for --verbose
_MOST = 2000  # and more than these for --json
_LINE = 76
_NAME = 24  # a kernel's name has at least this room, and a library's at most
_MARKS: dict[How, str] = {"native": "■", "compatible": "■", "jit": "P", "none": "–"}
_HOWS: tuple[How, ...] = ("none", "jit", "compatible", "native")  # the worst first
_LOOSE = ("cubin", "fatbin", "ptx")


class _Row(Struct, frozen=True):
    """A kernel of a library, or of all the loose cubins of a package."""

    library: str
    name: str
    on: tuple[How, ...]

    @property
    def lacking(self) -> int:
        return self.on.count("none")


def blocks(matrix: KernelMatrix, libraries: Sequence[Library], *, verbose: bool) -> Iterator[Block]:
    """`libraries`: those of the target, which say what stands alone as a cubin."""
    rows = _rows(matrix.kernels, {each.path for each in libraries if each.format in _LOOSE})
    yield Paragraph(_overview(matrix.devices, rows))
    if not rows or not matrix.devices:
        return
    by_library: dict[str, list[_Row]] = {}
    for row in rows:
        by_library.setdefault(row.library, []).append(row)
    ranked = sorted(by_library, key=lambda each: (-sum(row.lacking for row in by_library[each]), each))
    yield from _libraries(matrix.devices, {each: by_library[each] for each in ranked}, verbose=verbose)
    order = {name: place for place, name in enumerate(ranked)}
    wanted = rows if verbose else _worth_naming(by_library)
    wanted.sort(key=lambda row: (not row.lacking, order[row.library], -row.lacking, row.name))
    if wanted:
        yield Heading("Kernels" if verbose else "Kernels without code for a GPU")
        yield from _kernels(matrix.devices, wanted, several=len(ranked) > 1, verbose=verbose)
    elif any(row.lacking for row in rows):
        yield Paragraph("Where one kernel of a library lacks code, all do; their names: --verbose")
    if matrix.unread:
        yield Paragraph(f"{matrix.unread:,} pieces of LTO-IR were not read: only NVIDIA's linker can")


def _rows(kernels: Iterable[CoveredKernel], loose: set[str]) -> list[_Row]:
    """Of loose cubins, each of which is for one architecture, a kernel has what any of them has."""
    together = f"{len(loose):,} loose cubins"
    best: dict[tuple[str, str], _Row] = {}
    for each in kernels:
        library = together if len(loose) > 1 and each.library in loose else each.library
        row = _Row(library, each.demangled, each.on)
        if (before := best.get((library, each.name))) is not None:
            on = tuple(max(pair, key=_HOWS.index) for pair in zip(before.on, row.on, strict=True))
            row = _Row(library, each.demangled, on)
        best[library, each.name] = row
    return list(best.values())


def _worth_naming(by_library: dict[str, list[_Row]]) -> list[_Row]:
    """Those that lack code; of many only those that lack what others of their library have."""
    lacking = [row for rows in by_library.values() for row in rows if row.lacking]
    if len(lacking) <= _SHOWN:
        return lacking
    most = {
        name: [max(hows, key=_HOWS.index) for hows in zip(*(row.on for row in rows), strict=True)]
        for name, rows in by_library.items()
    }
    return [
        row
        for row in lacking
        if any(how == "none" != best for how, best in zip(row.on, most[row.library], strict=True))
    ]


def _overview(devices: Sequence[str], rows: Sequence[_Row]) -> str:
    if not rows:
        return "no kernel that could be named"
    libraries = len({row.library for row in rows})
    kernels = f"{counted(len(rows), 'kernel')} in {counted(libraries, 'library')}"
    lacking = sum(bool(row.lacking) for row in rows)
    if not lacking:
        return f"{kernels}, all with code for {', '.join(devices)}"
    having = [name for at, name in enumerate(devices) if all(row.on[at] != "none" for row in rows)]
    complete = f"; all have code for {', '.join(having)}" if having else ""
    return f"{kernels}, {lacking:,} without code for some of these GPUs{complete}"


def _libraries(devices: Sequence[str], ranked: dict[str, list[_Row]], *, verbose: bool) -> Iterator[Block]:
    shown = list(ranked)[: _MOST if verbose else _SHOWN]
    rows: list[tuple[Cell, ...]] = []
    for name in shown:
        kernels = ranked[name]
        cells = (_cell([row.on[at] for row in kernels]) for at in range(len(devices)))
        rows.append((elided(file_name(name), 2 * _NAME), Amount(f"{len(kernels):,}", len(kernels)), *cells))
    yield table(("library", figure("kernels"), *map(short, devices)), rows)
    if len(shown) < len(ranked):
        yield hidden(len(ranked) - len(shown), "libraries")
    yield Paragraph("  ■ machine code, P made ready by the driver, – none; a number: so many lack it")


def _cell(hows: Sequence[How]) -> str:
    lacking = hows.count("none")
    if lacking == len(hows):
        return _MARKS["none"]
    return f"{lacking:,}" if lacking else _MARKS["jit" if "jit" in hows else "native"]


def _kernels(devices: Sequence[str], wanted: Sequence[_Row], *, several: bool, verbose: bool) -> Iterator[Block]:
    shown = wanted[: _MOST if verbose else _SHOWN]
    library = min(_NAME, max(len(file_name(row.library)) for row in shown)) + 2 if several else 0
    room = _LINE - library - sum(len(each) + 2 for each in devices)
    room = room if room >= _NAME else _LINE  # on a line of its own, where the columns leave too little
    rows = (
        (
            row.name if verbose else elided(_without_parameters(row.name), room),
            *([elided(file_name(row.library), _NAME)] if several else []),
            *(_MARKS[how] for how in row.on),
        )
        for row in shown
    )
    yield table(("kernel", *([short("library")] if several else []), *map(short, devices)), rows)
    if len(shown) < len(wanted):
        left = len(wanted) - len(shown)
        yield Paragraph(f"  and {left:,} more: --json has them all") if verbose else hidden(left)


def _without_parameters(name: str) -> str:
    """`shapes::fill<int>` of `void shapes::fill<int>(int*)`."""
    depth = 0
    for place in range(len(name) - 1, 0, -1) if name.endswith(")") else ():
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return name[:place].removeprefix("void ")
    return name
