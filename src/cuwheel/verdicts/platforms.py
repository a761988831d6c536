"""Servers and Jetsons: two distributions of CUDA for arm64, until there was one; and desktop code on a Tegra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures, toolkits, versions
from cuwheel.facts.tables import tables
from cuwheel.verdicts import drivers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.device_code.libraries import Library
    from cuwheel.facts.arch import Arch, Capability
    from cuwheel.machine.fleet import Machine


def wrong_distribution(library: Library, machine: Machine) -> bool:
    """A build for servers on a Jetson, from before there was one distribution for both; or the reverse."""
    if library.platform is None or one_distribution(library):
        return False
    if library.platform.name == "sbsa":
        return machine.runs_l4t
    return (
        machine.cpu == "aarch64" and not machine.runs_l4t and machine.capability is not None and not is_tegra(machine)
    )


def one_distribution(library: Library) -> bool:
    major = drivers.cuda_major(library)
    return major is not None and major >= versions.major(tables().toolkits.arm64.one_distribution_since)


def unconfirmed(library: Library, machine: Machine) -> bool:
    """A server build of the one distribution, on a Tegra that it is not known to serve.

    Where it depends on an L4T that was not told, that is a condition: the code itself is known.
    """
    told = machine.l4t is not None or toolkits.joined_arm64(machine.capability) is None
    return told and must_join(library, machine)


def must_join(library: Library, machine: Machine) -> bool:
    """Whether a server build runs on this Jetson only with an L4T that it is not known to have."""
    if library.platform is None or library.platform.name != "sbsa" or not machine.runs_l4t:
        return False
    if not one_distribution(library):
        return False
    row = toolkits.joined_arm64(machine.capability)
    if row is None:
        return True
    # Thor never ran anything older: what its L4T is does not matter.
    first = versions.at_least(tables().toolkits.arm64.one_distribution_since, row.cuda)
    return not first and not (machine.l4t and versions.at_least(machine.l4t, row.l4t))


def joins(machine: Machine) -> str:
    """What must be installed on a Jetson for the one distribution to serve it; empty where nobody has said."""
    row = toolkits.joined_arm64(machine.capability)
    if row is None:
        return ""
    package = f", or the package {row.compat.format(major=versions.major(row.cuda), minor='x')}" if row.compat else ""
    return f"JetPack {row.jetpack} (L4T {row.l4t}) or later{package}"


def is_tegra(machine: Machine) -> bool:
    return machine.capability is not None and tegra(machine.capability)


def tegra(capability: Capability) -> bool:
    try:
        return architectures.find_architecture(architectures.current(capability)).tegra
    except UnknownNameError:
        return False


def across_tegra(arch: Arch, machine: Machine) -> bool:
    """Machine code of a desktop part on a Tegra of the same major, or the reverse: NVIDIA promises nothing."""
    if machine.capability is None or arch.kind != "sm":
        return False
    return tegra(arch.capability) != is_tegra(machine)


def conditions(library: Library, machine: Machine) -> Iterator[str]:
    if must_join(library, machine):
        since = tables().toolkits.arm64.one_distribution_since
        wanted = joins(machine)
        yield (
            f"{wanted}, which CUDA for servers serves"
            if wanted
            else f"CUDA {since} or later for servers runs on this Jetson (not confirmed)"
        )
