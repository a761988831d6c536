"""What a trace found: frozen values, named as the JSON names them."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.facts.arch import Capability
from cuwheel.verdicts.choice import CudaError

# How the driver took it. `unknown`: nothing tells what it chose; `none`: nothing in it fits.
How: TypeAlias = Literal["native", "compatible", "jit", "none", "unknown"]


class Gpu(Struct, frozen=True, kw_only=True):
    """As the driver told the program. `cuda`: what the driver came for."""

    name: str
    capability: Capability
    cuda: str


class Process(Struct, frozen=True, kw_only=True):
    """A process that used CUDA. `seconds`: until its last event; `first_launch`: when its first kernel was launched.

    `began`: seconds after the first of them did. `ended`: it came to its own end, and was not killed. `kernels`: how
    many different ones it launched.
    """

    pid: int
    parent: int
    program: str
    script: str | None
    gpus: tuple[Gpu, ...]
    seconds: float
    first_launch: float | None
    ended: bool
    kernels: int
    launches: int | None
    lost: int
    began: float = 0.0


class Load(Struct, frozen=True, kw_only=True):
    """Code that a program handed to the driver. `process`: its place in the list of processes.

    `library`: the file that it stands in; None for memory of the program, which `caller` handed over. `container`:
    counted from 0 over the file, None where it is none of those that were found. `arch`: what the driver took of it.
    `cached`: the driver had compiled it before. `hash`: of the first 64 KiB, FNV-1a.
    """

    process: int
    at: float
    seconds: float
    library: str | None
    package: str | None
    container: int | None
    offset: int | None
    caller: str | None
    kind: str
    size: int
    arch: str | None
    archs: tuple[str, ...]
    how: How
    jit_ms: float | None
    cached: bool | None
    kernels: tuple[str, ...]
    launched: tuple[str, ...]
    error: CudaError | None
    hash: str
    thread: int = 0


class Failure(Struct, frozen=True, kw_only=True):
    """A call that failed. `demangled`: the kernel as in the source. `archs`: what its container has.

    `kernels`: where the CUDA runtime does not tell which, those that the container has for another GPU. `last`: the
    kernels that were launched before, the latest first: of an error that comes late one of them is the cause.
    `last_libraries`: the file of each of these, as far as it is known. `log`: what the driver's compiler said;
    `driver_log`: what the driver's own log tells of the call (from CUDA 12.9 on).
    `swallowed`: the program went on and succeeded. `times`: how often the same was seen.
    """

    process: int
    at: float
    api: str
    error: CudaError
    meaning: str
    kernel: str | None
    demangled: str | None
    library: str | None
    package: str | None
    container: int | None
    archs: tuple[str, ...]
    gpu: str | None
    reason: str
    fix: str
    kernels: tuple[str, ...]
    caller: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    bytes: int
    python: tuple[str, ...]
    last: tuple[str, ...]
    swallowed: bool
    times: int
    last_libraries: tuple[str | None, ...] = ()
    log: str = ""
    driver_log: tuple[str, ...] = ()


class KernelTime(Struct, frozen=True, kw_only=True):
    """How long all launches of a kernel in a process ran on the GPU together, where CUPTI was asked."""

    process: int
    kernel: str
    demangled: str | None
    launches: int
    seconds: float


class LibraryUse(Struct, frozen=True, kw_only=True):
    """A file that code was loaded from, over all processes. `bytes`: of the containers, as stored; `size`: of the file.

    `build_id` and `size` together tell a build that was slimmed from the same before.
    """

    library: str
    package: str | None
    build_id: str | None
    containers: int
    loaded: int
    launched: int
    bytes: int
    loaded_bytes: int
    how: tuple[How, ...]
    jit_ms: float
    size: int | None = None


class Trace(Struct, frozen=True, kw_only=True):
    """`unread`: lines of the trace that could not be understood."""

    processes: tuple[Process, ...]
    libraries: tuple[LibraryUse, ...]
    loads: tuple[Load, ...]
    failures: tuple[Failure, ...]
    unread: int
    times: tuple[KernelTime, ...] = ()
