"""`cuwheel lookup cuda`: the answer and its document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from cuwheel.report.document import Document
from cuwheel.report.tables import Facts, Row, figure, table
from cuwheel.support.answer import Answer
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.rows.toolkits import HostCompilers, Release, Toolkit
from cuwheel_core.facts.tables import tables
from cuwheel_core.support import printable


class ToolkitRow(Struct, frozen=True, kw_only=True):
    """The driver is the one that came with the release; `driver_floor_…` runs its machine code too."""

    version: str
    ptx_isa: str
    driver_linux: str | None
    driver_windows: str | None
    driver_floor_linux: str | None
    driver_floor_windows: str | None
    gcc_max: int | None
    clang_max: int | None
    msc_ver_min: int | None
    msc_ver_max: int | None
    architectures: tuple[str, ...]
    measured: bool
    sources: tuple[str, ...]
    note: str = ""


class Toolkits(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.toolkits/1"] = "cuwheel.toolkits/1"
    toolkits: tuple[ToolkitRow, ...]

    @property
    def succeeded(self) -> bool:
        return True


def answer_of(found: Iterable[Release]) -> Toolkits:
    return Toolkits(toolkits=tuple(_toolkit(each) for each in dict.fromkeys(found)))


def _toolkit(toolkit: Release) -> ToolkitRow:
    titles = tables().toolkits.sources
    limits = toolkit.host_compilers if isinstance(toolkit, Toolkit) else HostCompilers()
    return ToolkitRow(
        version=toolkit.version,
        ptx_isa=toolkit.ptx_isa,
        driver_linux=toolkit.driver.linux,
        driver_windows=toolkit.driver.windows,
        driver_floor_linux=toolkits.runtime_floor(toolkit.version, "linux"),
        driver_floor_windows=toolkits.runtime_floor(toolkit.version, "windows"),
        gcc_max=limits.gcc_max,
        clang_max=limits.clang_max,
        msc_ver_min=limits.msc_ver_min,
        msc_ver_max=limits.msc_ver_max,
        architectures=toolkit.architectures,
        measured=isinstance(toolkit, Toolkit) and toolkit.measured,
        sources=tuple(titles[each].title for each in toolkit.source),
        note=toolkit.note,
    )


def document(answer: Toolkits, *, verbose: bool) -> Document:
    if len(answer.toolkits) == 1 or verbose:
        return Document("cuwheel lookup cuda", tuple(Facts(_details(row)) for row in answer.toolkits))
    columns = ("CUDA", "PTX", "driver (Linux)", figure("gcc"), figure("clang"), "architectures")
    rows = (
        (
            row.version,
            row.ptx_isa,
            row.driver_linux or "?",
            f"≤ {row.gcc_max}" if row.gcc_max else "?",
            f"≤ {row.clang_max}" if row.clang_max else "?",
            f"{row.architectures[0]} … {row.architectures[-1]}",
        )
        for row in answer.toolkits
    )
    return Document("cuwheel lookup cuda", (table(columns, rows),))


def _details(row: ToolkitRow) -> tuple[Row, ...]:
    rows = [
        Row("CUDA", row.version),
        Row("PTX ISA", row.ptx_isa),
        Row("driver", f"Linux {row.driver_linux or 'not known'}, Windows {row.driver_windows or 'not known'}"),
        Row("driver floor", _floor(row)),
        Row("gcc", f"up to {row.gcc_max}" if row.gcc_max else "not known"),
        Row("clang", f"up to {row.clang_max}" if row.clang_max else "not known"),
        Row("MSVC", f"_MSC_VER {row.msc_ver_min} to {row.msc_ver_max}" if row.msc_ver_max else "not known"),
        Row("architectures", " ".join(row.architectures)),
        Row("source", printable.Lines((*row.sources, *(["measured on the release itself"] if row.measured else [])))),
    ]
    return (*rows, Row("note", row.note)) if row.note else tuple(rows)


def _floor(row: ToolkitRow) -> str:
    if (row.driver_floor_linux, row.driver_floor_windows) == (row.driver_linux, row.driver_windows):
        return "the same"
    floors = f"Linux {row.driver_floor_linux or 'not known'}, Windows {row.driver_floor_windows or 'not known'}"
    all_minor = "(machine code of every minor release runs from this driver on; PTX needs the driver above)"
    return printable.Lines((floors, all_minor))
