"""`cuwheel inspect`: the document of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code import description
from cuwheel.report import inspect_summary as summary
from cuwheel.report.document import Amount, Column, Document, Facts, Findings, Heading, Paragraph, Row, Table
from cuwheel.support.wording import file_name, size
from cuwheel.verdicts import variant_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import DeviceCode, Library
    from cuwheel.report.document import Block
    from cuwheel.report.inspect import Inspect

_MANY = 16  # rows of a table: more are for --verbose


def document(answer: Inspect, *, verbose: bool) -> Document:
    """The answer first, on one screen; then, with `verbose`, everything about each library."""
    with_code = [library for library in answer.libraries if library.device_code]
    others = [library for library in answer.libraries if not library.device_code]
    groups = summary.grouped(answer.libraries, by_folder=False)
    blocks: list[Block] = [Heading(_title(answer)), Paragraph(_overview(answer, with_code))]
    if answer.description:
        blocks += [Paragraph(text) for text in description.words(answer.description)]
    if answer.variant:
        blocks.append(
            Paragraph(f"variant {answer.variant.label}: {'; '.join(variant_values.variant_in_words(answer.variant))}")
        )
    if len(groups) == 1:
        if len(groups[0].libraries) == 1:
            blocks.append(Paragraph("; ".join(_traits(groups[0].libraries[0]))))
        blocks.append(_codes(groups[0].code, full=verbose))
    if groups:
        blocks.append(summary.where_it_runs(answer, groups))
    if len(groups) > 1:
        blocks.append(summary.heat_map(groups))
    if findings := summary.findings(answer, verbose=verbose):
        blocks += [Heading("Findings"), Findings(findings)]
    if verbose:
        blocks += _everything(answer, others)
    elif answer.libraries:
        blocks.append(Paragraph("Everything about each library: --verbose; as a page: --html FILE"))
    return Document(f"cuwheel inspect {_title(answer)}", tuple(blocks))


def _everything(answer: Inspect, others: list[Library]) -> Iterator[Block]:
    words = {each.path: each.words for each in answer.coverage}
    for group in summary.grouped(answer.libraries, by_folder=True):
        if len(group.libraries) == 1:
            yield from _library(group.libraries[0], words.get(group.libraries[0].path, ""))
            continue
        yield Heading(f"{group.name}  {size(group.size)}")
        yield _codes(group.code, full=True)
        for sentence in dict.fromkeys(words.get(each.path, "") for each in group.libraries):
            yield Paragraph(_sentence(sentence))
    if others:
        yield from _without_code(others)


def _title(answer: Inspect) -> str:
    if distribution := answer.distribution:
        return f"{distribution.name} {distribution.version}"
    return file_name(answer.target)


def _overview(answer: Inspect, with_code: list[Library]) -> str:
    device = sum(row.bytes for library in with_code for row in library.device_code)
    tags = f", {' '.join(answer.distribution.tags)}" if answer.distribution and answer.distribution.tags else ""
    noun = "library" if len(answer.libraries) == 1 else "libraries"
    overview = f"{answer.kind}, {size(answer.size)}{tags}; {len(answer.libraries)} {noun}"
    if not with_code:
        return f"{overview}, none with CUDA device code"
    return f"{overview}, {len(with_code)} with device code ({size(device)} stored)"


def _library(library: Library, reach: str) -> Iterator[Block]:
    yield Heading(f"{library.path}  {size(library.size)}")
    yield Paragraph("; ".join(_traits(library)))
    yield _codes(library.device_code, full=True)
    if reach:
        yield Paragraph(_sentence(reach))
    yield Facts(tuple(_details(library)))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "." if words else ""


def _codes(code: Sequence[DeviceCode], *, full: bool) -> Table:
    """A row for each distinct combination; without `full`, where there are many, for each architecture."""
    alike: dict[tuple[str, str, str, str, str], tuple[int, int]] = {}
    brief = not full and len({_combination(row) for row in code}) > _MANY
    for row in sorted(code, key=_code_order):
        key = (row.arch, row.kind, "", "", "") if brief else _combination(row)
        count, stored = alike.get(key, (0, 0))
        alike[key] = count + row.count, stored + row.bytes
    largest = max((stored for _, stored in alike.values()), default=0) or 1
    texts = (Column(each, wrap=False) for each in ("arch", "kind", "link", "packed", "ISA"))
    return Table(
        (*texts, Column("count", numeric=True), Column("stored", numeric=True)),
        tuple(
            (*key, Amount(f"{count:,}", count), Amount(size(stored), stored, stored / largest))
            for key, (count, stored) in alike.items()
        ),
    )


def _combination(row: DeviceCode) -> tuple[str, str, str, str, str]:
    return row.arch, row.kind, "linked" if row.linked else "relocatable", row.compression, row.ptx_isa or ""


def _code_order(row: DeviceCode) -> tuple[bool, tuple[bool, int, str]]:
    return not row.linked, summary.arch_order(row.arch)


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
        ("signature", "attached (Authenticode)" if library.signed else None),
    ):
        if value:
            yield Row(name, value)


def _part(name: str, arch: str | None) -> str:
    return f"{name} {arch}" if arch else name


def _without_code(libraries: list[Library]) -> Iterator[Block]:
    count = len(libraries)
    yield Heading(f"{count} {'library' if count == 1 else 'libraries'} without device code")
    rows = tuple((each.path, each.machine, Amount(size(each.size), each.size)) for each in libraries)
    yield Table((Column("file"), Column("machine", wrap=False), Column("size", numeric=True)), rows)
