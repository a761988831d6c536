"""Why a machine is served only under conditions, or not at all, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import architectures, gpu_drivers, toolkits, versions
from cuwheel.facts.arch import Arch
from cuwheel.facts.tables import tables
from cuwheel.verdicts.drivers import isa_condition, newer_driver_fix, tegra
from cuwheel.verdicts.planning import serving
from cuwheel.verdicts.planning.settings import Wishes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.facts.arch import Capability
    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.fleet import Machine
    from cuwheel.verdicts.planning.serving import Kind

NO_GPU = "its GPU is not known"


def conditions(kind: Kind, toolkit: Toolkit, arch: Arch) -> Iterator[str]:
    """What is not known of the machine, or promised by nobody, and must hold."""
    bit = serving.mask([toolkit])
    if not kind.driver.runs_surely & bit:
        floor = _floor(kind, toolkit)
        yield f"{floor} or later" + ("" if "CUDA" in floor else f" (CUDA {toolkit.major})")
    if arch.kind == "compute" and not kind.driver.compiles_surely & bit:
        yield isa_condition(toolkit.ptx_isa, kind.system)
    if arch.kind == "sm":
        yield from across_tegra(arch, kind.capability)
    yield from arm64(kind, toolkit)
    if serving.newer_than_torch(kind.torch_cuda, toolkit):
        yield (
            f"the build needs no library function newer than CUDA {kind.torch_cuda}, which its torch brings "
            f"(--cuda {kind.torch_cuda} avoids the question)"
        )


def across_tegra(arch: Arch, device: Capability) -> Iterator[str]:
    """How sure it is that code for a desktop GPU runs on a Tegra, or the other way round."""
    on_tegra, from_tegra = tegra(device), tegra(arch.capability)
    if on_tegra and not from_tegra:
        seen = architectures.find_architecture(device).desktop_code
        yield (
            f"{arch}, code for desktop GPUs, runs on {device}, a Tegra: the rule says so, but NVIDIA promises nothing "
            f"between the two ({seen or 'no reports either way'})"
        )
    elif from_tegra and not on_tegra:
        yield (
            f"{arch}, code for a Tegra, runs on {device}, which is not a Tegra: the rule says so, "
            "but NVIDIA promises nothing"
        )


def arm64(kind: Kind, toolkit: Toolkit) -> Iterator[str]:
    """Jetson and arm64 servers have different toolkits up to some release."""
    if not kind.tegra:
        return
    fact = tables().toolkits.arm64
    if not toolkits.one_arm64(toolkit):
        yield (
            "it is built with the L4T toolkit of the Jetson (targets/aarch64-linux), not with the one for SBSA "
            f"servers: below CUDA {fact.one_distribution_since} the two differ, and on L4T an SBSA build fails with "
            f"'named symbol not found'"
        )
        return
    joined = toolkits.joined_arm64(kind.capability)
    if joined is None:
        yield (
            f"the one arm64 toolkit that CUDA has since {fact.one_distribution_since} serves {kind.capability} (not "
            f"confirmed)"
        )
    elif not versions.at_least(fact.one_distribution_since, joined.cuda):
        early = (
            "" if versions.at_least(toolkit.version, joined.cuda) else f"; CUDA {toolkit.version} is older than that"
        )
        yield (
            f"it runs JetPack {joined.jetpack} (L4T {joined.l4t}) or later, with which it joined the one arm64 "
            f"toolkit{early}"
        )


def notes(kind: Kind, toolkit: Toolkit) -> Iterator[str]:
    """What is known, and worth knowing."""
    if kind.driver.behind & serving.mask([toolkit]):
        yield (
            f"its driver (CUDA {kind.driver.cuda}) is older than CUDA {toolkit.version}: machine code runs "
            "through minor-version compatibility, PTX would not"
        )


def doubts(kind: Kind) -> Iterator[str]:
    """What does not go together in the machine itself."""
    if kind.capability not in architectures.current_capabilities():
        yield f"no GPU of capability {kind.capability} is in the tables: it is judged by the general rule"
    if (row := gpu_drivers.support(kind.capability)) and kind.knows_gpu in ("too-old", "too-new"):
        end = f"branch {row.first} was the first" if kind.knows_gpu == "too-old" else f"branch {row.last} was the last"
        yield f"its driver does not support this GPU, for which {end}: nothing runs until it gets another driver"


def why_not(kind: Kind, rows: Sequence[Toolkit], wishes: Wishes) -> tuple[str, ...]:
    """Every reason why none of these toolkits serves a kind of machine, each with the toolkits that it concerns."""
    concerned: dict[str, list[Toolkit]] = {}
    for row in rows:
        for reason in _reasons(kind, row, wishes):
            concerned.setdefault(reason, []).append(row)
    return tuple(reason.replace("{cuda}", toolkits.span(found)) for reason, found in concerned.items())


def _reasons(kind: Kind, toolkit: Toolkit, wishes: Wishes) -> Iterator[str]:
    bit = serving.mask([toolkit])
    if not kind.driver.runs & bit:
        yield f"{_driver(kind)} is too old for {{cuda}}, which needs {_floor(kind, toolkit)} or later"
    if not serving.fits_torch(kind.torch_cuda, toolkit):
        yield f"its torch is built with CUDA {kind.torch_cuda}: what {{cuda}} builds does not load together with it"
    compiles = bool(serving.cubins(toolkit.version, kind.capability, wishes))
    if not compiles:
        yield _no_cubin(kind, toolkit, wishes)
    if kind.jit == "forced":
        yield "CUDA_FORCE_PTX_JIT is set there: machine code is ignored, so {cuda} would have to provide PTX"
    if (not compiles or kind.jit == "forced") and serving.ptx(toolkit.version, kind.capability):
        yield from _no_ptx(kind, toolkit, wishes)


def _no_cubin(kind: Kind, toolkit: Toolkit, wishes: Wishes) -> str:
    plain = Wishes(native=wishes.native)
    able = serving.rows_of(serving.compilers_for(kind.capability, plain))
    others = f"{toolkits.span(able)} can" if able else "no known toolkit can"
    if wishes.native and serving.cubins(toolkit.version, kind.capability, Wishes()):
        own = Arch(kind.capability)
        return f"{{cuda}} cannot compile {own}, which --native asks for ({others}); it works without --native"
    if able and serving.position(toolkit) > serving.position(able[-1]):
        return f"{{cuda}} no longer compiles for {kind.capability}: too new ({others})"
    if not able:
        return f"{{cuda}} cannot compile for {kind.capability}: {others}"
    return f"{{cuda}} does not compile for {kind.capability} yet: too old ({others})"


def _no_ptx(kind: Kind, toolkit: Toolkit, wishes: Wishes) -> Iterator[str]:
    if wishes.native and serving.cubins(toolkit.version, kind.capability, Wishes()):
        return  # without the wish there is better than PTX
    if wishes.native or not wishes.ptx:
        yield f"PTX of {{cuda}} would reach it, but {'--native' if wishes.native else '--no-ptx'} rules it out"
    if kind.jit == "disabled":
        yield "PTX of {cuda} would reach it, but CUDA_DISABLE_PTX_JIT is set there"
    if not kind.driver.compiles & serving.mask([toolkit]):
        yield "PTX of {cuda} would reach it, but its driver is too old to compile it"


def fix(machine: Machine, kind: Kind, wishes: Wishes) -> str:
    """A toolkit that serves it after all, else a driver that would."""
    if able := serving.rows_of(serving.reach(kind, wishes).any):
        return f"--cuda {able[-1].version}"
    fitting = serving.compilers_for(kind.capability, Wishes()) & serving.torch_takes(kind.torch_cuda)
    able = serving.rows_of(fitting & ~kind.driver.runs)
    if not able:
        return ""
    floor = toolkits.minor_compat_floor(able[0].major, kind.system)
    return newer_driver_fix(machine, floor, str(able[0].major))


def _driver(kind: Kind) -> str:
    if kind.driver.cuda == "0":
        return "its driver, older than that of any known toolkit,"
    return f"its driver (CUDA {kind.driver.cuda})"


def _floor(kind: Kind, toolkit: Toolkit) -> str:
    linux = toolkits.minor_compat_floor(toolkit.major, "linux")
    windows = toolkits.minor_compat_floor(toolkit.major, "windows")
    here = windows if kind.system == "windows" else linux
    if kind.tegra or not here:
        return f"a driver of CUDA {toolkit.major}"
    if kind.system_known or windows in (None, linux):
        return f"driver {here}"
    return f"driver {linux} (on Windows {windows})"
