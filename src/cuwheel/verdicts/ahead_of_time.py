"""Machine code made of PTX before the driver has to: by which release of ptxas, if any can; how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cuwheel.errors import UnavailableError
from cuwheel.facts.tables import tables
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.verdicts import drivers
from cuwheel_core.verdicts.choice import Loader, capability_in_toolkit

if TYPE_CHECKING:
    from cuwheel.machine.fleet import Machine
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.facts.arch import Arch, Capability
    from cuwheel_core.facts.rows.toolkits import Toolkit
    from cuwheel_core.verdicts.predict import Prediction, Reach


def release_for(
    isa: str,
    device: Capability,
    suffix: str = "",
    driver: str | None = None,
    only: str | None = None,
    *,
    oldest: bool = False,
) -> Toolkit:
    """The release whose ptxas compiles PTX of this ISA for a device. `driver`: the CUDA that its driver came for.

    `only`: this release and no other. `oldest`: without a driver the first that can, for objects that the driver is to
    link: it links none of a later release than its own.

    Drivers load machine code of their own major and of older ones. So without a driver it is the newest of the major
    that wrote the PTX or, where that does not know the device, of the next that does: every driver for such a GPU is at
    least of that one. With a driver it is the driver's own release, whose compiler would have been the driver's; for
    PTX that is too new for it, the first of its major that knows the PTX. Raises UnavailableError with the reason.
    """
    since = tables().toolchains.index.ptxas_since
    rows = [row for row in toolkits.all_toolkits() if versions.at_least(row.version, only or since)]
    rows = rows[:1] if only else rows
    knowing = [row for row in rows if any(_is_for(arch, row, device, suffix) for arch in row.archs)]
    if not knowing:
        which = f"the ptxas of CUDA {only} does not compile" if only else "no known ptxas compiles"
        raise UnavailableError(f"{which} for {device}{suffix}")
    fitting = [row for row in knowing if versions.at_least(row.ptx_isa, isa)]
    if not fitting:
        most = f"the last CUDA that compiles for {device}{suffix} is {knowing[-1].version}"
        asked = f"CUDA {only} was asked for" if only else most
        cuda = drivers.cuda_of_isa(isa)
        raise UnavailableError(f"{asked}, and PTX ISA {isa} is of {f'CUDA {cuda}' if cuda else 'a later release'}")
    if driver is None and oldest:
        return fitting[0]
    if driver is None:
        return [row for row in fitting if row.major == fitting[0].major][-1]
    loaded = [row for row in fitting if row.major <= versions.major(driver)]
    if not loaded:
        raise UnavailableError(
            f"PTX ISA {isa} needs the ptxas of CUDA {fitting[0].version}, and a driver for CUDA {driver} does not load "
            "what that makes"
        )
    return next((row for row in reversed(loaded) if versions.at_least(driver, row.version)), loaded[0])


def bytes_to_compile(library: Library, code: Prediction) -> int:
    """How many bytes of PTX are taken, decompressed: entries that are alike are taken to be of one size."""
    held = 0
    for taken in code.taken:
        kind = ("ptx", taken.arch, taken.section, taken.ptx_isa)
        alike = [each for each in library.device_code if (each.kind, each.arch, each.section, each.ptx_isa) == kind]
        if taken.how == "jit" and (count := sum(each.count for each in alike)):
            held += sum(each.real_bytes for each in alike) * min(taken.count, count) // count
    return held


def seconds_ahead(reaches: Iterable[Reach], machine: Machine) -> tuple[float, float] | None:
    """What `graft --compile` takes of one core for all that the machine's driver would compile, or is too old for.

    At least, and at most; None where there is nothing to compile, or no ptxas that can.
    """
    if machine.capability is None:
        return None
    held = 0
    for reach in reaches:
        library, found = reach.library, reach.by_code(Loader(capability=gpus.current_capability(machine.capability)))
        isas = [each.ptx_isa for each in found.taken if each.how == "jit" and each.ptx_isa]
        driver = drivers.cuda_of_driver(machine, drivers.system_of(library, machine))
        try:
            if isas and not found.by_linker:
                release_for(max(isas, key=versions.key), machine.capability, driver=driver)
                held += bytes_to_compile(library, found)
        except UnavailableError:
            continue
    return gpus.seconds_to_compile(held) if held else None


def _is_for(arch: Arch, toolkit: Toolkit, device: Capability, suffix: str) -> bool:
    return arch.capability == capability_in_toolkit(toolkit, device) and arch.suffix == suffix
