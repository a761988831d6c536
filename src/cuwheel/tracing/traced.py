"""What a trace found: frozen values, named as the JSON names them; and several traces as one workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cuwheel.support import codec, files
from cuwheel.support.answer import Answer
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support.wording import file_name
from cuwheel_core.verdicts.choice import CudaError

# How the driver took it. `unknown`: nothing tells what it chose; `none`: nothing in it fits.
How: TypeAlias = Literal["native", "compatible", "jit", "none", "unknown"]


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU as the driver told the program. `cuda`: what the driver came for."""

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


class KernelUse(Struct, frozen=True, kw_only=True):
    """A kernel that a process launched. `launches`: None where it could not tell how often, since it was killed.

    Those of CUDA graphs are not among them. `library`: None where it was not seen, or is the program's own memory.
    """

    process: int
    kernel: str
    demangled: str | None
    library: str | None
    package: str | None
    launches: int | None


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


class Traced(Answer, frozen=True, kw_only=True):
    """`status`: of the command, negative for a signal; `exit_status`: the same as a shell has it.

    `unread`: lines of the trace that could not be understood.
    """

    aside: ClassVar[bool] = True  # stdout is the command's

    schema: Literal["cuwheel.trace/1"] = "cuwheel.trace/1"
    command: tuple[str, ...]
    status: int | None
    exit_status: int
    processes: tuple[Process, ...]
    libraries: tuple[LibraryUse, ...]
    loads: tuple[Load, ...]
    failures: tuple[Failure, ...]
    unread: int
    times: tuple[KernelTime, ...] = ()
    kernels: tuple[KernelUse, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.exit_status == 0


# What traced workloads loaded of each build of a library: several traces as one.

SCHEMA = "cuwheel.trace/1"
_TRACE_LIMIT = 1 << 28
_HINT = "make one with cuwheel trace -o trace.json -- COMMAND"


class Use(Struct, frozen=True, kw_only=True):
    """What was used of one build of a library. `offsets`: where it stands in the file.

    `images`: hashes of what its own code made in memory and handed to the driver, such as cubins that it unpacked;
    `unclear`: one of those is nowhere in the file.
    """

    name: str
    build_id: str
    size: int
    offsets: frozenset[int]
    images: frozenset[str] = frozenset()
    unclear: bool = False


class Workload(Struct, frozen=True, kw_only=True):
    """`commands`: what was traced, without arguments that may be secrets. `problems`: why a trace may not be whole."""

    commands: tuple[str, ...]
    gpus: tuple[Capability, ...]
    uses: tuple[Use, ...]
    problems: tuple[str, ...] = ()

    def use_of(self, build_id: str | None, size: int) -> Use | None:
        return next((each for each in self.uses if (each.build_id, each.size) == (build_id, size)), None)


def read_workload(paths: Sequence[Path]) -> Workload:
    """Files of `trace -o`."""
    found = [(path, read_trace(path)) for path in paths]
    gpus = (gpu.capability for _, each in found for process in each.processes for gpu in process.gpus)
    uses: dict[tuple[str, str, int], Use] = {}
    for _, each in found:
        for use in _uses(each):
            key = use.name, use.build_id, use.size
            before = uses.get(key, use)
            offsets, images = before.offsets | use.offsets, before.images | use.images
            uses[key] = msgspec.structs.replace(use, offsets=offsets, images=images)
    return Workload(
        commands=tuple(dict.fromkeys(_command(path, each) for path, each in found)),
        gpus=tuple(dict.fromkeys(gpus)),
        uses=tuple(uses.values()),
        problems=tuple(f"{path}: {problem}" for path, each in found for problem in _problems(each)),
    )


def read_trace(path: Path) -> Traced:
    """A file of `trace -o`."""
    data = files.read_limited(path, _TRACE_LIMIT, "a trace")
    return codec.parse(data, Traced, path, "a trace", schema=SCHEMA, hint=_HINT)


def _uses(found: Traced) -> list[Use]:
    """A library without a build id cannot be known again, and one whose size was not written down neither."""
    made = []
    for library in found.libraries:
        if not library.build_id or not library.size:
            continue
        loads = [each for each in found.loads if each.library == library.library]
        images = [each for each in found.loads if each.library is None and each.caller == library.library]
        made.append(
            Use(
                name=file_name(library.library),
                build_id=library.build_id,
                size=library.size,
                offsets=frozenset(each.offset for each in loads if each.offset is not None),
                images=frozenset(each.hash for each in images if each.hash),
            )
        )
    return made


def _command(path: Path, found: Traced) -> str:
    if found.command:
        return " ".join(found.command)
    return next((each.script or each.program for each in found.processes if each.script or each.program), path.name)


def _problems(found: Traced) -> list[str]:
    """Why what it lists may not be all that was loaded."""
    problems = []
    if not found.loads:
        problems.append("no device code was loaded in it")
    lost = sum(each.lost for each in found.processes) + found.unread
    if lost:
        problems.append(f"{lost:,} of its events were lost")
    seen = {each.process for each in found.loads}
    if any(each.kernels and number not in seen for number, each in enumerate(found.processes)):
        problems.append("a process launched kernels whose code was not seen, as with the runtime of CUDA 11")
    if any(library.build_id and not library.size for library in found.libraries):
        problems.append("it does not say how large every library was")
    return problems
