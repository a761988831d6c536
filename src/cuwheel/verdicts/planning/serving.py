"""Which toolkits can build something that a machine runs: GPU, driver, torch and wishes taken together.

Answers for all toolkits at once are bit masks, bit i for the i-th row of the table, so that ten thousand machines are
no more work than the few kinds there are of them.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts import architectures, toolkits, versions
from cuwheel.facts.arch import Arch, Capability
from cuwheel.facts.rows.common import OperatingSystem
from cuwheel.machine.fleet import Jit
from cuwheel.verdicts import drivers
from cuwheel.verdicts.choice import serves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.planning.settings import Wishes

_KINDS = 1 << 16


class Driver(Struct, frozen=True, kw_only=True):
    """What a driver can do, as masks; drivers that can do the same are one value.

    `cuda`: the newest version all of whose features it knows, "0" where it is older than any; None: it is not known.
    `runs`: machine code of these toolkits. `compiles`: their PTX. Both may hold toolkits for which the table does not
    say; `runs_surely` and `compiles_surely` do not. `behind`: toolkits that are newer than it.
    """

    cuda: str | None
    runs: int
    runs_surely: int
    compiles: int
    compiles_surely: int
    behind: int


class Kind(Struct, frozen=True, kw_only=True):
    """All that a plan goes by. Machines that agree in this are planned as one."""

    capability: Capability
    driver: Driver
    system: OperatingSystem
    system_known: bool
    knows_gpu: drivers.GpuState
    tegra: bool
    torch_cuda: str | None
    jit: Jit


class Reach(Struct, frozen=True, kw_only=True):
    """Toolkits that serve a kind: by machine code, or by PTX alone. `weak`: newer than its driver or its torch."""

    cubin: int
    ptx: int
    weak: int

    @property
    def any(self) -> int:
        return self.cubin | self.ptx


def kind_of(machine: Machine) -> Kind | None:
    """None where the GPU is not known."""
    if machine.capability is None:
        return None
    capability = architectures.current(machine.capability)
    tegra = machine.runs_l4t or drivers.tegra(capability)
    system = machine.os or "linux"
    return Kind(
        capability=capability,
        # A Jetson's driver is numbered otherwise.
        driver=driver_of(None if tegra else machine.driver, machine.driver_cuda, system),
        system=system,
        system_known=machine.os is not None,
        knows_gpu=drivers.gpu_state(machine, system),
        tegra=tegra,
        torch_cuda=machine.torch_cuda,
        jit=machine.jit,
    )


def driver_of(driver: str | None, driver_cuda: str | None, system: OperatingSystem) -> Driver:
    if driver_cuda:
        return _by_cuda(driver_cuda)
    if driver is None:
        return _unknown()
    return _by_level(bisect_right(_levels(system), versions.key(driver)), system)


@cache
def _unknown() -> Driver:
    everything = mask(toolkits.all_toolkits())
    return Driver(cuda=None, runs=everything, runs_surely=0, compiles=everything, compiles_surely=0, behind=0)


@lru_cache(maxsize=_KINDS)
def _by_cuda(cuda: str) -> Driver:
    """By the version that it reports itself: it runs all of that major, and compiles PTX up to that one's."""
    rows = toolkits.all_toolkits()
    older = [row for row in rows if versions.at_least(cuda, row.version)]
    runs = _mask(lambda row: row.major <= versions.major(cuda))
    compiles = _mask(lambda row: bool(older) and versions.at_least(older[-1].ptx_isa, row.ptx_isa))
    return Driver(
        cuda=cuda,
        runs=runs,
        runs_surely=runs,
        compiles=compiles,
        compiles_surely=compiles,
        behind=_mask(lambda row: row not in older),
    )


@cache
def _levels(system: OperatingSystem) -> tuple[tuple[int, ...], ...]:
    """Every driver version that makes a difference, in order."""
    named = [toolkits.minor_compat_floor(row.major, system) for row in toolkits.all_toolkits()]
    named += [row.driver.on(system) for row in toolkits.all_toolkits()]
    return tuple(sorted({versions.key(each) for each in named if each}))


@cache
def _by_level(level: int, system: OperatingSystem) -> Driver:
    """By its number, as far as it makes a difference. What the table does not say of a system stays open."""
    key = _levels(system)[level - 1] if level else ()

    def at_least(floor: str | None) -> bool | None:
        return key >= versions.key(floor) if floor else None

    runs = {row: at_least(toolkits.minor_compat_floor(row.major, system)) for row in toolkits.all_toolkits()}
    known = {row: at_least(row.driver.on(system)) for row in runs}
    newest = max((versions.key(row.ptx_isa) for row in runs if known[row]), default=())
    # A driver compiles the PTX of a newer toolkit that writes the same ISA as its own.
    compiles = {row: known[row] if known[row] is not False else versions.key(row.ptx_isa) <= newest for row in runs}
    complete = [row for row in runs if known[row]]
    return Driver(
        cuda=complete[-1].version if complete else "0",
        runs=_mask(lambda row: runs[row] is not False),
        runs_surely=_mask(lambda row: runs[row] is True),
        compiles=_mask(lambda row: compiles[row] is not False),
        compiles_surely=_mask(lambda row: compiles[row] is True),
        behind=_mask(lambda row: known[row] is False),
    )


@cache
def archs_of(version: str) -> tuple[Arch, ...]:
    """What a toolkit compiles machine code for; for PTX it is the same list."""
    return toolkits.find_toolkit(version).archs


@lru_cache(maxsize=_KINDS)
def cubins(version: str, device: Capability, wishes: Wishes) -> tuple[Arch, ...]:
    """The machine code of a toolkit that would do for a device, as far as the wishes go."""
    fitting = [arch for arch in archs_of(version) if serves(arch, device)]
    wanted = "a" if wishes.specific else "f" if wishes.family else ""
    chosen = [arch for arch in fitting if arch.suffix == wanted] or [arch for arch in fitting if not arch.suffix]
    if wishes.native:
        chosen = [arch for arch in chosen if architectures.current(arch.capability) == device]
    return tuple(chosen)


@cache
def ptx(version: str, device: Capability) -> tuple[Arch, ...]:
    """The plain PTX of a toolkit that a driver could compile for a device."""
    plain = [Arch(arch.capability, "", "compute") for arch in archs_of(version) if not arch.suffix]
    return tuple(arch for arch in plain if serves(arch, device))


def fits_torch(torch_cuda: str | None, toolkit: Toolkit) -> bool:
    """Extensions share torch's CUDA libraries, which hold together within a major version only."""
    return torch_cuda is None or versions.major(torch_cuda) == toolkit.major


def newer_than_torch(torch_cuda: str | None, toolkit: Toolkit) -> bool:
    return torch_cuda is not None and not versions.at_least(versions.minor(torch_cuda), toolkit.version)


@lru_cache(maxsize=_KINDS)
def reach(kind: Kind, wishes: Wishes) -> Reach:
    """The toolkits that serve a kind of machine."""
    usable = kind.driver.runs & torch_takes(kind.torch_cuda)
    by_cubin = usable & compilers_for(kind.capability, wishes) if kind.jit != "forced" else 0
    by_ptx = 0
    if kind.jit != "disabled" and wishes.ptx and not wishes.native:
        by_ptx = usable & kind.driver.compiles & _writes_ptx(kind.capability)
    return Reach(cubin=by_cubin, ptx=by_ptx, weak=kind.driver.behind | _beyond_torch(kind.torch_cuda))


def mask(rows: Iterable[Toolkit]) -> int:
    """The bits of these toolkits."""
    return sum(1 << position(row) for row in rows)


def position(toolkit: Toolkit) -> int:
    """Its place in the table, oldest first."""
    return _positions()[toolkit.version]


@cache
def _positions() -> dict[str, int]:
    return {row.version: index for index, row in enumerate(toolkits.all_toolkits())}


def rows_of(bits: int) -> tuple[Toolkit, ...]:
    """The toolkits of a mask, oldest first."""
    return tuple(row for index, row in enumerate(toolkits.all_toolkits()) if bits >> index & 1)


def _mask(holds: Callable[[Toolkit], bool]) -> int:
    return sum(1 << index for index, row in enumerate(toolkits.all_toolkits()) if holds(row))


@lru_cache(maxsize=_KINDS)
def torch_takes(torch_cuda: str | None) -> int:
    return _mask(lambda row: fits_torch(torch_cuda, row))


@lru_cache(maxsize=_KINDS)
def _beyond_torch(torch_cuda: str | None) -> int:
    return _mask(lambda row: newer_than_torch(torch_cuda, row))


@lru_cache(maxsize=_KINDS)
def compilers_for(device: Capability, wishes: Wishes) -> int:
    """The toolkits that compile machine code for a device, the wishes granted."""
    return _mask(lambda row: bool(cubins(row.version, device, wishes)))


@cache
def _writes_ptx(device: Capability) -> int:
    return _mask(lambda row: bool(ptx(row.version, device)))
