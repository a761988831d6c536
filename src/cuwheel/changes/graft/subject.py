"""A library that gives or takes device code: its containers in the order of their wrappers, and what is in them."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from functools import cache, cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cuwheel.changes.binaries.draft import open_library, walk_containers
from cuwheel_core.device_code import cubin, fatbin
from cuwheel_core.device_code.cubin import Interface
from cuwheel_core.device_code.pe import Pe
from cuwheel_core.errors import MalformedError
from cuwheel_core.support import bounded
from cuwheel_core.support.buffer import FileBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Self

    from cuwheel_core.device_code.elf import Elf
    from cuwheel_core.device_code.fatbin import RawEntry
    from cuwheel_core.device_code.libraries import Entry
    from cuwheel_core.device_code.sections import Section


class Held(NamedTuple):
    """An entry, and the file that it is in."""

    subject: CodeFile
    raw: RawEntry
    entry: Entry

    @property
    def code(self) -> tuple[str, str]:
        """Two entries of the same container with the same code are alternatives: one is enough."""
        return self.entry.kind, str(self.entry.arch)

    @property
    def words(self) -> str:
        return str(self.entry.arch)

    @property
    def data(self) -> bytes:
        return self.subject.payload(self.entry)

    @property
    def interface(self) -> Interface:
        return self.subject.interface(self.entry)


class CodeFile:
    """A file that entries are in. `name`: what a person calls it."""

    def __init__(self, buffer: FileBuffer, name: str) -> None:
        self.buffer, self.name = buffer, name
        self._interfaces: dict[int, Interface] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.buffer.close()

    def payload(self, entry: Entry) -> bytes:
        stored = entry.compressed_bytes or entry.bytes
        at = entry.offset + entry.header_size
        return fatbin.read_payload(self.buffer, at, stored, entry.real_bytes, entry.compression)

    def interface(self, entry: Entry) -> Interface:
        known = self._interfaces.get(entry.offset)
        if known is None:
            data = self.payload(entry)
            if entry.kind == "cubin":
                known = cubin.read_cubin(self.name, data).interface()
            elif entry.kind == "ptx":
                known = Interface({each.name: None for each in cubin.ptx_kernels(data)}, {})
            else:
                raise MalformedError(self.name, f"it holds {entry.kind}, whose kernels cannot be compared")
            self._interfaces[entry.offset] = known
        return known


class Subject(CodeFile):
    """A library. `drop_signature`: it may lose the one it has, as a base that gets more does.

    Raises MalformedError for anything that is not an undamaged ELF or PE library.
    """

    def __init__(self, path: Path, name: str, *, drop_signature: bool = False) -> None:
        super().__init__(FileBuffer(path, name), name)
        self.path, self.drop_signature = path, drop_signature
        try:
            self.file = open_library(self.buffer)
            self.walk, self.registration = walk_containers(self.file)
        except BaseException:
            self.buffer.close()
            raise

    @property
    def elf(self) -> Elf:
        """Raises MalformedError for a Windows library."""
        if isinstance(self.file, Pe):
            raise MalformedError(self.name, "it is not an ELF file")
        return self.file

    @property
    def machine(self) -> str:
        """And the system, where that is not Linux."""
        return f"{self.file.machine} Windows" if isinstance(self.file, Pe) else self.file.machine_name

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Sections with the addresses that pointers hold, unless the library is loaded elsewhere."""
        if not isinstance(self.file, Pe):
            return self.file.sections()
        return tuple(replace(each, address=self.file.image_base + each.address) for each in self.file.sections)

    @cached_property
    def held(self) -> tuple[tuple[Held, ...], ...]:
        """The entries of each container, in the order of the file."""
        found: list[list[Held]] = [[] for _ in self.walk.containers]
        raws = [raw for container in self.walk.containers for raw in container.entries]
        for raw, entry in zip(raws, self.walk.entries(), strict=True):
            found[entry.container or 0].append(Held(self, raw, entry))
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The containers, those first that wrappers name, in the order of these."""
        named = [each.container for each in self.registration.wrappers if each.container is not None]
        return tuple(dict.fromkeys((*named, *range(len(self.walk.containers)))))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of kernels and variables, by the first entry of each container."""
        first = [held[0] for held in self.held if held and held[0].entry.kind in ("cubin", "ptx")]
        return tuple(name for each in first for name in (*each.interface.kernels, *each.interface.variables))

    @cached_property
    def toolkits(self) -> frozenset[str]:
        """The CUDA versions that wrote its cubins."""
        return frozenset(version for each in self._sample if (version := cubin.toolkit(each.data)))

    @cached_property
    def compilers(self) -> frozenset[str]:
        """The versions of their compilers, as far as they say it: `13.0.88`."""
        return frozenset(version for each in self._sample for version in tools(each.data))

    @property
    def _sample(self) -> list[Held]:
        """One cubin of each architecture and section."""
        sample = {(each.entry.section, each.code): each for held in self.held for each in reversed(held)}
        return [each for each in sample.values() if each.entry.kind == "cubin"]


def same_code(one: Held, other: Held) -> bool:
    """Whether two entries hold the same code: byte for byte, but for what a tool wrote of its own call."""
    first, second = one.data, other.data
    if first == second:
        return True
    if one.entry.kind != "cubin" or other.entry.kind != "cubin":
        return False
    return _sections(one.subject.name, first) == _sections(other.subject.name, second)


def tools(data: bytes) -> tuple[str, ...]:
    """Versions of the compilers and linkers that wrote a cubin, where it says them."""
    return tuple(sorted({each.decode() for each in _TOOL.findall(data)}))


class CodeDifference(NamedTuple):
    """`tools`: versions of the compilers of both, where they are not the same. `functions`: whose instructions differ.

    `variables`: what only one of them has. `data`: sections without instructions that differ.
    """

    tools: tuple[tuple[str, ...], tuple[str, ...]] | None
    functions: tuple[str, ...]
    variables: tuple[str, ...]
    data: tuple[str, ...]


def code_difference(one: Held, other: Held) -> CodeDifference:
    """Why two cubins are not the same."""
    versions = [tools(each.data) for each in (one, other)]
    contents = [{str(row[0]): row[-1] for row in _sections(each.subject.name, each.data)[1:]} for each in (one, other)]
    ours, theirs = contents
    names = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return CodeDifference(
        tools=(versions[0], versions[1]) if versions[0] != versions[1] else None,
        functions=tuple(sorted(name.removeprefix(_TEXT) for name in names if name.startswith(_TEXT))),
        variables=tuple(sorted(one.interface.variables.keys() ^ other.interface.variables.keys())),
        data=tuple(sorted(name for name in names if not name.startswith(_TEXT))),
    )


_TOOL_NOTE = ".note.nv.tkinfo"
_TOOL = re.compile(rb"Cuda compilation tools, release [\d.]{1,9}, V([\d.]{1,15})")
_TEXT = ".text."


def _sections(name: str, data: bytes) -> list[tuple[object, ...]]:
    """Each section with its content; offsets apart, which follow from the sizes."""
    file = cubin.read_cubin(name, data).elf
    rows: list[tuple[object, ...]] = [(file.machine, file.osabi, file.abi_version, file.type, file.flags)]
    for each in file.headers:
        if each.name != _TOOL_NOTE:
            content = file.data(each, fatbin.PAYLOAD_LIMIT) if each.type else b""
            rows.append((each.name, each.type, each.flags, each.address, each.size, each.link, each.info, content))
    return rows


# What the names of kernels and variables tell of a build: ids of its source files, and its list of architectures.
#
# cudafe++ makes an id of the CRC of the file's path, its name, and a symbol that it defines, or a hash with a process
# number: `_b96781cf_10_kernels_cu_2c92614a_636`. Another build has other ids, unless it is given those of the first.

_ID = re.compile(r"_([0-9a-f]{8})_(\d{1,4})_(\w+)", re.ASCII)
_HEADED = re.compile(r"(\d{1,6})(_GLOBAL__N_|_INTERNAL)(?=_[0-9a-f]{8}_)")
_SOURCE_PATH = re.compile(rb"(?<=\0)/[\w./+-]{1,1000}(?=\0)")  # one becomes an option of nvcc, which runs a shell
_SOURCES = (b".cu", b".cuh", b".h", b".hpp", b".cc", b".cpp", b".cxx", b".inl")
_NOT_WORD = re.compile(rb"[^0-9A-Za-z]")
_MOST = 10_000  # files of one build
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0xEDB88320


class ModuleId(NamedTuple):
    """`crc`: of the path that the file had. `name`: the file's, with `_` for what is no letter or digit."""

    text: str
    crc: int
    name: str


def parse_module_id(text: str) -> ModuleId | None:
    if not (found := _ID.fullmatch(text)):
        return None
    size, rest = bounded.digits(found[2]), found[3]
    return ModuleId(text, int(found[1], 16), rest[:size]) if rest[size : size + 1] == "_" else None


def module_ids_of(subject: Subject) -> tuple[str, ...]:
    """Those that a library says, as one of relocatable code does, and those in the names of its device code."""
    said = [each.removeprefix("def ") for each in subject.registration.module_ids]
    found = dict.fromkeys((*said, *module_ids_in(subject.names)))
    return tuple(each for each in found if parse_module_id(each))


def module_ids_in(names: Iterable[str]) -> Iterator[str]:
    """Ids in the names of anonymous namespaces. Only the length before an id tells where it ends."""
    for name in names:
        for found in _HEADED.finditer(name):
            digits, head = found[1], found[2]
            for start in range(len(digits) - 1, -1, -1):  # a digit before them may be the end of another name
                text = name[found.start(2) : found.start(2) + bounded.digits(digits[start:])].removeprefix(head)
                if parse_module_id(text):
                    yield text
                    break


def source_paths(subject: Subject) -> tuple[str, ...]:
    """Whole paths of source files in its data and device code, where `assert` and `__FILE__` put them."""
    data = [subject.buffer.read(each.offset, each.size) for each in subject.sections if each.role == "data"]
    data += [held[0].data for held in subject.held if held and held[0].entry.kind == "cubin"]
    found = dict.fromkeys(
        text.decode() for each in data for text in _SOURCE_PATH.findall(each) if text.endswith(_SOURCES)
    )
    return tuple(found)[:_MOST]


class SourceIds(NamedTuple):
    """Ids and the files of a source that they belong to. `crc`: of the folder that the source was in."""

    placed: tuple[tuple[ModuleId, str], ...]
    others: tuple[ModuleId, ...]
    crc: int | None

    def assigned(self, folder: Path) -> dict[str, str]:
        """Which file of `folder` gets which id: by path, else by a name that no other has."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for each, file in self.placed:
            found[str(folder / file)].add(each.text)
        for each in self.others:
            found[each.name].add(each.text)
        return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}

    def folder_of(self, paths: Sequence[str]) -> str | None:
        """The folder that the source was in, where one of these paths leads to it."""
        for path in paths:
            for each in (path[:at] for at, letter in enumerate(path) if letter == "/" and at):
                if zlib.crc32(each.encode()) == self.crc:
                    return each
        return None


def match_module_ids(ids: Sequence[str], files: Sequence[str]) -> SourceIds:
    """`files`: of the source, relative to its folder.

    Where that was in the other build nobody knows, but all CRCs began with it: taking a file's own path away again
    leaves the same number for each.
    """
    known = [each for each in map(parse_module_id, ids[:_MOST]) if each]
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[_as_in_id(file)].append(file)
    pairs = [(each, file, _crc_before(each.crc, _path(file))) for each in known for file in by_name[each.name]]
    usual = Counter(crc for _, _, crc in pairs).most_common(1)
    folder = usual[0][0] if usual else None
    placed = tuple((each, file) for each, file, crc in pairs if crc == folder)
    texts = {each.text for each, _ in placed}
    return SourceIds(placed, tuple(each for each in known if each.text not in texts), folder)


def _path(file: str) -> bytes:
    return b"/" + file.encode(errors="surrogateescape")


def _as_in_id(file: str) -> str:
    return _NOT_WORD.sub(b"_", PurePath(file).name.encode(errors="surrogateescape")).decode()


def _crc_before(crc: int, data: bytes) -> int:
    """The CRC of what stood before `data`."""
    table, state = _reversed_table(), crc ^ _ONES
    for byte in reversed(data):
        index, entry = table[state >> 24]
        state = ((state ^ entry) << 8 & _ONES) | (index ^ byte)
    return state ^ _ONES


@cache
def _reversed_table() -> dict[int, tuple[int, int]]:
    """CRC-32's table backwards: the highest byte of an entry → its index and the entry itself."""
    found = {}
    for index in range(256):
        entry = index
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        found[entry >> 24] = index, entry
    return found


# The list of architectures of a build, which CUB and Thrust put into the names of their kernels.

_LISTED = re.compile(r"(\d{1,3})(?=(?:CUB|THRUST)_\d+_|_V_\d+_SM_)")  # `_V_`: CCCL 3.2, of CUDA 13.2
_NUMBERS = re.compile(r"(?<=_)\d{3,4}(?=_|$)")


def arch_lists_in(names: Iterable[str]) -> Iterator[str]:
    """The part of each name that has it: `_800_900`."""
    for name in names:
        for match in _LISTED.finditer(name):
            # Only the length before a name tells where it ends: a digit may follow.
            for digits in (match[1], match[1][-2:]):
                text = name[match.end() : match.end() + bounded.digits(digits)]
                if text.startswith(("CUB_", "THRUST_", "_V_")) and len(text) == bounded.digits(digits):
                    yield text.partition("_SM")[2] or "_" + text.split("_", 2)[2].removesuffix("_NS")
                    break


def listed_numbers(text: str) -> tuple[str, ...]:
    """Numbers of architectures as `__CUDA_ARCH_LIST__` has them: 900 for 9.0."""
    return tuple(_NUMBERS.findall(text))
