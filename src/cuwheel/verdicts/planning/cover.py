"""The two questions of smallness: the fewest architectures for a toolkit, the fewest toolkits for a fleet.

Both are answered exactly, by trying all sets of one, then of two, and so on. That is quick because machine code never
crosses a major version: a major has a handful of architectures; and a fleet wants two or three toolkits out of twenty.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from cuwheel.facts import architectures, toolkits
from cuwheel.verdicts.choice import Code, Device, choose
from cuwheel.verdicts.drivers import tegra
from cuwheel.verdicts.planning import serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cuwheel.facts.arch import Arch, Capability
    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.verdicts.planning.plan import How
    from cuwheel.verdicts.planning.serving import Reach
    from cuwheel.verdicts.planning.settings import Wishes


def fewest_cubins(version: str, devices: Mapping[Capability, int], wishes: Wishes) -> tuple[Arch, ...]:
    """The smallest list of machine code that serves these capabilities, each with so many machines.

    Among lists of one length the best has the fewest desktop machines on Tegra code, then the fewest Tegra machines on
    desktop code (NVIDIA promises neither), then the most native machines, then the newest architectures.
    """
    found: list[Arch] = []
    for major in sorted({device.major for device in devices}):
        wanted = {device: count for device, count in devices.items() if device.major == major}
        found += _fewest(version, wanted, wishes)
    return tuple(sorted(found))


def _fewest(version: str, devices: Mapping[Capability, int], wishes: Wishes) -> tuple[Arch, ...]:
    choices = [serving.cubins(version, device, wishes) for device in devices]
    known = sorted({arch for each in choices for arch in each})
    for length in range(1, len(known) + 1):
        covering = [
            archs for archs in combinations(known, length) if all(not set(archs).isdisjoint(each) for each in choices)
        ]
        if covering:
            return min(covering, key=lambda archs: _penalty(archs, devices))
    return ()


def _penalty(archs: Sequence[Arch], devices: Mapping[Capability, int]) -> tuple[int, int, int, tuple[int, ...]]:
    strange = foreign = native = 0
    for device, count in devices.items():
        arch, how = taken(archs, device)
        if tegra(device) != tegra(arch.capability):
            strange += 0 if tegra(device) else count
            foreign += count
        native += count if how == "native" else 0
    return strange, foreign, -native, tuple(-arch.capability.number for arch in reversed(archs))


def taken(archs: Sequence[Arch], device: Capability) -> tuple[Arch, How]:
    """The entry that the driver takes, and how; the list must serve the device."""
    choice = choose([Code(arch=arch) for arch in archs], Device(capability=device))
    if choice.entry is None or choice.how == "none":
        msg = f"nothing in {[str(arch) for arch in archs]} serves {device}"
        raise ValueError(msg)
    return archs[choice.entry], choice.how


def one_ptx(version: str, devices: Iterable[Capability]) -> Arch | None:
    """The newest PTX that reaches all of these; one is always enough, as PTX reaches everything newer."""
    common = set.intersection(*(set(serving.ptx(version, device)) for device in devices))
    return max(common, key=lambda arch: architectures.current(arch.capability), default=None)


def fewest_toolkits(reaches: Mapping[Reach, int]) -> tuple[Toolkit, ...]:
    """The fewest toolkits such that every kind of machine that any of them serves is served.

    Among sets of one size the best has the fewest machines served by PTX alone, then the fewest whose driver or torch
    is older than their toolkit, then the newest toolkits.
    """
    wanted = {reach.any for reach in reaches if reach.any}
    # A kind that is served whenever a more demanding one is served decides nothing.
    picky = [bits for bits in wanted if not any(other != bits and other & bits == other for other in wanted)]
    useful = [index for index in range(len(toolkits.all_toolkits())) if any(bits >> index & 1 for bits in wanted)]
    for length in range(1, len(useful) + 1):
        sets = (sum(1 << index for index in chosen) for chosen in combinations(useful, length))
        covering = [bits for bits in sets if all(bits & each for each in picky)]
        if covering and picky:
            return serving.rows_of(min(covering, key=lambda bits: _cost(bits, reaches)))
    return ()


def _cost(bits: int, reaches: Mapping[Reach, int]) -> tuple[int, int, int]:
    jit = weak = 0
    for reach, count in reaches.items():
        best = bits & reach.cubin or bits & reach.ptx
        jit += count if best and not bits & reach.cubin else 0
        weak += count if best and not best & ~reach.weak else 0
    return jit, weak, -bits  # the highest bit is the newest toolkit
