"""One file into one `Library`: by what its first bytes are, not by its name."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel_core.device_code import cubin, dynamic, elf, fatbin, limits, loose
from cuwheel_core.device_code.dynamic import ArchivePointers, ElfPointers
from cuwheel_core.device_code.elf import SHT_NOBITS, Elf
from cuwheel_core.device_code.fatbin import RawEntry, Walk
from cuwheel_core.device_code.libraries import UNREAD, Container, Cudart, DeviceCode, Format, Library, Platform
from cuwheel_core.device_code.loose import Hidden, Hit, Loose, findings_about_hidden, search_outside_sections
from cuwheel_core.device_code.registration import (
    HostStrings,
    Pointers,
    absent_by_container,
    containers_without_kernels,
    read_registration,
    symbols_by_container,
)
from cuwheel_core.device_code.sections import FATBIN_SECTIONS, WRAPPER_SECTIONS, Section, disjoint, measure_parts
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts import cuda_libraries, versions
from cuwheel_core.facts import toolkits as toolkit_table
from cuwheel_core.support import bounded
from cuwheel_core.support.buffer import Buffer
from cuwheel_core.support.finding import Finding, finding
from cuwheel_core.support.patterns import lazy_pattern

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Detail, Search


NOTHING = UNREAD.registration
# Given an ELF library and its soname, the mangled names that are asked for.
WantedSymbols: TypeAlias = Callable[[Elf, "str | None"], tuple[str, ...]]
_PE_MAGIC = b"MZ"
_CXX11 = "__cxx11"
_CXX = "_ZNSs"  # the old string: only code that passes strings tells the two apart


class _Draft(Struct, kw_only=True):
    """What is read so far. `known`: what the format tells of the library; the rest of that is made in the end."""

    buffer: Buffer
    walk: fatbin.Walk
    known: Library
    sections: tuple[Section, ...] = ()
    rows: tuple[DeviceCode, ...] = ()
    loose: list[Loose] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, **known: Any) -> None:  # noqa: ANN401 - fields of a library
        self.known = replace(self.known, **known)


def _draft(buffer: Buffer, form: Format, sections: tuple[Section, ...] | None = None, **known: Any) -> _Draft:  # noqa: ANN401
    """Without `sections` all of the file is device code."""
    if sections is None:
        sections = (Section(0, "", "device", 0, 0, buffer.size),)
        known.setdefault("type", "other")
    found = replace(UNREAD, path=buffer.name, format=form, size=buffer.size, **known)
    return _Draft(buffer=buffer, walk=fatbin.Walk(buffer), known=found, sections=sections)


def recognise(buffer: Buffer) -> Format | None:
    """What the file is, if it is anything that may hold device code."""
    start = buffer.read(0, min(buffer.size, 20))
    if start[:4] == elf.MAGIC:
        return "cubin" if start[18:20] == elf.MACHINE_CUDA.to_bytes(2, "little") else "elf"
    if start[:4] == fatbin.MAGIC:
        return "fatbin"
    if start[:8] == elf.ARCHIVE_MAGIC:
        return "archive"
    if start[:2] == _PE_MAGIC:
        from cuwheel_core.device_code import pe  # noqa: PLC0415 - few files are of Windows

        if pe.is_pe(buffer):
            return "pe"
    return "ptx" if loose.is_ptx(buffer) else None


def is_foreign(head: bytes) -> bool:
    """Whether a file is for a 32-bit or big-endian machine, by its first bytes: no CUDA of today makes such files."""
    if head[:2] == _PE_MAGIC:
        from cuwheel_core.device_code import pe  # noqa: PLC0415 - few files are of Windows

        return pe.is_foreign(head)
    return elf.is_foreign(head)


def read_library(
    buffer: Buffer, *, detail: Detail = "rows", search: Search = "data", wanted: WantedSymbols | None = None
) -> Library:
    """`search`: where device code outside its own sections is looked for. `wanted`: which of the symbols that an ELF
    library takes from others are listed. Raises MalformedError.
    """
    form = recognise(buffer)
    if form is None:
        hint = "cuwheel reads wheels, libraries and programs, folders and installed packages; logs: cuwheel explain"
        raise MalformedError(buffer.name, "neither ELF, PE, a static archive, a fat binary, a cubin nor PTX", hint)
    with limits.collected() as met:
        if form == "elf":
            draft = _elf(buffer, search=search, wanted=wanted)
        else:
            draft = _OTHER_READERS[form](buffer, search=search)
        found = _finish(draft, detail)
    return replace(found, findings=(*found.findings, *met)) if met else found


def _elf(buffer: Buffer, *, search: Search, wanted: WantedSymbols | None) -> _Draft:
    file = elf.read_elf(buffer)
    loads = dynamic.read_dynamic(file)
    draft = _draft(
        buffer,
        "elf",
        file.sections(),
        machine=file.machine_name,
        type=file.file_type,
        soname=loads.soname,
        needed=loads.needed,
        rpath=loads.rpath,
        runpath=loads.runpath,
        glibc=loads.ceiling("GLIBC"),
        glibcxx=loads.ceiling("GLIBCXX"),
        cxxabi=loads.ceiling("CXXABI"),
        interpreter=elf.interpreter(file),
        host_compiler=host_compiler(file),
        build_id=next((body.hex() for owner, kind, body in elf.notes(file) if (owner, kind) == ("GNU", 3)), None),
        platform=platform(file.machine_name, (*loads.runpath, *loads.rpath)),
    )
    _device_code(draft, search=search)
    _register(draft, ElfPointers(file, tuple(WRAPPER_SECTIONS)))
    if file.file_type != "relocatable":  # which has yet to be linked with a runtime, and with torch
        registers = registration_of(file, has_wrappers=bool(draft.known.registration.wrappers))
        draft.add(
            cudart=cudart(loads.needed, registers, draft.known.toolkits),
            torch_symbols=wanted(file, loads.soname) if wanted else (),
        )
    if dynamic.mentions(file, _CXX11):
        draft.add(cxx11_abi=True)
    elif dynamic.mentions(file, _CXX):
        draft.add(cxx11_abi=False)
    return draft


def _pe(buffer: Buffer, *, search: Search) -> _Draft:
    from cuwheel_core.device_code import pe  # noqa: PLC0415 - few files are of Windows

    file = pe.read_pe(buffer)
    known = {"machine": file.machine, "type": file.file_type, "needed": file.needed, "signed": file.signed}
    draft = _draft(buffer, "pe", file.sections, **known)
    _device_code(draft, search=search)
    _register(draft, file)
    registers = "own" if draft.known.registration.wrappers else None
    draft.add(cudart=cudart(file.needed, registers, draft.known.toolkits))
    return draft


def _fatbin(buffer: Buffer, *, search: Search) -> _Draft:
    del search  # all of it is device code
    draft = _draft(buffer, "fatbin", machine="cuda")
    draft.walk.section("", 0, buffer.size, linked=not is_relocatable(buffer))
    draft.add(registration=replace(NOTHING, containers=len(draft.walk.containers)))
    _complete(draft)
    return draft


def _cubin(buffer: Buffer, *, search: Search) -> _Draft:
    del search
    found = loose.read_loose_cubin(buffer, "", 0, buffer.size)
    draft = _draft(buffer, "cubin", machine="cuda", type="executable" if found.linked else "relocatable")
    draft.add(toolkits=(found.toolkit,) if found.toolkit else ())
    draft.loose.append(found)
    return draft


def _ptx(buffer: Buffer, *, search: Search) -> _Draft:
    del search
    draft = _draft(buffer, "ptx", machine="cuda")
    draft.loose.append(loose.read_ptx(buffer))
    return draft


def _archive(buffer: Buffer, *, search: Search) -> _Draft:
    """A static archive as one library: the sections of all its members, where they are in the archive."""
    del search
    draft = _draft(buffer, "archive", (), type="relocatable")
    sections: list[Section] = []
    pointers = ArchivePointers()
    for member in elf.archive_members(buffer):
        try:
            file = elf.read_elf(member.buffer)
        except MalformedError as error:
            draft.findings.append(_broken_member(member.buffer.name, error))
            continue
        draft.add(machine=file.machine_name, host_compiler=draft.known.host_compiler or host_compiler(file))
        pointers.add(member.offset, ElfPointers(file, tuple(WRAPPER_SECTIONS)))
        sections += elf.shifted(file.sections(), member.offset)
    draft.sections = tuple(sections)
    _device_code(draft, search="data")
    _register(draft, pointers)
    return draft


_OTHER_READERS = {"pe": _pe, "archive": _archive, "fatbin": _fatbin, "cubin": _cubin, "ptx": _ptx}


def _device_code(draft: _Draft, *, search: Search) -> None:
    """What is in the sections made for it, then what hides elsewhere."""
    apart, overlapping = disjoint(draft.sections)
    if overlapping:
        draft.findings.append(_overlap(overlapping))
    for section in apart:
        if section.name in FATBIN_SECTIONS:
            end = section.offset + section.size
            draft.walk.section(section.name, section.offset, end, linked=FATBIN_SECTIONS[section.name])
    found = search_outside_sections(draft.buffer, apart, where=search)
    walked = []
    end = 0
    for hit in found.containers:  # in order: one inside another was walked with it, or is its payload
        if hit.offset >= end:
            end = draft.walk.single(hit.section, hit.offset, hit.end)
            walked.append(hit)
    cubins = tuple(_loose_cubins(draft, found.cubins))
    draft.findings += findings_about_hidden(Hidden(tuple(walked), cubins, found.amd))
    _complete(draft)


def _loose_cubins(draft: _Draft, hits: Sequence[Hit]) -> Iterator[Hit]:
    """Keep those that stand in no container, nor in one another."""
    starts = sorted(each.offset for each in draft.walk.containers)
    ends = {each.offset: each.offset + each.size for each in draft.walk.containers}
    behind = 0
    for hit in hits:
        index = bisect.bisect_right(starts, hit.offset)
        if hit.offset < behind or (index and hit.offset < ends[starts[index - 1]]):
            continue
        end = min(hit.end, starts[index]) if index < len(starts) else hit.end
        try:
            read_library = loose.read_packed_cubin if hit.compressed else loose.read_loose_cubin
            if (cubin := read_library(draft.buffer, hit.section, hit.offset, end)) is None:
                continue
            draft.loose.append(cubin)
        except MalformedError as error:
            draft.findings.append(_broken_member(f"the cubin at {hit.offset:#x}", error))
            continue
        behind = hit.offset + draft.loose[-1].size
        yield hit


def _complete(draft: _Draft) -> None:
    """Completes the draft once all containers are walked: the rows, and who wrote the cubins."""
    draft.rows = draft.walk.device_code()
    written, problems = toolkits(draft.walk, draft.rows)
    draft.add(toolkits=written)
    draft.findings += problems


def _register(draft: _Draft, pointers: Pointers) -> None:
    apart, _ = disjoint(draft.sections)
    registration, problems = read_registration(draft.buffer, apart, draft.walk.containers, pointers)
    draft.add(registration=registration)
    draft.findings += problems


def _finish(draft: _Draft, detail: Detail) -> Library:
    rows = (*fatbin.with_estimated_saving(draft.walk, draft.rows), *loose.rows_of_loose(draft.loose))
    # Every shared library that nvcc links has a wrapper for linked code; most have nothing in it.
    registration = draft.known.registration
    linked = any(each.device_linked for each in registration.wrappers)
    defined = any(each.startswith("def ") for each in registration.module_ids)
    return replace(
        draft.known,
        device_linked=linked and (defined or any(not row.linked for row in rows)),
        device_code=rows,
        parts=measure_parts(draft.buffer.size, draft.sections, rows, _places(draft)),
        containers=_containers(draft) if detail != "rows" else (),
        entries=(*draft.walk.entries(), *map(loose.entry_of_loose, draft.loose)) if detail == "entries" else (),
        findings=(*draft.findings, *draft.walk.findings, *draft.walk.suppressed(), *draft.walk.differences()),
    )


def _places(draft: _Draft) -> Iterator[tuple[int, int]]:
    yield from ((each.offset, each.offset + each.size) for each in draft.walk.containers)
    yield from ((each.offset, each.offset + each.size) for each in draft.loose)


def _containers(draft: _Draft) -> tuple[Container, ...]:
    host = HostStrings(draft.buffer, draft.sections)
    named = [each.container for each in draft.known.registration.wrappers if each.device_linked]
    linked = tuple(each for each in named if each is not None)
    symbols = symbols_by_container(draft.walk, draft.rows, host, linked)
    absent = absent_by_container(draft.walk, draft.rows, host, linked, symbols)
    made = containers(draft.walk, draft.rows, host, linked)
    return tuple(
        replace(each, symbols=symbols.get(index), absent=absent.get(index, ())) for index, each in enumerate(made)
    )


def containers(
    walk: Walk, rows: Sequence[DeviceCode], host: HostStrings, linked: tuple[int, ...] = ()
) -> tuple[Container, ...]:
    """Describes the containers by themselves, not against each other's symbols.

    `linked`: those that a device link made.
    """
    kernelless, managed = containers_without_kernels(walk, rows, host, linked)
    return tuple(
        Container(
            section=each.section,
            offset=each.offset,
            size=each.size,
            code=tuple(entry.row for entry in each.entries),
            without_kernels=index in kernelless,
            managed=index in managed,
        )
        for index, each in enumerate(walk.containers)
    )


def _overlap(sections: Sequence[Section]) -> Finding:
    return finding(
        "sections-overlap",
        "its sections overlap, which no linker does; their contents were read once",
        evidence=tuple(f"{each.name} at {each.offset:#x}" for each in sections[:5]),
    )


def _broken_member(name: str, error: MalformedError) -> Finding:
    return finding("member-damaged", f"{name} cannot be read: {error.problem}")


# Who made a library and what it was made for: CUDA runtime, toolkits, host compiler, platform.

# libcudart.so.12, libcudart.so.10.1, cudart64_12.dll, cudart64_110.dll, cudart64_90.dll
_CUDART = lazy_pattern(r"(?:lib)?cudart(?P<windows>64_)?(?:\.so)?\.?(?P<version>\d{1,3}(?:\.\d{1,3})?)?", re.ASCII)
_FIRST_WITHOUT_POINT = 40  # Windows: cudart64_40_17.dll is of CUDA 4.0; what is less is a major
_REGISTER = "__cudaRegisterFatBinary"
_COMMENT_LIMIT = 1 << 24  # linkers merge equal texts; where one did not, there is one for each object
_MOST_COMPILERS = 100
_PLATFORMS = (
    ("targets/sbsa-linux", "sbsa"),
    ("targets/aarch64-linux", "l4t"),
    ("/usr/lib/aarch64-linux-gnu/tegra", "l4t"),
    ("/usr/lib/aarch64-linux-gnu/nvidia", "l4t"),
)
# Decompressed for it, at most: 3 ms, and enough to see a toolkit that wrote a part of the code.
_SAMPLES_LIMIT = 1 << 22


def cudart(needed: Iterable[str], registers: str | None, toolkits: Sequence[str]) -> Cudart | None:
    """`registers` is who provides the registration function: "import", "own" or None for no device code."""
    for name in needed:
        if match := _CUDART.match(cuda_libraries.plain_name(name)):
            major, minor = _version(match["version"] or "", windows=bool(match["windows"]))
            return Cudart(linkage="dynamic", major=major, minor=minor, evidence=f"needs {name}")
    if registers == "import":
        return Cudart(linkage="dynamic", major=None, evidence=f"{_REGISTER} is undefined")
    if registers == "own":
        majors = {versions.major(each) for each in toolkits}
        return Cudart(
            linkage="static",
            major=majors.pop() if len(majors) == 1 else None,
            evidence=f"registers device code, and {_REGISTER} is defined",
        )
    return None


def _version(text: str, *, windows: bool) -> tuple[int | None, int | None]:
    """The major, and the minor of those releases that have it in their name: libcudart.so.11.0 is every 11.x.

    Windows writes both without a point (90, 101), all of CUDA 11 as 110, and later ones by their major (12).
    """
    if not text:
        return None, None
    if windows and bounded.digits(text) >= _FIRST_WITHOUT_POINT:
        text = f"{text[:-1]}.{text[-1]}"
    major, _, minor = text.partition(".")
    minor_counts = bool(minor) and not toolkit_table.has_minor_compatibility(bounded.digits(major))
    return bounded.digits(major), bounded.digits(minor) if minor_counts else None


def registration_of(elf: Elf, *, has_wrappers: bool) -> str | None:
    symbol = dynamic.lookup(elf, _REGISTER)
    if symbol and not symbol.defined:
        return "import"
    return "own" if has_wrappers else None


def host_compiler(elf: Elf) -> str | None:
    """What `.comment` says; several where objects came from several compilers."""
    comment = elf.named(".comment")
    if comment is None or comment.type == SHT_NOBITS:
        return None
    texts = dict.fromkeys(elf.start_of(comment, _COMMENT_LIMIT).split(b"\0"))
    seen = [text for each in texts if (text := each.decode("utf-8", "replace").strip())]
    if comment.size > _COMMENT_LIMIT or len(seen) > _MOST_COMPILERS:
        limits.met(f"{comment.size:,} bytes of .comment", "the rest of the host compilers are not listed")
    return "; ".join(seen[:_MOST_COMPILERS]) or None


def platform(machine: str, paths: Iterable[str]) -> Platform | None:
    if machine != "aarch64":
        return None
    for path in paths:
        for piece, name in _PLATFORMS:
            if piece in path:
                return Platform(name=name, evidence=f"search path {path}")  # type: ignore[arg-type]
    return None


def toolkits(walk: Walk, rows: Sequence[DeviceCode]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The versions that wrote the cubins, by the smallest cubin of each kind: all would take seconds."""
    smallest = _smallest(walk, {index for index, row in enumerate(rows) if row.kind == "cubin"})
    found: set[str] = set()
    findings: list[Finding] = []
    budget = _SAMPLES_LIMIT
    for entry in sorted(smallest, key=lambda each: each.real):
        if entry.real > budget < _SAMPLES_LIMIT:
            break
        budget -= entry.real
        try:
            data = fatbin.read_payload(
                walk.buffer, entry.payload_offset, entry.stored, entry.real, rows[entry.row].compression
            )
            version = cubin.toolkit(data)
        except MalformedError as error:
            findings.append(_unreadable(entry, error))
            continue
        found.update(() if version is None else (version,))
    return tuple(sorted(found, key=versions.key)), tuple(findings)


def is_relocatable(buffer: Buffer) -> bool:
    """Whether a bare fat binary is made for the device linker: its first cubin tells, no section does."""
    walk = Walk(buffer)
    walk.section("", 0, buffer.size, linked=True)
    rows = walk.device_code()
    for container in walk.containers[:1]:
        for entry in container.entries:
            if rows[entry.row].kind == "cubin":
                compression = rows[entry.row].compression
                try:
                    data = fatbin.read_payload(buffer, entry.payload_offset, entry.stored, entry.real, compression)
                    return not cubin.read_cubin(buffer.name, data).linked
                except MalformedError:  # told where the toolkits are read
                    return False
    return False


def _smallest(walk: Walk, wanted: set[int]) -> Iterable[RawEntry]:
    """Picks the entry that takes the least to read, for each row of cubins and each ABI."""
    found: dict[tuple[int, int], RawEntry] = {}
    sizes: dict[tuple[int, int], int] = {}
    for container in walk.containers:
        for entry in container.entries:
            key = (entry.row, entry.minor)
            if entry.payload < sizes.get(key, entry.payload + 1) and entry.row in wanted:
                found[key], sizes[key] = entry, entry.payload
    return found.values()


def _unreadable(entry: RawEntry, error: MalformedError) -> Finding:
    return finding(
        "cubin-damaged", f"a cubin cannot be read: {error.problem}", evidence=(f"entry at offset {entry.offset:#x}",)
    )
