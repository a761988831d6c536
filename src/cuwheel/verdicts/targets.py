"""Which device runs which code: the capability rules, once, for all verbs."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from cuwheel.facts import architectures, gpus, toolkits
from cuwheel.facts.arch import Arch, looks_like_arch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.facts.arch import Capability
    from cuwheel.facts.rows.toolkits import Release, Toolkit


@lru_cache(maxsize=4096)
def serves(arch: Arch, device: Capability) -> bool:
    """Whether a device can use code for `arch`: machine code as it is, PTX by compiling it in the driver.

    - `a` code uses instructions that only this capability has: exactly this one.
    - `f` code keeps to what its family shares: the members that the table lists.
    - Machine code runs on later minors of its major (sm_80 on 8.6), never on earlier ones, never across majors.
    - PTX compiles for everything that is at least as new.
    """
    device = architectures.current(device)
    target = architectures.current(arch.capability)
    if arch.suffix == "a":
        return device == target
    if arch.suffix == "f":
        return device in architectures.family(arch.capability)
    if arch.kind == "sm":
        return device.major == target.major and device.minor >= target.minor
    return device >= target


def can_target(toolkit: Toolkit, device: Capability) -> bool:
    """Whether a toolkit compiles machine code that runs on a device."""
    return any(serves(arch, device) for arch in toolkit.archs)


@cache  # asked for every library of a package, and a package may have thousands
def toolkits_for(device: Capability) -> tuple[Toolkit, ...]:
    """Those that compile for its very capability, whatever they call it, oldest first."""
    wanted = architectures.current(device)
    return tuple(row for row in toolkits.all_toolkits() if wanted in _capabilities(row))


@cache
def releases_for(device: Capability) -> tuple[Release, ...]:
    """As `toolkits_for`, with those that nobody builds with any more."""
    wanted = architectures.current(device)
    return tuple(row for row in toolkits.all_releases() if wanted in _capabilities(row))


def compiling(releases: Iterable[Release], target: str) -> list[Release]:
    """Those that compile for an architecture (`sm_90a`), or for a GPU by any of its names."""
    if looks_like_arch(target):
        return [each for each in releases if each.supports(Arch.parse(target))]
    able = releases_for(gpus.capability_of(target))
    return [each for each in releases if each in able]


@cache
def called(toolkit: Toolkit, device: Capability) -> Capability:
    """What a toolkit calls a device that it compiles for: Thor has had two numbers."""
    archs = [arch for arch in toolkit.archs if not arch.suffix]
    wanted = architectures.current(device)
    return next((arch.capability for arch in archs if architectures.current(arch.capability) == wanted), device)


def _capabilities(toolkit: Release) -> set[Capability]:
    """That it compiles plain machine code for."""
    return {architectures.current(arch.capability) for arch in toolkit.archs if not arch.suffix}
