"""Cubins: ELF files for the GPU. Their architecture, the toolkit that wrote them, their kernels."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from msgspec import Struct

from cuwheel_core.device_code import elf as elf_file
from cuwheel_core.device_code.dynamic import SYMBOL
from cuwheel_core.device_code.elf import Elf
from cuwheel_core.device_code.libraries import Symbols
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.support.buffer import Buffer, MemoryBuffer
from cuwheel_core.support.patterns import lazy_pattern

ABI_7, ABI_8 = 7, 8
_TYPE_FUNCTION, _BIND_GLOBAL, _BIND_WEAK = 2, 1, 2
_TYPE_VARIABLE = frozenset({1, 10, 11, 12, 13})  # in relocatable code textures, surfaces, samplers, variables
_OTHER_ENTRY, _OTHER_MANAGED = 0x10, 0x4
_TABLE_LIMIT = 1 << 28
# .nv.info is a list of attributes: format, attribute, then as the format says.
_FORMAT_SIZED = 4
_REGISTERS, _FRAME_SIZE, _STACK_SIZE = 0x2F, 0x11, 0x12  # a stack is frames of all that it may call
_SYMBOL_AND_VALUE = struct.Struct("<II")
_PARAMETER, _PARAMETER_INFO, _PARAMETER_SIZE_SHIFT = 0x17, struct.Struct("<IHHI"), 18
_VARIABLES = (".nv.global", ".nv.constant3")
_REGISTERS_SHIFT = 24
_SPECIFIC_ABI_7, _SPECIFIC_ABI_8 = 0x800, 0x8
_NOTE_LIMIT = 1 << 20
_ARCH_OPTION = rb"-arch[ =](sm_1?\d\d[af]?)\b"
_TOOLS = b"Cuda compilation tools, release "  # in .note.nv.tkinfo
_RELEASE = lazy_pattern(_TOOLS + rb"(\d{1,2}\.\d{1,2})")
_ABI_AT, _VERSION_AT = 8, 20
_PTX_ENTRY = lazy_pattern(
    rb"^[ \t]*(?:\.(?:visible|weak|extern)[ \t]+)*\.entry[ \t]+([\w$%]+)", re.MULTILINE | re.ASCII
)

# Functions, and variables in global or constant memory: that in shared memory is sized at launch, not linked.
_PTX_NAME = lazy_pattern(
    rb"^[ \t]*\.(visible|weak|extern)[ \t]+\.(?:func[ \t]*(?:\([^)]*\))?|(?:global|const)\b[^;={}]*?)[ \t\n]*"
    rb"([\w$]+)[ \t\n]*[(;=\[]",
    re.MULTILINE | re.ASCII,
)
# As many variables as a file may have: those that no other object sees, too.
_PTX_VARIABLE = lazy_pattern(
    rb"^[ \t]*(?:\.(?:visible|weak|common)[ \t]+)?\.(?:global|const)\b[^;={}]*?[ \t]([\w$]+)[ \t\n]*[;=\[]",
    re.MULTILINE | re.ASCII,
)


class Kernel(Struct, frozen=True):
    """A kernel and what it needs; None where the code does not record it."""

    name: str
    registers: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None
    code_bytes: int | None = None


class Interface(Struct, frozen=True):
    """What a host launches and fills by name.

    `kernels`: by name, the sizes of the parameters in their order; None where that is not recorded. `variables`: in
    global and constant memory, by name, their sizes.
    """

    kernels: dict[str, tuple[int, ...] | None]
    variables: dict[str, int]


class Cubin(Struct, frozen=True):
    elf: Elf

    @property
    def abi(self) -> int:
        return self.elf.abi_version

    @property
    def linked(self) -> bool:
        return self.elf.type != elf_file.TYPE_RELOCATABLE

    @property
    def arch(self) -> Arch:
        """The architecture with its suffix, which its flags may lack: CUDA 13.0 only tells its options."""
        note = self.elf.named(".note.nv.tkinfo")
        toolkit_note = self.elf.start_of(note, _NOTE_LIMIT) if note else b""
        if option := re.search(_ARCH_OPTION, toolkit_note):
            return Arch.parse(option[1].decode())
        return arch_by_flags(self.elf.flags, self.abi)

    @property
    def size(self) -> int:
        """Where it ends, by its own tables: behind it may stand anything."""
        return elf_file.extent(self.elf)

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(_kernels(self.elf))

    def interface(self) -> Interface:
        kernels = {each.name: _parameters(self.elf, each.name) for each in self.kernels()}
        return Interface(kernels, dict(_variables(self.elf)))

    @property
    def has_symbols(self) -> bool:
        """Without a table of them nothing tells what is in it."""
        return any(each.type == elf_file.SHT_SYMTAB for each in self.elf.headers)

    def symbols(self) -> Symbols:
        """What it brings into a device link and what it cannot do without, which weak references are not."""
        named = list(_named(self.elf))
        return Symbols(
            kernels=tuple(name for name, each in named if each.section and each.other & _OTHER_ENTRY),
            functions=tuple(name for name, each in named if each.section and not each.other & _OTHER_ENTRY),
            wanted=tuple(name for name, each in named if not each.section and each.binding == _BIND_GLOBAL),
            variables=tuple(name for name, _ in _variables(self.elf)),
            managed=tuple(name for name, _ in _variables(self.elf, _OTHER_MANAGED)),
        )


def arch_by_flags(flags: int, abi: int) -> Arch:
    """The architecture that the header of the file names."""
    sm, specific = (flags >> 8 & 0xFF, _SPECIFIC_ABI_8) if abi >= ABI_8 else (flags & 0xFF, _SPECIFIC_ABI_7)
    plain = Arch(Capability.from_number(sm))
    if not flags & specific:
        return plain
    from cuwheel_core.facts import toolkits  # noqa: PLC0415 - the tables, which most files have no need of

    # The bit meant something else before there were such architectures.
    return Arch(plain.capability, "a") if plain.capability >= toolkits.first_specific() else plain


def read_cubin(name: str, data: bytes) -> Cubin:
    return open_buffer(MemoryBuffer(name, data))


def open_buffer(buffer: Buffer) -> Cubin:
    found = elf_file.read_elf(buffer)
    if found.machine != elf_file.MACHINE_CUDA:
        raise MalformedError(buffer.name, f"an ELF file for {found.machine_name}, not a cubin")
    return Cubin(elf=found)


def toolkit(data: bytes) -> str | None:
    """The version that wrote a cubin, such as 12.4, found without parsing the rest of it."""
    if len(data) < elf_file.HEADER_SIZE or data[:4] != elf_file.MAGIC:
        return None
    if data[_ABI_AT] <= ABI_7:
        major, minor = divmod(int.from_bytes(data[_VERSION_AT : _VERSION_AT + 4], "little"), 10)
        return f"{major}.{minor}" if major in range(1, 100) else None
    start = data.find(_TOOLS)
    match = _RELEASE.match(data, start) if start >= 0 else None
    return match[1].decode() if match else None


def ptx_kernels(text: bytes) -> tuple[Kernel, ...]:
    return tuple(Kernel(name=name.decode()) for name in dict.fromkeys(_PTX_ENTRY.findall(text)))


def ptx_symbols(text: bytes) -> Symbols:
    named = [(how, name.decode()) for how, name in _PTX_NAME.findall(text)]
    variables = list(_PTX_VARIABLE.finditer(text))
    return Symbols(
        kernels=tuple(each.name for each in ptx_kernels(text)),
        functions=tuple(name for how, name in named if how != b"extern"),
        wanted=tuple(name for how, name in named if how == b"extern"),
        variables=tuple(match[1].decode() for match in variables),
        managed=tuple(match[1].decode() for match in variables if b".managed" in match[0]),
    )


class _Symbol(Struct, frozen=True):
    number: int
    type: int
    binding: int
    other: int
    section: int  # 0 where another object has it
    size: int


def _all_symbols(elf: Elf) -> Iterator[tuple[str, int, _Symbol]]:
    """Each with what is in its info beside the binding: its type."""
    table = next((each for each in elf.headers if each.type == elf_file.SHT_SYMTAB), None)
    if table is None or table.link >= len(elf.headers):
        return
    names = elf_file.NameTable(elf.buffer.name, elf.data(elf.headers[table.link], _TABLE_LIMIT))
    data = elf.data(table, _TABLE_LIMIT)
    for index in range(len(data) // SYMBOL.size):
        start, info, other, section, _, size = SYMBOL.unpack_from(data, index * SYMBOL.size)
        yield names.at(start), info & 15, _Symbol(index, info & 15, info >> 4, other, section, size)


def _named(elf: Elf) -> Iterator[tuple[str, _Symbol]]:
    """The functions and variables that other objects can see, and kernels that they cannot.

    CUDA 13 makes kernels of anonymous namespaces local; the runtime starts them all the same.
    """
    for name, kind, symbol in _all_symbols(elf):
        seen = symbol.binding in (_BIND_GLOBAL, _BIND_WEAK) or symbol.other & _OTHER_ENTRY
        if seen and (kind in _TYPE_VARIABLE or kind == _TYPE_FUNCTION):
            yield name, symbol


def _variables(elf: Elf, flag: int = 0) -> Iterator[tuple[str, int]]:
    """Local ones too: a whole program's code makes them so. `flag`: only those with it."""
    places = {each.number for each in elf.headers if each.name.startswith(_VARIABLES)}
    for name, kind, symbol in _all_symbols(elf):
        if kind in _TYPE_VARIABLE and symbol.section in places and symbol.other & flag == flag:
            yield name, symbol.size


def _parameters(elf: Elf, kernel: str) -> tuple[int, ...] | None:
    """The sizes of a kernel's parameters in order."""
    info = elf.named(f".nv.info.{kernel}")
    if info is None:
        return None
    sizes = {}
    for attribute, value in _records(elf.data(info, _TABLE_LIMIT)):
        if attribute == _PARAMETER and len(value) == _PARAMETER_INFO.size:
            _, ordinal, _, packed = _PARAMETER_INFO.unpack(value)
            sizes[ordinal] = packed >> _PARAMETER_SIZE_SHIFT
    return tuple(size for _, size in sorted(sizes.items()))


def _kernels(elf: Elf) -> Iterator[Kernel]:
    attributes = _attributes(elf)
    shared = {each.info: each.size for each in elf.headers if each.name.startswith(".nv.shared.")}
    for name, symbol in _named(elf):
        if symbol.type != _TYPE_FUNCTION or not symbol.other & _OTHER_ENTRY:
            continue
        if not 0 < symbol.section < len(elf.headers):
            continue
        registers = attributes.get((_REGISTERS, symbol.number))
        if registers is None:  # older toolkits keep it in the section header alone
            registers = elf.headers[symbol.section].info >> _REGISTERS_SHIFT or None
        yield Kernel(
            name=name,
            registers=registers,
            shared_bytes=shared.get(symbol.section, 0),
            stack_bytes=attributes.get((_STACK_SIZE, symbol.number), attributes.get((_FRAME_SIZE, symbol.number))),
            code_bytes=symbol.size,
        )


def _attributes(elf: Elf) -> dict[tuple[int, int], int]:
    """(attribute, symbol) → value, of those attributes of `.nv.info` that give one per function."""
    info = elf.named(".nv.info")
    found = {}
    for attribute, data in _records(elf.data(info, _TABLE_LIMIT) if info else b""):
        if len(data) == _SYMBOL_AND_VALUE.size:
            symbol, value = _SYMBOL_AND_VALUE.unpack(data)
            found[attribute, symbol] = value
    return found


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes with a value of some size; the value of others, if any, stands where the size would."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _FORMAT_SIZED:
            yield attribute, data[at : at + size]
            at += size
