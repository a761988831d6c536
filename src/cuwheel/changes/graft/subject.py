"""A library that gives or takes device code: its containers in the order of their wrappers, and what is in them."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.draft import open_library, walk_containers
from cuwheel.device_code import cubin, fatbin
from cuwheel.device_code.cubin import Interface
from cuwheel.device_code.pe import Pe
from cuwheel.errors import MalformedError
from cuwheel.support.buffer import FileBuffer

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from cuwheel.device_code.elf import Elf
    from cuwheel.device_code.fatbin import RawEntry
    from cuwheel.device_code.libraries import Entry
    from cuwheel.device_code.sections import Section


class Held(NamedTuple):
    """An entry, and the library that it is in."""

    subject: Subject
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


class Subject:
    """`name`: what a person calls it. `drop_signature`: it may lose the one it has, as a base that gets more does.

    Raises MalformedError for anything that is not an undamaged ELF or PE library.
    """

    def __init__(self, path: Path, name: str, *, drop_signature: bool = False) -> None:
        self.path, self.name, self.drop_signature = path, name, drop_signature
        self.buffer = FileBuffer(path, name)
        self._interfaces: dict[int, Interface] = {}
        try:
            self.file = open_library(self.buffer)
            self.walk, self.registration = walk_containers(self.file)
        except BaseException:
            self.buffer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.buffer.close()

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
        """With the addresses that pointers hold, unless the library is loaded elsewhere."""
        if not isinstance(self.file, Pe):
            return self.file.sections()
        return tuple(each._replace(address=self.file.image_base + each.address) for each in self.file.sections)

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
        """Of kernels and variables, by the first entry of each container."""
        first = [held[0] for held in self.held if held and held[0].entry.kind in ("cubin", "ptx")]
        return tuple(name for each in first for part in each.interface for name in part)

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

    def payload(self, entry: Entry) -> bytes:
        stored = entry.compressed_bytes or entry.bytes
        at = entry.offset + entry.header_size
        return fatbin.read_payload(self.buffer, at, stored, entry.real_bytes, entry.compression)

    def interface(self, entry: Entry) -> Interface:
        known = self._interfaces.get(entry.offset)
        if known is None:
            data = self.payload(entry)
            if entry.kind == "cubin":
                known = cubin.read(self.name, data).interface()
            elif entry.kind == "ptx":
                known = Interface({each.name: None for each in cubin.ptx_kernels(data)}, {})
            else:
                raise MalformedError(self.name, f"it holds {entry.kind}, whose kernels cannot be compared")
            self._interfaces[entry.offset] = known
        return known


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
    file = cubin.read(name, data).elf
    rows: list[tuple[object, ...]] = [(file.machine, file.osabi, file.abi_version, file.type, file.flags)]
    for each in file.headers:
        if each.name != _TOOL_NOTE:
            content = file.data(each, fatbin.PAYLOAD_LIMIT) if each.type else b""
            rows.append((each.name, each.type, each.flags, each.address, each.size, each.link, each.info, content))
    return rows
