"""What the driver makes of one container on one device: which entry it takes, or which error it gives.

Every branch here was seen on an H200 with fat binaries put together for it; `docs/truth.md` has the counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from cuwheel.facts import architectures, versions
from cuwheel.facts.arch import Arch, Capability
from cuwheel.verdicts.targets import serves

if TYPE_CHECKING:
    from collections.abc import Sequence

How: TypeAlias = Literal["native", "compatible", "jit", "none"]
Jit: TypeAlias = Literal["allowed", "disabled", "forced"]

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


class Device(Struct, frozen=True, kw_only=True):
    """`ptx_isa`: the newest that its driver compiles; None where the driver is not known."""

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


def choose(codes: Sequence[Code], device: Device) -> Choice:
    """A cubin that fits, else PTX that fits; the best of each, of equals the first (but see `_place`)."""
    if device.jit != "forced" and (cubin := _best(codes, device, "sm")) is not None:
        return Choice(how=_how(codes[cubin].arch, device), entry=cubin)
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


def _best(codes: Sequence[Code], device: Device, kind: str) -> int | None:
    fitting = [
        index for index, code in enumerate(codes) if code.arch.kind == kind and serves(code.arch, device.capability)
    ]
    ranked = [(_rank(codes[index].arch), _place(codes[index].arch, index, device), index) for index in fitting]
    return max(ranked)[-1] if ranked else None


def _place(arch: Arch, index: int, device: Device) -> int:
    """Among equals the first wins. Plain PTX of the device's very capability is an exception: the last.

    That rests on two fat binaries with PTX of compute_90 by two toolkits in both orders, on a GPU of 9.0.
    """
    own = architectures.current(arch.capability) == architectures.current(device.capability)
    return index if arch.kind == "compute" and not arch.suffix and own else -index


def _rank(arch: Arch) -> tuple[Capability, int]:
    """The newest that fits; `sm_90a` before `sm_90`."""
    return architectures.current(arch.capability), _SUFFIX_RANK[arch.suffix]


def _how(arch: Arch, device: Device) -> How:
    same = architectures.current(arch.capability) == architectures.current(device.capability)
    return "native" if same else "compatible"
