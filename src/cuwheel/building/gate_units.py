"""What the gate judges: every container of a wheel, who compiled it, its archive, and what was planned."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building.answer import Listed
from cuwheel.building.recording import options, words
from cuwheel.building.values import GateRequest
from cuwheel.device_code import source
from cuwheel.device_code.contents import Survey
from cuwheel.device_code.demangle import demangled
from cuwheel.support import log, quoting
from cuwheel_core.device_code import cubin, elf, fatbin, limits, registration
from cuwheel_core.device_code.libraries import Container, DeviceCode, Library, Symbols
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import toolkits
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support.buffer import Buffer, FileBuffer
from cuwheel_core.support.wording import file_name

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import Call, Record
    from cuwheel.building.recording.options import Option
    from cuwheel_core.device_code.fatbin import RawEntry


# Device code that came out of a static archive: told by its bytes, never by its looks.
#
# `libcudadevrt.a` puts cubins for every architecture into each library that needs it, and the static CUDA libraries put
# theirs. A linker copies them as they are, so the very same entries stand in the archive.

# What tells most entries apart without reading them: kind, architecture, flags, sizes.
Key: TypeAlias = tuple[int, int, int, int, int]
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/*/lib", "lib/*", "nvvm/lib")
_MOST_ARCHIVES = 200  # a toolkit has some forty, a link call names a dozen


class Piece(NamedTuple):
    """An entry to be recognised."""

    key: Key
    digest: bytes


class Origin(NamedTuple):
    path: str
    of_toolkit: bool

    @property
    def name(self) -> str:
        return Path(self.path).name


def key_of(entry: RawEntry) -> Key:
    return entry.kind, entry.arch, entry.flags, entry.payload, entry.uncompressed


def piece_of(buffer: Buffer, entry: RawEntry) -> Piece:
    return Piece(key_of(entry), _digest(buffer, entry))


def _digest(buffer: Buffer, entry: RawEntry) -> bytes:
    return hashlib.sha256(buffer.read(entry.payload_offset, entry.stored)).digest()


class Archives:
    """The archives that a build may have linked: those that its link calls name first, then the toolkit's others."""

    def __init__(self, toolkit_root: str, record: Record | None) -> None:
        self._toolkit_root = toolkit_root
        self._record = record
        self._listed: list[Origin] | None = None
        self._entries: dict[str, dict[Key, list[RawEntry]]] = {}

    def origin(self, pieces: Sequence[Piece]) -> Origin | None:
        """The archive that has every one of these entries."""
        if not pieces:
            return None
        return next((each for each in self._candidates() if self._has(each, pieces)), None)

    def _candidates(self) -> list[Origin]:
        if self._listed is None:
            own = list(_of_toolkit(self._toolkit_root))
            real = {os.path.realpath(path) for path in own}
            root = os.path.realpath(self._toolkit_root) + os.sep if self._toolkit_root else "\0"
            found: dict[str, Origin] = {}
            for path in (*_named_by(self._record, own), *own):
                place = os.path.realpath(path)
                found.setdefault(place, Origin(path, place in real or place.startswith(root)))
            rest = "code from the others is not recognised as the toolkit's"
            listed = limits.first(list(found.values()), _MOST_ARCHIVES, "static archives were searched", rest)
            self._listed = list(listed)
        return self._listed

    def _has(self, origin: Origin, pieces: Sequence[Piece]) -> bool:
        index = self._index(origin.path)
        if not all(piece.key in index for piece in pieces):
            return False
        with closing(FileBuffer(Path(origin.path))) as with_bytes:
            return all(
                any(_digest(with_bytes, entry) == piece.digest for entry in index[piece.key]) for piece in pieces
            )

    def _index(self, path: str) -> dict[Key, list[RawEntry]]:
        if path not in self._entries:
            index: dict[Key, list[RawEntry]] = {}
            try:
                for entry in _entries(path):
                    index.setdefault(key_of(entry), []).append(entry)
            except CuwheelError as error:  # then nothing is known to come from it
                log.debug(f"{path} was not searched: {error.message}")
                index = {}
            self._entries[path] = index
        return self._entries[path]


def _entries(path: str) -> Iterator[RawEntry]:
    with closing(FileBuffer(Path(path))) as buffer:
        if buffer.read(0, min(len(elf.ARCHIVE_MAGIC), buffer.size)) != elf.ARCHIVE_MAGIC:
            return  # a linker script may bear such a name
        walk = fatbin.Walk(buffer)
        for member in elf.archive_members(buffer):
            try:
                sections = elf.shifted(elf.read_elf(member.buffer).sections(), member.offset)
            except MalformedError:
                continue
            for section in sections:
                if section.name in FATBIN_SECTIONS:
                    walk.section(section.name, section.offset, section.offset + section.size, linked=True)
        for container in walk.containers:
            yield from container.entries


def _of_toolkit(root: str) -> Iterator[str]:
    if root:
        for pattern in _LIBRARY_FOLDERS:
            yield from (str(path) for path in sorted(Path(root).glob(f"{pattern}/lib*.a")) if path.is_file())


def _named_by(record: Record | None, of_toolkit: Sequence[str]) -> Iterator[str]:
    """The archives that calls name, as words (`../libfoo.a`) or as libraries (`-lfoo`), where they still exist."""
    known = {Path(path).name: path for path in of_toolkit}
    seen: set[str] = set()
    for call in record.calls if record else ():
        for path in _of_call(call, known):
            if path not in seen and Path(path).is_file():
                seen.add(path)
                yield path


def _of_call(call: Call, known: dict[str, str]) -> Iterator[str]:
    options_of_call = options.parse_options(words_of(call), call.tool)
    folders = [_within(call, each) for each in _values(options_of_call, "--library-path", "-L")]
    yield from (_within(call, each) for each in _values(options_of_call, options.INPUT) if each.endswith(".a"))
    for name in _values(options_of_call, "--library", "-l"):
        file = name[1:] if name.startswith(":") else f"lib{name}.a"
        yield from (f"{folder}/{file}" for folder in folders)
        if file in known:
            yield known[file]


def _values(given: Iterable[Option], *names: str) -> Iterator[str]:
    return (option.value for option in given if option.name in names and option.value)


def _within(call: Call, path: str) -> str:
    return quoting.join_foreign_paths(call.cwd, path)


def words_of(call: Call) -> tuple[str, ...]:
    """The words that a call really got, those of its response files with them."""
    files = {each.path: each.text for each in call.response_files}
    return tuple(words.with_response_files(call.ran or call.words, files))


# Decompressed to see who compiled what, at most: a second's work. Of the containers behind it nobody is named.
_READ_LIMIT = 1 << 28
_NAMED = 2
# What libcudadevrt.a defines, and nobody else: names with this beginning are NVIDIA's.
_RUNTIME_BY_NAME = Origin("libcudadevrt.a (by the names of its functions)", of_toolkit=True)
_NAME_WIDTH = 60


class Code(Struct, frozen=True, kw_only=True):
    """One entry. `arch` as the plan names it: `sm_90a`, `compute_90`, `lto_90`."""

    arch: Arch
    bytes: int
    ptx_isa: str | None = None
    debug: bool = False


class Unit(Struct, frozen=True, kw_only=True):
    """One container. `place`: which of how many, where. `inert`: no kernel is in it, as in a device link of nothing.

    `device_linked`: nvlink made it. `toolkit`: that wrote its cubins, where it was read. `origin`: the archive that has
    the very same code; None: it was compiled from the sources.
    """

    library: str
    number: int
    place: str
    codes: tuple[Code, ...]
    linked: bool
    device_linked: bool = False
    registered: bool = True
    inert: bool = False
    toolkit: str | None = None
    kernels: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def archs(self) -> frozenset[Arch]:
        return frozenset(code.arch for code in self.codes)

    @property
    def from_toolkit(self) -> bool:
        return self.origin is not None and self.origin.of_toolkit

    @property
    def words(self) -> str:
        """`container 2 of 3 (.nv_fatbin at 0x39c0, add(float*), scale(float*) …)`."""
        readable = demangled(self.kernels[:_NAMED])
        names = [readable.get(name, name) for name in self.kernels[:_NAMED]]
        few = [name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…" for name in names]
        more = " …" if len(self.kernels) > _NAMED else ""
        named = f", {', '.join(few)}{more}" if few else ""
        return f"{self.place}{named})"


class Allowance:
    """The words of `allow`: an architecture, a glob of them, or `library-glob:architecture-glob`.

    `library-glob:*` lets a library through whatever is in it: one that the build took along and did not compile.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)

    def word(self, library: str, arch: str) -> str | None:
        """The first word that lets it stay."""
        for word in self._words:
            where, colon, what = word.rpartition(":")
            if fnmatchcase(arch, what.strip()) and (not colon or _is_named(library, where.strip())):
                return word
        return None

    def whole(self, library: str) -> str | None:
        """The word that takes the library out of the plan altogether."""
        for word in self._words:
            where, _, what = word.rpartition(":")
            if where and what.strip() == "*" and _is_named(library, where.strip()):
                return word
        return None


def _is_named(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(file_name(path), pattern)


def planned_archs(wanted: GateRequest) -> frozenset[Arch]:
    """All that may be there: the list, and LTO-IR of it, from which a device link makes machine code."""
    return frozenset((*wanted.archs, *wanted.ptx, *map(lto_of, wanted.archs)))


def lto_of(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "lto")


def missing_archs(unit: Unit, wanted: GateRequest) -> tuple[Arch, ...]:
    """Planned machine code that is not in it; objects for link-time optimisation have LTO-IR instead."""
    present = unit.archs
    return tuple(arch for arch in wanted.archs if arch not in present and (unit.linked or lto_of(arch) not in present))


def missing_ptx(unit: Unit, wanted: GateRequest) -> tuple[Arch, ...]:
    """A device link makes machine code alone: there the PTX is in the objects that it was made from."""
    return () if unit.device_linked else tuple(arch for arch in wanted.ptx if arch not in unit.archs)


def read_units(found: Survey, libraries: Sequence[Library], wanted: GateRequest) -> tuple[Unit, ...]:
    """The containers of these libraries; those that are not as planned are looked for in archives."""
    with closing(source.find_source(found.target)) as opened:
        items = {item.path: item for item in opened.items}
        archives = Archives(wanted.toolkit_root, wanted.record)
        units: list[Unit] = []
        budget = _READ_LIMIT
        for library in libraries:
            with closing(items[library.path].open(lambda _: None)) as buffer:
                reader = _Reader(buffer, library, wanted, archives, budget)
                units += reader.units()
                budget = reader.budget
        return tuple(units)


class _Reader:
    """The containers of one library, its bytes at hand."""

    def __init__(self, buffer: Buffer, library: Library, wanted: GateRequest, archives: Archives, budget: int) -> None:
        self._buffer, self._library, self._wanted = buffer, library, wanted
        self._archives = archives
        self.budget = budget

    def units(self) -> Iterator[Unit]:
        wrappers = self._library.registration.wrappers
        linked = {each.container for each in wrappers if each.device_linked}
        unnamed = set(self._library.registration.unnamed)
        for number, container in enumerate(self._library.containers):
            walk = fatbin.Walk(self._buffer)
            relocatable = FATBIN_SECTIONS.get(container.section) is False
            end = container.offset + container.size
            walk.section(container.section, container.offset, end, linked=not relocatable)
            entries = tuple(entry for each in walk.containers for entry in each.entries)
            rows = walk.device_code()
            unit = Unit(
                library=self._library.path,
                number=number,
                place=self._place(number, container),
                codes=tuple(
                    Code(
                        arch=rows[entry.row].arch,
                        bytes=entry.header_size + entry.payload,
                        ptx_isa=rows[entry.row].ptx_isa,
                        debug=bool(entry.flags & fatbin.FLAG_DEBUG),
                    )
                    for entry in entries
                ),
                linked=not relocatable,
                device_linked=number in linked,
                registered=bool(wrappers) and number not in unnamed,
                inert=container.without_kernels and not relocatable and number not in linked,
            )
            yield self._known(unit, rows, entries)

    def _place(self, number: int, container: Container) -> str:
        total = len(self._library.containers)
        return f"container {number + 1} of {total} ({container.section or 'the file'} at {container.offset:#x}"

    def _known(self, unit: Unit, rows: Sequence[DeviceCode], entries: Sequence[RawEntry]) -> Unit:
        toolkit, symbols = self._inside(rows, entries)
        unit = replace(unit, toolkit=toolkit, kernels=symbols.kernels if symbols else ())
        if unit.device_linked and (not entries or (symbols and not symbols.kernels and not symbols.functions)):
            return replace(unit, inert=not self._library.device_linked)
        if unit.inert or self._as_wanted(unit):
            return unit
        origin = self._archives.origin([piece_of(self._buffer, entry) for entry in entries])
        if origin is None and not self._wanted.toolkit_root and not unit.linked and symbols and symbols.of_runtime:
            origin = _RUNTIME_BY_NAME  # the toolkit is in a container: its archive cannot be compared
        return replace(unit, origin=origin)

    def _as_wanted(self, unit: Unit) -> bool:
        wanted = self._wanted
        if unit.archs - planned_archs(wanted) or missing_archs(unit, wanted) or missing_ptx(unit, wanted):
            return False
        return not wanted.cuda or unit.toolkit in (None, toolkits.find_toolkit(wanted.cuda).version)

    def _inside(self, rows: Sequence[DeviceCode], entries: Sequence[RawEntry]) -> tuple[str | None, Symbols | None]:
        """Who wrote it and what is in it, by the entry that takes the least to read."""
        smallest = registration.least_to_read(entries, rows)
        if smallest is None or smallest.real > self.budget:
            return None, None
        self.budget -= smallest.real
        row = rows[smallest.row]
        try:
            data = fatbin.read_payload(
                self._buffer, smallest.payload_offset, smallest.stored, smallest.real, row.compression
            )
            if row.kind == "ptx":
                return None, cubin.ptx_symbols(data)
            return cubin.toolkit(data), cubin.read_cubin(self._library.path, data).symbols()
        except MalformedError:  # the survey says so
            return None, None


# What the rules of the gate are asked about: the wheel, what it was to be, and its containers sorted out.

DEBUG = "debug"  # among the words of `allow`, beside architectures


class Case(Struct, frozen=True, kw_only=True, dict=True):
    """`units`: of the libraries that the build itself made. `foreign`: NVIDIA's libraries that stand in the wheel."""

    survey: Survey
    wanted: GateRequest
    units: tuple[Unit, ...]
    foreign: tuple[Library, ...] = ()

    @cached_property
    def planned(self) -> frozenset[Arch]:
        return planned_archs(self.wanted)

    @cached_property
    def allowance(self) -> Allowance:
        return Allowance(self.wanted.table.allow)

    @property
    def libraries(self) -> tuple[Library, ...]:
        """Those that the build made."""
        foreign = {library.path for library in self.foreign}
        return tuple(
            library
            for library in self.survey.libraries
            if library.path not in foreign and not self.allowance.whole(library.path)
        )

    def from_sources(self) -> Iterator[Unit]:
        """What was compiled from the sources, and holds something."""
        return (
            unit
            for unit in self.units
            if not unit.from_toolkit and not unit.inert and not self.allowance.whole(unit.library)
        )

    def judged(self) -> Iterator[Unit]:
        """The ones that must hold the plan: all but what `allow` names whole."""
        return (unit for unit in self.from_sources() if not self.is_allowed_whole(unit))

    def is_allowed_whole(self, unit: Unit) -> bool:
        """All of it is unplanned and allowed: a file with flags of its own, which the configuration accepts."""
        return bool(unit.codes) and all(
            arch not in self.planned and self.allowance.word(unit.library, arch) for arch in unit.archs
        )

    def unplanned(self, unit: Unit) -> tuple[Arch, ...]:
        """Neither planned nor allowed."""
        extra = unit.archs - self.planned
        return tuple(sorted(arch for arch in extra if not self.allowance.word(unit.library, arch)))

    def listed(self) -> tuple[Listed, ...]:
        """Unplanned code that is accepted, by library and by where it came from."""
        found: dict[tuple[str, str], list[tuple[Unit, Arch, int]]] = {}
        for unit in self.units:
            for code in unit.codes:
                if code.arch not in self.planned and (origin := self._origin(unit, code.arch)):
                    found.setdefault((unit.library, origin), []).append((unit, code.arch, code.bytes))
        return tuple(
            Listed(
                library=library,
                archs=tuple(sorted({arch for _, arch, _ in rows}, key=machine_code_first)),
                containers=len({unit.number for unit, _, _ in rows}),
                bytes=sum(size for _, _, size in rows),
                origin=origin,
            )
            for (library, origin), rows in found.items()
        )

    def _origin(self, unit: Unit, arch: str) -> str:
        if unit.from_toolkit and unit.origin:
            return f"{unit.origin.name} of the toolkit"
        if unit.inert:
            return "an empty device link" if unit.device_linked else "a source file without kernels"
        word = self.allowance.word(unit.library, arch)
        return f"allowed by {word}" if word else ""


def joined(archs: Iterable[Arch]) -> str:
    ordered = sorted(set(archs), key=machine_code_first)
    return " ".join(ordered)


def containers_of(count: int, total: int) -> str:
    """`all 3 containers`, `2 of 5 containers`, `its container`."""
    if total == 1:
        return "its container"
    return f"all {total} containers" if count == total else f"{count} of {total} containers"
