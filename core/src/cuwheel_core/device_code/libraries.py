"""What inspection finds: frozen values, named as the JSON names them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding

Kind: TypeAlias = Literal["cubin", "ptx", "lto-ir", "unknown"]
Compression: TypeAlias = Literal["none", "lz4", "zstd"]
Format: TypeAlias = Literal["elf", "pe", "archive", "fatbin", "cubin", "ptx", "unknown"]
FileType: TypeAlias = Literal["shared", "executable", "relocatable", "other"]
PartName: TypeAlias = Literal["host code", "host data", "device code", "debug", "symbols", "other"]
# How much of the device code a survey lists: rows only, also containers, also every entry.
Detail: TypeAlias = Literal["rows", "containers", "entries"]
Search: TypeAlias = Literal["nowhere", "data", "whole"]

VERSION_LINKED = 2  # of a wrapper
READ_IN_PART = "read-in-part"  # the rule of findings that say so of a wheel on a server
_DEVICE_RUNTIME = ("__cuda", "cuda")
_DEVICE_RUNTIME_SOURCE = "_cuda_device_runtime_cu_"


class DeviceCode(Struct, frozen=True, kw_only=True):
    """The entries of one library that are alike."""

    kind: Kind
    arch: Arch
    section: str
    linked: bool  # false for relocatable code, which the driver would have to link at load
    compression: Compression
    ptx_isa: str | None
    count: int
    bytes: int  # as stored, headers included: what leaving them out would save
    real_bytes: int  # what they hold, decompressed
    debug_count: int  # how many of them were compiled with device debug information
    saving: int | None = None  # what ZSTD would save of raw code, estimated where there is enough of it


class Entry(Struct, frozen=True, kw_only=True):
    """One piece of device code."""

    container: int | None  # counted from 0 over the whole file; None for a cubin that stands in none
    section: str
    offset: int  # of its header, in the file
    kind: Kind
    arch: Arch
    linked: bool
    compression: Compression
    ptx_isa: str | None
    cubin_abi: int | None
    header_size: int
    bytes: int  # the payload as stored, without the header
    compressed_bytes: int  # the payload without its padding; 0 where it is not compressed
    real_bytes: int
    debug: bool
    flags: int
    options: str
    identifier: str


class Symbols(Struct, frozen=True, kw_only=True):
    """What a relocatable object brings into a device link, and what it wants from others."""

    kernels: tuple[str, ...]
    functions: tuple[str, ...]  # variables too
    wanted: tuple[str, ...]
    variables: tuple[str, ...] = ()  # those that the host fills and reads by name, local ones too
    managed: tuple[str, ...] = ()  # those of them in managed memory

    @property
    def of_runtime(self) -> bool:
        """Whether it is an object of libcudadevrt's, told by its names: the kernels in it are nobody's to launch."""
        if any(_DEVICE_RUNTIME_SOURCE in name for name in (*self.kernels, *self.variables)):
            return True
        if self.kernels or not self.functions:
            return False
        return all(name.startswith(_DEVICE_RUNTIME) for name in self.functions)


class Absent(Struct, frozen=True, kw_only=True):
    """Kernels and variables that the host registers and one entry of a container has not.

    `entry`: its place in the container's `code`. `names`: the first of them, mangled. `everything`: it has none at all
    of what the host registers. `managed`: all of them are variables in managed memory.
    """

    entry: int
    names: tuple[str, ...]
    everything: bool = False
    managed: bool = False


class Container(Struct, frozen=True, kw_only=True):
    """One fat binary. `code` has an index into the library's `device_code` for each entry, in order.

    `symbols`: of relocatable objects, where those of the library were compiled for different architectures.
    `without_kernels`: known to hold neither a kernel nor a variable that the host registers, so that no GPU can lack
    one in it. `absent`: of code that a device link made, what its objects have and it has not; of other code, what
    its entries have for some architectures only. `managed`: all that the host registers of it is known to be variables
    in managed memory.
    """

    section: str
    offset: int
    size: int  # header included
    code: tuple[int, ...]
    symbols: Symbols | None = None
    without_kernels: bool = False
    absent: tuple[Absent, ...] = ()
    managed: bool = False


class Wrapper(Struct, frozen=True, kw_only=True):
    """What the runtime registers: it names one container by its place in the file's list."""

    version: int  # 1 plain, 2 device-linked
    container: int | None  # None where it points at none that was found

    @property
    def device_linked(self) -> bool:
        return self.version == VERSION_LINKED


class Registration(Struct, frozen=True, kw_only=True):
    wrappers: tuple[Wrapper, ...]
    module_ids: tuple[str, ...]
    containers: int
    unnamed: tuple[int, ...]  # containers that no wrapper names


class Part(Struct, frozen=True, kw_only=True):
    """Bytes of the file that serve one purpose; the parts of a file add up to its size."""

    name: PartName
    arch: Arch | None  # for device code only; None there for headers and what is not understood
    bytes: int


class Cudart(Struct, frozen=True, kw_only=True):
    """How the CUDA runtime is linked. `minor`: null where its name does not tell it, as from CUDA 11 on."""

    linkage: Literal["dynamic", "static"]
    major: int | None
    evidence: str
    minor: int | None = None


class Platform(Struct, frozen=True, kw_only=True):
    name: Literal["sbsa", "l4t"]
    evidence: str


class Library(Struct, frozen=True, kw_only=True):
    path: str
    format: Format
    type: FileType
    machine: str
    size: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    interpreter: str | None
    glibc: str | None
    glibcxx: str | None
    cxxabi: str | None
    cxx11_abi: bool | None  # None where nothing tells
    build_id: str | None
    host_compiler: str | None
    cudart: Cudart | None
    toolkits: tuple[str, ...]  # that wrote the cubins, as far as a sample of each kind tells
    platform: Platform | None
    device_linked: bool
    device_code: tuple[DeviceCode, ...]
    parts: tuple[Part, ...]
    registration: Registration
    containers: tuple[Container, ...]  # empty unless asked for
    entries: tuple[Entry, ...]  # empty unless asked for
    findings: tuple[Finding, ...]
    torch_symbols: tuple[str, ...] = ()  # mangled names that only torch can give it
    signed: bool = False  # a Windows binary with a certificate attached


# What is not known of a library that was not read, or only in part.
UNREAD = Library(
    path="",
    format="elf",
    type="shared",
    machine="unknown",
    size=0,
    soname=None,
    needed=(),
    rpath=(),
    runpath=(),
    interpreter=None,
    glibc=None,
    glibcxx=None,
    cxxabi=None,
    cxx11_abi=None,
    build_id=None,
    host_compiler=None,
    cudart=None,
    toolkits=(),
    platform=None,
    device_linked=False,
    device_code=(),
    parts=(),
    registration=Registration(wrappers=(), module_ids=(), containers=0, unnamed=()),
    containers=(),
    entries=(),
    findings=(),
)
