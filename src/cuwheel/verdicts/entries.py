"""Entries of device code as the driver chooses among them: for a machine, which it takes, and which it might."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures
from cuwheel.verdicts.choose import Code, Device, choose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.device_code.libraries import Kind
    from cuwheel.facts.arch import Arch, Capability
    from cuwheel.machine.fleet import Machine

LOADABLE: tuple[Kind, ...] = ("cubin", "ptx")


class HasCode(Protocol):
    @property
    def kind(self) -> Kind: ...
    @property
    def arch(self) -> Arch: ...
    @property
    def ptx_isa(self) -> str | None: ...


def device(machine: Machine) -> Device | None:
    """None where the machine's capability is not known, so that nothing can be decided for it."""
    capability = machine.capability
    return Device(capability=architectures.current(capability), jit=machine.jit) if capability else None


def code(entry: HasCode) -> Code | None:
    """None for what the driver does not choose among: LTO-IR, and what no GPU has ever been."""
    loadable = entry.kind in LOADABLE and entry.arch.readable
    return Code(arch=entry.arch, ptx_isa=entry.ptx_isa) if loadable else None


def chosen(entries: Sequence[HasCode], on: Device) -> int | None:
    """The index of the entry that is taken: the driver's version does not change which, only whether it works."""
    return _choose(list(_codes(entries)), on)


def possible(entries: Sequence[HasCode], on: Device) -> Iterator[int]:
    """What is taken, and what would be instead where nobody has promised or seen that this works."""
    for each in with_and_without_jit(on):
        codes = list(_codes(entries))
        while (index := _choose(codes, each)) is not None:
            yield index
            found = next(found for place, found in codes if place == index)
            if not _doubtful(found.arch, each.capability):
                break
            codes = [(place, found) for place, found in codes if place != index]


def with_and_without_jit(on: Device) -> frozenset[Device]:
    """A switch in the environment (CUDA_FORCE_PTX_JIT) belongs to a process, not to the machine."""
    return frozenset({on, replace(on, jit="allowed")})


def _codes(entries: Sequence[HasCode]) -> Iterator[tuple[int, Code]]:
    for index, entry in enumerate(entries):
        if found := code(entry):
            yield index, found


def _choose(codes: Sequence[tuple[int, Code]], on: Device) -> int | None:
    taken = choose([found for _, found in codes], on).entry
    return None if taken is None else codes[taken][0]


def _doubtful(arch: Arch, capability: Capability) -> bool:
    """Machine code for another member of a family, or across desktop and Tegra: it may well not run."""
    if arch.kind != "sm" or architectures.current(arch.capability) == capability:
        return False
    return arch.suffix == "f" or _tegra(arch.capability) != _tegra(capability)


def _tegra(capability: Capability) -> bool:
    try:
        return architectures.find_architecture(capability).tegra
    except UnknownNameError:
        return False
