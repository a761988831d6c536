"""Which device runs which code, and what the driver makes of one container: the entry it takes, or its error.

The capability rules stand here once, for all verbs. Every branch of the driver's choice was seen on an H200 with fat
binaries put together for it; `docs/why/truth.md` has the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability, looks_like_arch
from cuwheel_core.verdicts.device import Device, Jit

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Kind
    from cuwheel_core.facts.rows.toolkits import Release, Toolkit


@lru_cache(maxsize=4096)
def serves(arch: Arch, device: Capability) -> bool:
    """Whether a device can use code for `arch`: machine code as it is, PTX by compiling it in the driver.

    - `a` code uses instructions that only this capability has: exactly this one.
    - `f` code keeps to what its family shares: the members that the table lists.
    - Machine code runs on later minors of its major (sm_80 on 8.6), never on earlier ones, never across majors.
    - PTX compiles for everything that is at least as new.
    """
    device = gpus.current_capability(device)
    target = gpus.current_capability(arch.capability)
    if arch.suffix == "a":
        return device == target
    if arch.suffix == "f":
        return device in gpus.family_of(arch.capability)
    if arch.kind == "sm":
        return device.major == target.major and device.minor >= target.minor
    return device >= target


def can_target(toolkit: Toolkit, device: Capability) -> bool:
    """Whether a toolkit compiles machine code that runs on a device."""
    return any(serves(arch, device) for arch in toolkit.archs)


@cache  # asked for every library of a package, and a package may have thousands
def toolkits_for(device: Capability) -> tuple[Toolkit, ...]:
    """Those that compile for its very capability, whatever they call it, oldest first."""
    wanted = gpus.current_capability(device)
    return tuple(row for row in toolkits.all_toolkits() if wanted in _capabilities(row))


@cache
def releases_for(device: Capability) -> tuple[Release, ...]:
    """The releases as `toolkits_for` finds them, with those that nobody builds with any more."""
    wanted = gpus.current_capability(device)
    return tuple(row for row in toolkits.all_releases() if wanted in _capabilities(row))


def compiled_by(device: Capability, able: Iterable[Toolkit] | None = None) -> str:
    """Which CUDA compiles for a device, in the words of all verbs: `CUDA 8.0 to 12.9`; empty where none does.

    `able`: those of `toolkits_for` that count; all of them stand for the earlier releases too.
    """
    known = toolkits_for(device)
    rows: Sequence[Release] = known if able is None else tuple(able)
    if rows == known:
        rows = releases_for(device)
    return toolkits.span(rows) if rows else ""


def releases_compiling(releases: Iterable[Release], target: str) -> list[Release]:
    """Those that compile for an architecture (`sm_90a`), or for a GPU by any of its names."""
    if looks_like_arch(target):
        return [each for each in releases if each.supports(Arch.parse(target))]
    able = releases_for(gpus.capability_of(target))
    return [each for each in releases if each in able]


@cache
def capability_in_toolkit(toolkit: Toolkit, device: Capability) -> Capability:
    """What a toolkit calls a device that it compiles for: Thor has had two numbers."""
    archs = [arch for arch in toolkit.archs if not arch.suffix]
    wanted = gpus.current_capability(device)
    return next((arch.capability for arch in archs if gpus.current_capability(arch.capability) == wanted), device)


def _capabilities(toolkit: Release) -> set[Capability]:
    """The capabilities that a toolkit compiles plain machine code for."""
    return {gpus.current_capability(arch.capability) for arch in toolkit.archs if not arch.suffix}


# What the driver makes of one container on one device: which entry it takes, or which error it gives.

How: TypeAlias = Literal["native", "compatible", "jit", "none"]

_SUFFIX_RANK = {"": 0, "f": 1, "a": 2}


class CudaError(Struct, frozen=True, kw_only=True):
    code: int
    name: str


NO_KERNEL_IMAGE = CudaError(code=209, name="cudaErrorNoKernelImageForDevice")
UNSUPPORTED_PTX = CudaError(code=222, name="cudaErrorUnsupportedPtxVersion")
INVALID_SYMBOL = CudaError(code=13, name="cudaErrorInvalidSymbol")
INVALID_PTX = CudaError(code=218, name="cudaErrorInvalidPtx")
JIT_DISABLED = CudaError(code=223, name="cudaErrorJitCompilationDisabled")
SYMBOL_NOT_FOUND = CudaError(code=500, name="cudaErrorSymbolNotFound")
INVALID_SOURCE = CudaError(code=300, name="cudaErrorInvalidSource")
NO_DEVICE = CudaError(code=100, name="cudaErrorNoDevice")
INSUFFICIENT_DRIVER = CudaError(code=35, name="cudaErrorInsufficientDriver")


class Loader(Struct, frozen=True, kw_only=True):
    """What chooses among device code: the driver of a GPU. `ptx_isa`: the newest that it compiles; None: not known."""

    capability: Capability
    ptx_isa: str | None = None
    jit: Jit = "allowed"


class Code(Struct, frozen=True, kw_only=True):
    """An entry as far as the choice goes by it."""

    arch: Arch
    ptx_isa: str | None = None


class Choice(Struct, frozen=True, kw_only=True):
    """`entry`: the index of the one taken. `needs_isa`: holds only if the driver knows this PTX."""

    how: How
    entry: int | None = None
    error: CudaError | None = None
    needs_isa: str | None = None


def choose(codes: Sequence[Code], device: Loader) -> Choice:
    """A cubin that fits, else PTX that fits; the best of each, of equals the first (but see `_place`)."""
    if device.jit != "forced" and (cubin := _best(codes, device, "sm")) is not None:
        same = gpus.current_capability(codes[cubin].arch.capability) == gpus.current_capability(device.capability)
        return Choice(how="native" if same else "compatible", entry=cubin)
    ptx = _best(codes, device, "compute")
    if ptx is None:
        return Choice(how="none", error=NO_KERNEL_IMAGE)
    if device.jit == "disabled":
        return Choice(how="none", entry=ptx, error=JIT_DISABLED)
    needed = codes[ptx].ptx_isa
    if needed and device.ptx_isa is None:
        return Choice(how="jit", entry=ptx, needs_isa=needed)
    if needed and device.ptx_isa and not versions.at_least(device.ptx_isa, needed):
        # The driver does not look further, though an older PTX beside it would do.
        return Choice(how="none", entry=ptx, error=UNSUPPORTED_PTX)
    return Choice(how="jit", entry=ptx)


def _best(codes: Sequence[Code], device: Loader, kind: str) -> int | None:
    """The newest that fits; `sm_90a` before `sm_90`."""
    ranked = [
        (
            gpus.current_capability(arch.capability),
            _SUFFIX_RANK[arch.suffix],
            _place(arch, index, device),
            index,
        )
        for index, arch in enumerate(code.arch for code in codes)
        if arch.kind == kind and serves(arch, device.capability)
    ]
    return max(ranked)[-1] if ranked else None


def _place(arch: Arch, index: int, device: Loader) -> int:
    """Among equals the first wins. Plain PTX of the device's very capability is an exception: the last.

    That rests on two fat binaries with PTX of compute_90 by two toolkits in both orders, on a GPU of 9.0.
    """
    own = gpus.current_capability(arch.capability) == gpus.current_capability(device.capability)
    return index if arch.kind == "compute" and not arch.suffix and own else -index


# Entries of device code as the driver chooses among them: for a machine, which it takes, and which it might.

LOADABLE: tuple[Kind, ...] = ("cubin", "ptx")


class HasCode(Protocol):
    @property
    def kind(self) -> Kind: ...
    @property
    def arch(self) -> Arch: ...
    @property
    def ptx_isa(self) -> str | None: ...


def loader_of(machine: Device) -> Loader | None:
    """What chooses on a machine, whatever its driver; None where its GPU is not known: then nothing is decided."""
    capability = machine.capability
    return Loader(capability=gpus.current_capability(capability), jit=machine.jit) if capability else None


def loadable_code(entry: HasCode) -> Code | None:
    """The code of an entry; None for what the driver does not choose among: LTO-IR, and what no GPU has ever been."""
    loadable = entry.kind in LOADABLE and entry.arch.readable
    return Code(arch=entry.arch, ptx_isa=entry.ptx_isa) if loadable else None


def chosen_entry(entries: Sequence[HasCode], on: Loader) -> int | None:
    """The index of the entry that is taken: the driver's version does not change which, only whether it works."""
    return _choose_index(list(_loadable_codes(entries)), on)


def possible_entries(entries: Sequence[HasCode], on: Loader) -> Iterator[int]:
    """What is taken, and what would be instead where nobody has promised or seen that this works."""
    for each in with_and_without_jit(on):
        codes = list(_loadable_codes(entries))
        while (index := _choose_index(codes, each)) is not None:
            yield index
            found = next(found for place, found in codes if place == index)
            if not _doubtful(found.arch, each.capability):
                break
            codes = [(place, found) for place, found in codes if place != index]


def with_and_without_jit(on: Loader) -> frozenset[Loader]:
    """A switch in the environment (CUDA_FORCE_PTX_JIT) belongs to a process, not to the machine."""
    return frozenset({on, replace(on, jit="allowed")})


def _loadable_codes(entries: Sequence[HasCode]) -> Iterator[tuple[int, Code]]:
    for index, entry in enumerate(entries):
        if found := loadable_code(entry):
            yield index, found


def _choose_index(codes: Sequence[tuple[int, Code]], on: Loader) -> int | None:
    taken = choose([found for _, found in codes], on).entry
    return None if taken is None else codes[taken][0]


def _doubtful(arch: Arch, capability: Capability) -> bool:
    """Machine code for another member of a family, or across desktop and Tegra: it may well not run."""
    if arch.kind != "sm" or gpus.current_capability(arch.capability) == capability:
        return False
    return arch.suffix == "f" or gpus.is_tegra(arch.capability) != gpus.is_tegra(capability)
