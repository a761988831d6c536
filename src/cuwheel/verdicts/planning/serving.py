"""Which toolkits can build something that a machine runs, and why one is served only under conditions, or not at all.

GPU, driver, torch and options are taken together. Answers for all toolkits at once are bit masks, bit i for the i-th
row of the table, so that ten thousand machines are no more work than the few kinds there are of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.verdicts.fixes import newer_driver_fixes
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.facts.rows.common import OperatingSystem
from cuwheel_core.facts.tables import tables
from cuwheel_core.fix import in_words
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import compiled_by, serves
from cuwheel_core.verdicts.condition import Condition, condition
from cuwheel_core.verdicts.device import Jit
from cuwheel_core.verdicts.drivers import isa_condition

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.facts.rows.toolkits import Toolkit


_KINDS = 1 << 16
EVERY = -1  # as a mask: all toolkits


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


class ServingToolkits(Struct, frozen=True, kw_only=True):
    """Toolkits that serve a kind: by machine code, or by PTX alone. `weak`: newer than its driver or its torch."""

    cubin: int
    ptx: int
    weak: int

    @property
    def any(self) -> int:
        return self.cubin | self.ptx


def kind_of(machine: Machine) -> Kind | None:
    """The kind of a machine; None where its GPU is not known."""
    if machine.capability is None:
        return None
    capability = gpus.current_capability(machine.capability)
    tegra = machine.runs_l4t or gpus.is_tegra(capability)
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
    everything = mask_of(toolkits.all_toolkits())
    return Driver(cuda=None, runs=everything, runs_surely=0, compiles=everything, compiles_surely=0, behind=0)


@lru_cache(maxsize=_KINDS)
def _by_cuda(cuda: str) -> Driver:
    """The driver that reports this version: it runs all of that major, and compiles PTX up to that one's."""
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
    """The driver of this number, as far as that matters. What the table does not say of a system stays open."""
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
def cubins_for(version: str, device: Capability, options: PlanOptions) -> tuple[Arch, ...]:
    """The machine code of a toolkit that would do for a device, with these options."""
    fitting = [arch for arch in archs_of(version) if serves(arch, device)]
    wanted = "a" if options.specific else "f" if options.family else ""
    chosen = [arch for arch in fitting if arch.suffix == wanted] or [arch for arch in fitting if not arch.suffix]
    if options.native:
        chosen = [arch for arch in chosen if gpus.current_capability(arch.capability) == device]
    return tuple(chosen)


@cache
def ptx_for(version: str, device: Capability) -> tuple[Arch, ...]:
    """The plain PTX of a toolkit that a driver could compile for a device."""
    plain = [Arch(arch.capability, "", "compute") for arch in archs_of(version) if not arch.suffix]
    return tuple(arch for arch in plain if serves(arch, device))


def fits_torch(torch_cuda: str | None, toolkit: Toolkit) -> bool:
    """Extensions share torch's CUDA libraries, which hold together within a major version only."""
    return torch_cuda is None or versions.major(torch_cuda) == toolkit.major


def newer_than_torch(torch_cuda: str | None, toolkit: Toolkit) -> bool:
    return torch_cuda is not None and not versions.at_least(versions.minor(torch_cuda), toolkit.version)


@lru_cache(maxsize=_KINDS)
def reach_of_kind(kind: Kind, options: PlanOptions, among: int = EVERY) -> ServingToolkits:
    """The toolkits that serve a kind of machine. `among`: those that are asked about."""
    usable = among & kind.driver.runs & torch_takes(kind.torch_cuda)
    by_cubin = compilers_for(kind.capability, options, usable) if kind.jit != "forced" else 0
    by_ptx = 0
    if kind.jit != "disabled" and options.ptx and not options.native:
        by_ptx = _writes_ptx(kind.capability, usable & kind.driver.compiles)
    return ServingToolkits(cubin=by_cubin, ptx=by_ptx, weak=kind.driver.behind | _beyond_torch(kind.torch_cuda))


def mask_of(rows: Iterable[Toolkit]) -> int:
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


def _mask(holds: Callable[[Toolkit], bool], among: int = EVERY) -> int:
    return sum(1 << index for index, row in enumerate(toolkits.all_toolkits()) if among >> index & 1 and holds(row))


@lru_cache(maxsize=_KINDS)
def torch_takes(torch_cuda: str | None) -> int:
    return _mask(lambda row: fits_torch(torch_cuda, row))


@lru_cache(maxsize=_KINDS)
def _beyond_torch(torch_cuda: str | None) -> int:
    return _mask(lambda row: newer_than_torch(torch_cuda, row))


@lru_cache(maxsize=_KINDS)
def compilers_for(device: Capability, options: PlanOptions, among: int = EVERY) -> int:
    """The toolkits that compile machine code for a device, with these options."""
    return _mask(lambda row: bool(cubins_for(row.version, device, options)), among)


@cache
def _writes_ptx(device: Capability, among: int) -> int:
    return _mask(lambda row: bool(ptx_for(row.version, device)), among)


# Why a machine is served only under conditions, or not at all, in words.

NO_GPU = "its GPU is not known"


def serving_conditions(kind: Kind, toolkit: Toolkit, arch: Arch) -> Iterator[Condition]:
    """What is not known of the machine, or promised by nobody, and must hold."""
    bit = mask_of([toolkit])
    if not kind.driver.runs_surely & bit:
        yield _floor(kind, toolkit)
    if arch.kind == "compute" and not kind.driver.compiles_surely & bit:
        yield isa_condition(toolkit.ptx_isa, kind.system)
    if arch.kind == "sm":
        yield from across_tegra_conditions(arch, kind.capability)
    yield from arm64_conditions(kind, toolkit)
    if kind.torch_cuda and newer_than_torch(kind.torch_cuda, toolkit):
        yield condition("no-newer-function", cuda=(kind.torch_cuda,))


def across_tegra_conditions(arch: Arch, device: Capability) -> Iterator[Condition]:
    """How sure it is that code for a desktop GPU runs on a Tegra, or the other way round."""
    on_tegra, from_tegra = gpus.is_tegra(device), gpus.is_tegra(arch.capability)
    if on_tegra and not from_tegra:
        seen = gpus.find_architecture(device).desktop_code
        yield condition("desktop-code-on-tegra", arch=str(arch), capability=str(device), detail=seen or "")
    elif from_tegra and not on_tegra:
        yield condition("tegra-code-on-desktop", arch=str(arch), capability=str(device))


def arm64_conditions(kind: Kind, toolkit: Toolkit) -> Iterator[Condition]:
    """Jetson and arm64 servers have different toolkits up to some release."""
    if not kind.tegra:
        return
    since = tables().toolkits.arm64.one_distribution_since
    if not toolkits.one_arm64(toolkit):
        yield condition("built-with-l4t-toolkit", cuda=(since,))
        return
    joined = toolkits.joined_arm64(kind.capability)
    if joined is None:
        yield condition("server-code-on-jetson", cuda=(since,))
    elif not versions.at_least(since, joined.cuda):
        early = "" if versions.at_least(toolkit.version, joined.cuda) else toolkit.version
        yield condition("jetpack-at-least", version=joined.jetpack, l4t=joined.l4t, built=early)


def serving_notes(kind: Kind, toolkit: Toolkit) -> Iterator[str]:
    """What is known, and worth knowing."""
    if kind.driver.behind & mask_of([toolkit]):
        yield (
            f"its driver (CUDA {kind.driver.cuda}) is older than CUDA {toolkit.version}: machine code runs "
            "through minor-version compatibility, PTX would not"
        )


def serving_doubts(kind: Kind) -> Iterator[str]:
    """What does not go together in the machine itself."""
    if kind.capability not in gpus.current_capabilities():
        yield f"no GPU of capability {kind.capability} is in the tables: it is judged by the general rule"
    if (row := gpus.driver_support(kind.capability)) and kind.knows_gpu in ("too-old", "too-new"):
        end = f"branch {row.first} was the first" if kind.knows_gpu == "too-old" else f"branch {row.last} was the last"
        yield f"its driver does not support this GPU, for which {end}: nothing runs until it gets another driver"


def why_not(kind: Kind, rows: Sequence[Toolkit], options: PlanOptions) -> tuple[str, ...]:
    """Every reason why none of these toolkits serves a kind of machine, each with the toolkits that it concerns."""
    concerned: dict[str, list[Toolkit]] = {}
    for row in rows:
        for reason in _reasons(kind, row, options):
            concerned.setdefault(reason, []).append(row)
    return tuple(reason.replace("{cuda}", toolkits.span(found)) for reason, found in concerned.items())


def _reasons(kind: Kind, toolkit: Toolkit, options: PlanOptions) -> Iterator[str]:
    bit = mask_of([toolkit])
    if not kind.driver.runs & bit:
        needed = _floor(kind, toolkit)
        needed = needed.with_parts(cuda=()) if needed.parts.version else needed
        yield f"{_driver_in_words(kind)} is too old for {{cuda}}, which needs {needed.text}"
    if not fits_torch(kind.torch_cuda, toolkit):
        yield f"its torch is built with CUDA {kind.torch_cuda}: what {{cuda}} builds does not load together with it"
    compiles = bool(cubins_for(toolkit.version, kind.capability, options))
    if not compiles:
        yield _no_cubin(kind, toolkit, options)
    if kind.jit == "forced":
        yield "CUDA_FORCE_PTX_JIT is set there: machine code is ignored, so {cuda} would have to provide PTX"
    if (not compiles or kind.jit == "forced") and ptx_for(toolkit.version, kind.capability):
        yield from _no_ptx(kind, toolkit, options)


def _no_cubin(kind: Kind, toolkit: Toolkit, options: PlanOptions) -> str:
    plain = PlanOptions(native=options.native)
    able = rows_of(compilers_for(kind.capability, plain))
    others = f"{compiled_by(kind.capability, able)} can" if able else "no known toolkit can"
    if options.native and cubins_for(toolkit.version, kind.capability, PlanOptions()):
        own = Arch(kind.capability)
        return f"{{cuda}} cannot compile {own}, which native asks for ({others}); it works without"
    if able and position(toolkit) > position(able[-1]):
        return f"{{cuda}} no longer compiles for {kind.capability}: too new ({others})"
    if not able:
        return f"{{cuda}} cannot compile for {kind.capability}: {others}"
    return f"{{cuda}} does not compile for {kind.capability} yet: too old ({others})"


def _no_ptx(kind: Kind, toolkit: Toolkit, options: PlanOptions) -> Iterator[str]:
    if options.native and cubins_for(toolkit.version, kind.capability, PlanOptions()):
        return  # without the wish there is better than PTX
    if options.native or not options.ptx:
        yield f"PTX of {{cuda}} would reach it, but {'native' if options.native else 'no-ptx'} rules it out"
    if kind.jit == "disabled":
        yield "PTX of {cuda} would reach it, but CUDA_DISABLE_PTX_JIT is set there"
    if not kind.driver.compiles & mask_of([toolkit]):
        yield "PTX of {cuda} would reach it, but its driver is too old to compile it"


def fix_for(machine: Machine, kind: Kind, options: PlanOptions) -> str:
    """A toolkit that serves it after all, else a driver that would."""
    if able := rows_of(reach_of_kind(kind, options).any):
        return f"--cuda {able[-1].version}"
    fitting = compilers_for(kind.capability, PlanOptions()) & torch_takes(kind.torch_cuda)
    able = rows_of(fitting & ~kind.driver.runs)
    if not able:
        return ""
    floor = toolkits.minor_compat_floor(able[0].major, kind.system)
    return in_words(newer_driver_fixes(machine, floor, str(able[0].major)))


def _driver_in_words(kind: Kind) -> str:
    if kind.driver.cuda == "0":
        return "its driver, older than that of any known toolkit,"
    return f"its driver (CUDA {kind.driver.cuda})"


def _floor(kind: Kind, toolkit: Toolkit) -> Condition:
    """The driver from which on this major runs."""
    linux = toolkits.minor_compat_floor(toolkit.major, "linux")
    windows = toolkits.minor_compat_floor(toolkit.major, "windows")
    here = windows if kind.system == "windows" else linux
    cuda = (str(toolkit.major),)
    if kind.tegra or not here:
        return condition("driver-at-least", cuda=cuda)
    if kind.system_known or windows in (None, linux):
        return condition("driver-at-least", version=here, cuda=cuda)
    return condition("driver-at-least", version=linux, windows=windows, cuda=cuda)
