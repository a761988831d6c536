"""`cuwheel inspect`: the document of its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cuwheel.finding import SEVERITIES
from cuwheel.inspection import description
from cuwheel.report.document import Amount, Column, Document, Facts, Findings, Heading, HeatMap, Paragraph, Row, Table
from cuwheel.units import file_name, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.finding import Finding
    from cuwheel.inspection.values import DeviceCode, Library
    from cuwheel.report.document import Block, Cell
    from cuwheel.report.inspect import Inspect

_FEW = 5


def document(answer: Inspect, *, verbose: bool) -> Document:
    with_code = [library for library in answer.libraries if library.device_code]
    blocks: list[Block] = [Heading(_title(answer)), Paragraph(_overview(answer, with_code))]
    if answer.description:
        blocks += [Paragraph(text) for text in description.words(answer.description)]
    if len(with_code) > 1:
        blocks.append(_heat_map(with_code))
    for library in with_code:
        blocks += _library(answer, library, verbose=verbose)
    others = [library for library in answer.libraries if not library.device_code]
    if others:
        blocks += _without_code(others, verbose=verbose)
    if findings := (*answer.findings, *_grouped(answer.libraries)):
        blocks += [Heading("Findings"), Findings(findings)]
    return Document(f"cuwheel inspect {_title(answer)}", tuple(blocks))


def _title(answer: Inspect) -> str:
    if told := answer.distribution:
        return f"{told.name} {told.version}"
    return file_name(answer.target)


def _overview(answer: Inspect, with_code: list[Library]) -> str:
    device = sum(row.bytes for library in with_code for row in library.device_code)
    tags = f", {' '.join(answer.distribution.tags)}" if answer.distribution and answer.distribution.tags else ""
    noun = "library" if len(answer.libraries) == 1 else "libraries"
    told = f"{answer.kind}, {size(answer.size)}{tags}; {len(answer.libraries)} {noun}"
    if not with_code:
        return f"{told}, none with CUDA device code"
    return f"{told}, {len(with_code)} with device code ({size(device)} stored)"


def _heat_map(libraries: list[Library]) -> HeatMap:
    columns = tuple(sorted({row.arch for library in libraries for row in library.device_code}, key=arch_order))
    totals = [_bytes_by_arch(library) for library in libraries]
    largest = max((value for each in totals for value in each.values()), default=0) or 1
    return HeatMap(
        caption="Bytes of device code, libraries against architectures",
        columns=columns,
        rows=tuple(library.path for library in libraries),
        cells=tuple(
            tuple(
                Amount(size(each[arch]) if arch in each else "", each.get(arch, 0), each.get(arch, 0) / largest)
                for arch in columns
            )
            for each in totals
        ),
    )


def _bytes_by_arch(library: Library) -> dict[str, int]:
    totals: dict[str, int] = {}
    for row in library.device_code:
        totals[row.arch] = totals.get(row.arch, 0) + row.bytes
    return totals


def arch_order(arch: str) -> tuple[bool, int, str]:
    """Machine code first, then PTX and LTO-IR, each by number."""
    kind, _, number = arch.partition("_")
    digits = number.rstrip("af")
    return kind != "sm", int(digits) if digits.isdigit() else 0, arch


def _library(answer: Inspect, library: Library, *, verbose: bool) -> Iterator[Block]:
    yield Heading(f"{library.path}  {size(library.size)}")
    reach = next((each.words for each in answer.coverage if each.path == library.path), "")
    yield Paragraph("; ".join(_traits(library)))
    yield Table(
        (
            Column("arch", wrap=False),
            Column("kind", wrap=False),
            Column("link", wrap=False),
            Column("packed", wrap=False),
            Column("ISA", wrap=False),
            Column("count", numeric=True),
            Column("stored", numeric=True),
        ),
        tuple(_row(row, library) for row in sorted(library.device_code, key=_code_order)),
    )
    if reach:
        yield Paragraph(reach[0].upper() + reach[1:] + ".")
    if verbose:
        yield Facts(tuple(_details(library)))


def _code_order(row: DeviceCode) -> tuple[bool, tuple[bool, int, str]]:
    return not row.linked, arch_order(row.arch)


def _row(row: DeviceCode, library: Library) -> tuple[Cell, ...]:
    largest = max(each.bytes for each in library.device_code) or 1
    return (
        row.arch,
        row.kind,
        "linked" if row.linked else "relocatable",
        row.compression,
        row.ptx_isa or "",
        Amount(f"{row.count:,}", row.count),
        Amount(size(row.bytes), row.bytes, row.bytes / largest),
    )


def _traits(library: Library) -> Iterator[str]:
    kind = {"shared": "shared library", "other": "file"}.get(library.type, library.type)
    yield f"{library.format.upper()} {kind}, {library.machine}"
    if library.toolkits:
        yield f"compiled by CUDA {', '.join(library.toolkits)}"
    if cudart := library.cudart:
        yield f"{'shared' if cudart.linkage == 'dynamic' else 'static'} cudart" + (
            f" {cudart.major}" if cudart.major else ""
        )
    if library.device_linked:
        yield "device-linked"
    if library.platform:
        yield f"built for {library.platform.name.upper()}"
    needs = [f"glibc {library.glibc}" if library.glibc else "", f"GLIBCXX {library.glibcxx}" if library.glibcxx else ""]
    if any(needs):
        yield "needs " + ", ".join(filter(None, needs))


def _details(library: Library) -> Iterator[Row]:
    registration = library.registration
    yield Row("parts", ", ".join(f"{_part(part.name, part.arch)} {size(part.bytes)}" for part in library.parts))
    yield Row("needed", ", ".join(library.needed) or "none")
    for name, entries in (("RPATH", library.rpath), ("RUNPATH", library.runpath)):
        if entries:
            yield Row(name, ":".join(entries))
    yield Row(
        "registered",
        f"{len(registration.wrappers)} wrappers for {registration.containers} containers, "
        f"{len(registration.unnamed)} that none names, {len(registration.module_ids)} module ids",
    )
    for name, value in (
        ("soname", library.soname),
        ("compiler", library.host_compiler),
        ("build id", library.build_id),
        ("platform", library.platform.evidence if library.platform else None),
    ):
        if value:
            yield Row(name, value)


def _part(name: str, arch: str | None) -> str:
    return f"{name} {arch}" if arch else name


def _without_code(libraries: list[Library], *, verbose: bool) -> Iterator[Block]:
    count = len(libraries)
    yield Heading(f"{count} {'library' if count == 1 else 'libraries'} without device code")
    shown = libraries if verbose or count <= _FEW else sorted(libraries, key=lambda each: -each.size)[:_FEW]
    rows = tuple((each.path, each.machine, Amount(size(each.size), each.size)) for each in shown)
    yield Table((Column("file"), Column("machine", wrap=False), Column("size", numeric=True)), rows)
    if len(shown) < count:
        yield Paragraph(f"  and {count - len(shown)} smaller ones (--verbose)")


def _grouped(libraries: tuple[Library, ...]) -> Iterator[Finding]:
    """What several libraries have in common is said once, with what each of them has of it as evidence."""
    alike: dict[tuple[int, str], list[tuple[str, Finding]]] = {}
    for library in libraries:
        for finding in library.findings:
            alike.setdefault((SEVERITIES.index(finding.severity), finding.rule), []).append((library.path, finding))
    for _, found in sorted(alike.items(), key=lambda item: item[0][0]):
        if len(libraries) == 1 or len(found) == 1:
            where = "" if len(libraries) == 1 else f"{found[0][0]}: "
            yield from (replace(finding, message=where + finding.message) for _, finding in found)
            continue
        yield _merged(found)


def _merged(found: list[tuple[str, Finding]]) -> Finding:
    first = found[0][1]
    places = list(dict.fromkeys(path for path, _ in found))
    more = f" and {len(places) - _FEW} more" if len(places) > _FEW else ""
    if all(finding.message == first.message for _, finding in found):
        return replace(
            first,
            message=f"{first.message} ({len(places)} libraries)",
            evidence=(", ".join(file_name(path) for path in places[:_FEW]) + more,),
        )
    told = [f"{file_name(path)}: {finding.message}" for path, finding in found[:_FEW]]
    return replace(first, message=f"in {len(places)} libraries", evidence=(*told[:-1], told[-1] + more))
