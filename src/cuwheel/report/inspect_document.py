"""`cuwheel inspect`: the document of its answer. Where it runs, libraries against architectures, what matters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code import description
from cuwheel.report import kernel_matrix
from cuwheel.report.document import Block, Document, Heading, Paragraph, findings_section
from cuwheel.report.tables import Amount, Cell, Facts, HeatMap, Row, Table, figure, map_of_code, short, table
from cuwheel.verdicts import variant_values
from cuwheel_core.device_code.libraries import DeviceCode, Library
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support.finding import SEVERITIES, Finding, gravest_first
from cuwheel_core.support.wording import a_few, counted, file_name, first_few, size

if TYPE_CHECKING:
    from cuwheel.report.inspect import Inspect


# What `inspect` says first: where it runs, one table of libraries against architectures, the findings that matter.

_FEW = 5
_SENTENCES = 6  # of different ones
_ROWS = 12
_WIDEST = 46  # of all columns for architectures: a terminal of 80 has no room for more
_MARKS = {"cubin": "■", "ptx": "P", "lto-ir": "L", "unknown": "?"}
_LEGEND = "by compute capability: ■ machine code, P PTX, L LTO-IR"
LOOSE = ("cubin", "fatbin", "ptx")  # files that are nothing but device code: packages have thousands


class Group(Struct, frozen=True, kw_only=True):
    """Libraries that are shown as one: a library by itself, or all the loose cubins of a folder."""

    name: str
    libraries: tuple[Library, ...]

    @property
    def size(self) -> int:
        return sum(library.size for library in self.libraries)

    @property
    def code(self) -> tuple[DeviceCode, ...]:
        return tuple(row for library in self.libraries for row in library.device_code)

    @property
    def stored(self) -> int:
        return sum(row.bytes for row in self.code)

    @property
    def toolkits(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for library in self.libraries for each in library.toolkits))


def grouped(libraries: Sequence[Library], *, by_folder: bool) -> list[Group]:
    """Groups the libraries with device code. Loose cubins are one group, or one a folder."""
    found: list[Group] = []
    loose: dict[str, list[Library]] = {}
    several = sum(each.format in LOOSE for each in libraries) > 1
    for library in libraries:
        if library.format in LOOSE and several:
            folder = library.path.replace("\\", "/").rpartition("/")[0]
            loose.setdefault(folder if by_folder else "", []).append(library)
        elif library.device_code:
            found.append(Group(name=library.path, libraries=(library,)))
    for folder, members in loose.items():
        name = f"{len(members):,} loose cubins" + (f" in {folder}" if folder else "")
        found.append(Group(name=name, libraries=tuple(members)))
    return found


def where_it_runs(answer: Inspect, groups: Sequence[Group]) -> Facts:
    """Libraries of which the same is true are named together, those with the most code first."""
    words = {each.path: each.words for each in answer.coverage}
    alike: dict[str, list[str]] = {}
    of_name = Counter(file_name(each.name) for each in groups)
    for group in sorted(groups, key=lambda each: -each.stored):
        sentences = Counter(words[each.path] for each in group.libraries if each.path in words)
        for sentence, count in sentences.items():
            name = f"{count:,} loose cubins" if len(group.libraries) > 1 else file_name(group.name)
            if of_name[name] > 1:  # as with CUDA 12 and 13 side by side: with its folder
                name = "/".join(group.name.replace("\\", "/").split("/")[-2:])
            alike.setdefault(sentence, []).append(name)
    if len(groups) == len(alike) == 1:
        return Facts((Row("reach", next(iter(alike))),))
    rows = [Row(a_few(names, 1), sentence) for sentence, names in alike.items()]
    if len(rows) > _SENTENCES:
        rest = sum(len(names) for names in list(alike.values())[_SENTENCES - 1 :])
        rows = [*rows[: _SENTENCES - 1], Row(f"{rest} more", "with --verbose")]
    return Facts(tuple(rows))


def heat_map(groups: Sequence[Group]) -> HeatMap:
    stored: dict[str, dict[Arch, int]] = {}
    for name, group in zip(_short(groups), groups, strict=True):
        totals = stored.setdefault(name, {})
        for row in group.code:
            totals[row.arch] = totals.get(row.arch, 0) + row.bytes
    return map_of_code(
        "Bytes of device code, libraries against architectures", stored, brief=_brief(groups), legend=_LEGEND
    )


def _brief(groups: Sequence[Group]) -> Table:
    shown = sorted(groups, key=lambda each: -each.stored)[:_ROWS] if len(groups) > _ROWS else list(groups)
    archs = sorted({row.arch for group in shown for row in group.code})
    numbers = list(dict.fromkeys(arch.number for arch in archs))
    fits = sum(len(number) + 2 for number in numbers) <= _WIDEST
    code_columns = tuple(map(short, numbers)) if fits else ("code for",)
    columns = ("library", figure("size"), short("CUDA"), *code_columns)
    names = _short(shown)
    rows: list[tuple[Cell, ...]] = []
    for group, name in zip(shown, names, strict=True):
        marks = _marks(group.code)
        cells = [marks.get(number, "") for number in numbers] if fits else [_listed(marks, numbers)]
        rows.append((name, Amount(size(group.size), group.size), _toolkits(group), *cells))
    if len(shown) < len(groups):
        blank = [""] * len(code_columns)
        rows.append((f"{len(groups) - len(shown)} with less", Amount("", 0), "", *blank))
    return table(columns, rows)


def _toolkits(group: Group) -> str:
    return group.toolkits[0] + ("…" if len(group.toolkits) > 1 else "") if group.toolkits else ""


def _marks(code: Iterable[DeviceCode]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for row in code:
        found.setdefault(row.arch.number, set()).add(row.kind)
    return {number: "".join(mark for kind, mark in _MARKS.items() if kind in kinds) for number, kinds in found.items()}


def _listed(marks: dict[str, str], numbers: Sequence[str]) -> str:
    """Where there are too many architectures for a column each: by kind of code."""
    by_mark = {mark: [each for each in numbers if mark in marks.get(each, "")] for mark in _MARKS.values()}
    return "; ".join(f"{mark} {' '.join(having)}" for mark, having in by_mark.items() if having)


def _short(groups: Sequence[Group]) -> list[str]:
    """File names, as far as they tell the libraries apart."""
    names = [file_name(each.name) if len(each.libraries) == 1 else each.name for each in groups]
    counts = Counter(names)
    return [name if counts[name] == 1 else each.name for name, each in zip(names, groups, strict=True)]


def merged_findings(answer: Inspect, *, verbose: bool) -> tuple[Finding, ...]:
    """All of them, the gravest first; without `verbose` the evidence of errors alone, and no fixes of notes."""
    found = gravest_first((*answer.findings, *_merged_of(answer.libraries)))
    return found if verbose else tuple(map(_brief_finding, found))


def _brief_finding(finding: Finding) -> Finding:
    if finding.severity != "error":
        return replace(finding, evidence=(), fixes=() if finding.severity == "note" else finding.fixes)
    return replace(finding, evidence=first_few(finding.evidence, 2, more="more (--verbose)"))


def _merged_of(libraries: tuple[Library, ...]) -> Iterator[Finding]:
    """What several libraries have in common is said once, with what each of them has of it as evidence."""
    alike: dict[tuple[int, str], list[tuple[str, Finding]]] = {}
    for library in libraries:
        for finding in library.findings:
            alike.setdefault((SEVERITIES.index(finding.severity), finding.rule), []).append((library.path, finding))
    for _, found in sorted(alike.items(), key=lambda item: item[0][0]):
        if len(libraries) == 1 or len(found) == 1:
            about = "" if len(libraries) == 1 else found[0][0]
            yield from (replace(finding, about=about) for _, finding in found)
            continue
        yield _merged(found)


def _merged(found: list[tuple[str, Finding]]) -> Finding:
    first = found[0][1]
    places = list(dict.fromkeys(path for path, _ in found))
    if all(finding.message == first.message for _, finding in found):
        return replace(
            first,
            says=f"{first.says} ({len(places)} libraries)",
            evidence=(a_few([file_name(path) for path in places], _FEW),),
        )
    messages = [f"{file_name(path)}: {finding.message}" for path, finding in found]
    message = f"{len(places)} libraries, such as {messages[0]}"
    return replace(first, says=message, subject="", evidence=first_few(messages[1:], _FEW - 1))


_MANY = 16  # rows of a table: more are for --verbose


def document(answer: Inspect, *, verbose: bool) -> Document:
    """The answer first, on one screen; then, with `verbose`, everything about each library."""
    if matrix := answer.kernel_matrix:
        covered = kernel_matrix.blocks(matrix, answer.libraries, verbose=verbose)
        unreadable = findings_section(
            each for each in merged_findings(answer, verbose=verbose) if each.severity == "error"
        )
        title = f"cuwheel inspect {_title(answer)} --coverage"
        return Document(title, (Heading(_title(answer)), *covered, *unreadable))
    with_code = [library for library in answer.libraries if library.device_code]
    others = [library for library in answer.libraries if not library.device_code]
    groups = grouped(answer.libraries, by_folder=False)
    blocks: list[Block] = [Heading(_title(answer)), Paragraph(_overview(answer, with_code))]
    if answer.description:
        blocks += [Paragraph(text) for text in description.words(answer.description)]
    if answer.variant:
        blocks.append(
            Paragraph(f"variant {answer.variant.label}: {'; '.join(variant_values.variant_in_words(answer.variant))}")
        )
    if len(groups) == 1:
        if len(groups[0].libraries) == 1:
            (library,) = groups[0].libraries
            name = f"{library.path}: " if answer.kind != "file" else ""
            blocks.append(Paragraph(name + "; ".join(_traits(library))))
        blocks.append(_codes(groups[0].code, full=verbose))
    if answer.bitcode:
        names = a_few([f"{each.arch} {size(each.bytes)}" for each in answer.bitcode], _ROWS)
        blocks.append(Paragraph(f"LLVM bitcode, one file for each architecture, for compilers to link: {names}"))
    if groups:
        blocks.append(where_it_runs(answer, groups))
    if len(groups) > 1:
        blocks.append(heat_map(groups))
    blocks += findings_section(merged_findings(answer, verbose=verbose))
    if verbose:
        blocks += _everything(answer, others)
    elif answer.libraries:
        blocks.append(Paragraph("Everything about each library: --verbose; as a page: --html FILE"))
    return Document(f"cuwheel inspect {_title(answer)}", tuple(blocks))


def _everything(answer: Inspect, others: list[Library]) -> Iterator[Block]:
    words = {each.path: each.words for each in answer.coverage}
    for group in grouped(answer.libraries, by_folder=True):
        if len(group.libraries) == 1:
            library = group.libraries[0]
            yield Heading(f"{library.path}  {size(library.size)}")
            yield Paragraph("; ".join(_traits(library)))
            yield _codes(library.device_code, full=True)
            if reach := words.get(library.path):
                yield Paragraph(_sentence(reach))
            yield Facts(tuple(_details(library)))
            continue
        yield Heading(f"{group.name}  {size(group.size)}")
        yield _codes(group.code, full=True)
        for sentence in dict.fromkeys(words.get(each.path, "") for each in group.libraries):
            yield Paragraph(_sentence(sentence))
    if others:
        yield Heading(f"{counted(len(others), 'library')} without device code")
        rows = ((each.path, each.machine, Amount(size(each.size), each.size)) for each in others)
        yield table(("file", short("machine"), figure("size")), rows)


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


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "." if words else ""


def _codes(code: Sequence[DeviceCode], *, full: bool) -> Table:
    """A row for each distinct combination; without `full`, where there are many, for each architecture."""
    alike: dict[tuple[str, str, str, str, str], tuple[int, int]] = {}
    brief = not full and len({_combination(row) for row in code}) > _MANY
    for row in sorted(code, key=lambda each: (not each.linked, machine_code_first(each.arch))):
        key = (row.arch, row.kind, "", "", "") if brief else _combination(row)
        count, stored = alike.get(key, (0, 0))
        alike[key] = count + row.count, stored + row.bytes
    largest = max((stored for _, stored in alike.values()), default=0) or 1
    return table(
        (*map(short, ("arch", "kind", "link", "packed", "ISA")), figure("count"), figure("stored")),
        (
            (*key, Amount(f"{count:,}", count), Amount(size(stored), stored, stored / largest))
            for key, (count, stored) in alike.items()
        ),
    )


def _combination(row: DeviceCode) -> tuple[str, str, str, str, str]:
    return row.arch, row.kind, "linked" if row.linked else "relocatable", row.compression, row.ptx_isa or ""


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
    yield Row(
        "parts", ", ".join(" ".join(filter(None, (part.name, part.arch, size(part.bytes)))) for part in library.parts)
    )
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
