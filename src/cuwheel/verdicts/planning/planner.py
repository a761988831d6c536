"""From machines, toolkits and options to jobs: decides, and does nothing.

The fewest architectures for a toolkit and the fewest toolkits for a fleet are found exactly, by trying all sets of one,
then of two, and so on. That is quick because machine code never crosses a major version: a major has a handful of
architectures; and a fleet wants two or three toolkits out of twenty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import spellings
from cuwheel.facts.spellings.row import Releases
from cuwheel.machine.fleet import Machine, from_gpu
from cuwheel.verdicts.planning import serving
from cuwheel.verdicts.planning.plan import Flags, How, Job, NotServed, Plan, PlanOptions, Served, Spellings
from cuwheel.verdicts.planning.serving import Kind, ServingToolkits
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.verdicts import predict
from cuwheel_core.verdicts.choice import Code, Loader, choose, serves

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch, Capability
    from cuwheel_core.facts.rows.toolkits import Toolkit


# The two questions of smallness: the fewest architectures for a toolkit, the fewest toolkits for a fleet.


def fewest_cubins(version: str, devices: Mapping[Capability, int], options: PlanOptions) -> tuple[Arch, ...]:
    """The smallest list of machine code that serves these capabilities, each with so many machines.

    Among lists of one length the best has the fewest desktop machines on Tegra code, then the fewest Tegra machines on
    desktop code (NVIDIA promises neither), then the most native machines, then the newest architectures.
    """
    found: list[Arch] = []
    for major in sorted({device.major for device in devices}):
        wanted = {device: count for device, count in devices.items() if device.major == major}
        found += _fewest_of_major(version, wanted, options)
    return tuple(sorted(found))


def _fewest_of_major(version: str, devices: Mapping[Capability, int], options: PlanOptions) -> tuple[Arch, ...]:
    choices = [serving.cubins_for(version, device, options) for device in devices]
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
        arch, how = taken_entry(archs, device)
        if gpus.is_tegra(device) != gpus.is_tegra(arch.capability):
            strange += 0 if gpus.is_tegra(device) else count
            foreign += count
        native += count if how == "native" else 0
    return strange, foreign, -native, tuple(-arch.capability.number for arch in reversed(archs))


def taken_entry(archs: Sequence[Arch], device: Capability) -> tuple[Arch, How]:
    """The entry that the driver takes, and how; the list must serve the device."""
    choice = choose([Code(arch=arch) for arch in archs], Loader(capability=device))
    if choice.entry is None or choice.how == "none":
        msg = f"nothing in {[str(arch) for arch in archs]} serves {device}"
        raise ValueError(msg)
    return archs[choice.entry], choice.how


def one_ptx(version: str, devices: Iterable[Capability]) -> Arch | None:
    """The newest PTX that reaches all of these; one is always enough, as PTX reaches everything newer."""
    common = set.intersection(*(set(serving.ptx_for(version, device)) for device in devices))
    return max(common, key=lambda arch: gpus.current_capability(arch.capability), default=None)


def fewest_toolkits(reaches: Mapping[ServingToolkits, int]) -> tuple[Toolkit, ...]:
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


def _cost(bits: int, reaches: Mapping[ServingToolkits, int]) -> tuple[int, int, int]:
    jit = weak = 0
    for reach, count in reaches.items():
        best = bits & reach.cubin or bits & reach.ptx
        jit += count if best and not bits & reach.cubin else 0
        weak += count if best and not best & ~reach.weak else 0
    return jit, weak, -bits  # the highest bit is the newest toolkit


class _Group(Struct, frozen=True, kw_only=True, eq=False):
    """Machines of one kind: each kind is looked at once, and compared by identity from then on."""

    kind: Kind
    reach: ServingToolkits


def make_plan(
    machines: Sequence[Machine],
    given: Sequence[Toolkit],
    options: PlanOptions,
    *,
    cmake: str | None = None,
    torch: str | None = None,
) -> Plan:
    """A job for each given toolkit; without any, for the fewest that serve every machine that can be served.

    `cmake`: the version that has to understand the list, where it is known. `torch`: the same; else the machines' own,
    as extensions are built with the one that loads them.
    """
    among = serving.mask_of(given) if given else serving.EVERY
    groups: dict[Kind, _Group] = {}
    counts: dict[_Group, int] = {}
    members: list[tuple[Machine, _Group | None]] = []
    for machine in machines:
        kind = serving.kind_of(machine)
        if kind and kind not in groups:
            groups[kind] = _Group(kind=kind, reach=serving.reach_of_kind(kind, options, among))
        group = groups[kind] if kind else None
        members.append((machine, group))
        if group:
            counts[group] = counts.get(group, 0) + machine.count
    rows = tuple(given) or _fewest_for_groups(counts)
    chosen = serving.mask_of(rows)
    torch = torch or torch_release(machines)
    missing = [(machine, group) for machine, group in members if not (group and group.reach.any & chosen)]
    return Plan(
        jobs=tuple(_job(row, members, counts, options, cmake=cmake, torch=torch) for row in rows),
        unserved=tuple(_not_served(missing, given or toolkits.all_toolkits(), options)),
    )


def torch_release(machines: Iterable[Machine]) -> str | None:
    """The oldest that a machine has; None where no machine says."""
    return min((each.torch for each in machines if each.torch), key=versions.key, default=None)


def every_gpu(given: Sequence[Toolkit], options: PlanOptions | None = None) -> tuple[Machine, ...]:
    """`all`: one machine for each capability of a known GPU that a given toolkit (else the newest) can target.

    `native` asks for machine code of its own: then those that have it. They are architectures, of no platform.
    """
    rows, wanted = given or (toolkits.newest_toolkit(),), options or PlanOptions()
    known = dict.fromkeys(gpus.current_capability(gpu.capability) for gpu in gpus.all_gpus())
    able = (each for each in sorted(known) if any(serving.cubins_for(row.version, each, wanted) for row in rows))
    return tuple(replace(from_gpu(str(each)), os=None, cpu=None, tegra=False) for each in able)


def contradictions(rows: Iterable[NotServed]) -> tuple[str, ...]:
    """The machines that no job serves, one sentence a kind: to stand among other problems."""
    return tuple(dict.fromkeys(f"{row.machine}: {'; '.join(row.why)}" for row in rows))


def _fewest_for_groups(counts: Mapping[_Group, int]) -> tuple[Toolkit, ...]:
    reaches: dict[ServingToolkits, int] = {}
    for group, count in counts.items():
        reaches[group.reach] = reaches.get(group.reach, 0) + count
    return fewest_toolkits(reaches)


def _job(
    toolkit: Toolkit,
    members: Sequence[tuple[Machine, _Group | None]],
    counts: Mapping[_Group, int],
    options: PlanOptions,
    *,
    cmake: str | None,
    torch: str | None,
) -> Job:
    bit = serving.mask_of([toolkit])
    by_cubin: dict[Capability, int] = {}
    by_ptx: set[Capability] = set()
    for group, count in counts.items():
        device = group.kind.capability
        if group.reach.cubin & bit:
            by_cubin[device] = by_cubin.get(device, 0) + count
        elif group.reach.ptx & bit:
            by_ptx.add(device)
    archs = fewest_cubins(toolkit.version, by_cubin, options)
    ptx = _ptx(toolkit, archs, by_ptx, future=options.future)
    here = [(machine, group) for machine, group in members if group and group.reach.any & bit]
    absent = [(machine, group) for machine, group in members if not (group and group.reach.any & bit)]
    spelt = spell(archs, ptx, cmake=cmake, torch=torch)
    return Job(
        cuda=toolkit.version,
        archs=tuple(archs),
        ptx=tuple(ptx),
        coverage=tuple(_served(here, toolkit, archs, ptx)),
        left_out=tuple(_not_served(absent, [toolkit], options)),
        reach=reach_in_words([*archs, *ptx]),
        flags=Flags(**{name: getattr(spelt, name).value for name in spelt.__struct_fields__}),
        spellings=spelt,
        notes=tuple(_notes(toolkit, by_cubin, [*archs, *ptx], options)),
    )


def _ptx(toolkit: Toolkit, archs: Sequence[Arch], needed: Iterable[Capability], *, future: bool) -> tuple[Arch, ...]:
    """What is needed by machines that no machine code serves, and for `future` what every later GPU can use.

    "Later" goes by the newest desktop architecture of the list: PTX for a Tegra would leave out desktop GPUs that came
    before it by number only.
    """
    reached = set(needed)
    if future and archs:
        desktop = [arch for arch in archs if not gpus.is_tegra(arch.capability)]
        reached.add(max(gpus.current_capability(arch.capability) for arch in desktop or archs))
    found = one_ptx(toolkit.version, reached) if reached else None
    return (found,) if found else ()


def _served(
    machines: Iterable[tuple[Machine, _Group]], toolkit: Toolkit, archs: Sequence[Arch], ptx: Sequence[Arch]
) -> Iterator[Served]:
    by_group: dict[_Group, Served] = {}
    for machine, group in machines:
        if group not in by_group:
            kind = group.kind
            arch, how = taken_entry(ptx if kind.jit == "forced" else [*archs, *ptx], kind.capability)
            by_group[group] = Served(
                machine="",
                count=0,
                capability=kind.capability,
                how=how,
                by=arch,
                requires=tuple(serving.serving_conditions(kind, toolkit, arch)),
                notes=(*serving.serving_notes(kind, toolkit), *serving.serving_doubts(kind)),
            )
        yield replace(by_group[group], machine=machine.name, count=machine.count)


def _not_served(
    machines: Iterable[tuple[Machine, _Group | None]], rows: Sequence[Toolkit], options: PlanOptions
) -> Iterator[NotServed]:
    by_group: dict[tuple[_Group, str | None], NotServed] = {}
    for machine, group in machines:
        if group is None:
            yield NotServed(
                machine=machine.name,
                count=machine.count,
                capability=None,
                why=(serving.NO_GPU,),
                fix="give its GPU or capability",
            )
            continue
        key = group, machine.product
        if key not in by_group:
            kind = group.kind
            by_group[key] = NotServed(
                machine="",
                count=0,
                capability=kind.capability,
                why=serving.why_not(kind, rows, options),
                fix=serving.fix_for(machine, kind, options),
            )
        yield replace(by_group[key], machine=machine.name, count=machine.count)


def _notes(
    toolkit: Toolkit, devices: Iterable[Capability], archs: Sequence[Arch], options: PlanOptions
) -> Iterator[str]:
    if not archs:
        yield f"CUDA {toolkit.version} serves none of these machines"
    wanted = "a" if options.specific else "f" if options.family else ""
    plain = [str(device) for device in devices if wanted and not _has(toolkit, device, wanted)]
    if plain:
        yield f"CUDA {toolkit.version} has no '{wanted}' architecture for {', '.join(plain)}: using plain code there"


def _has(toolkit: Toolkit, device: Capability, suffix: str) -> bool:
    return any(arch.suffix == suffix and serves(arch, device) for arch in serving.archs_of(toolkit.version))


def reach_in_words(archs: Sequence[Arch]) -> str:
    """Every known GPU that a list serves, whether the fleet has it or not."""
    known = gpus.current_capabilities()
    by_cubin = [str(each) for each in known if any(arch.kind == "sm" and serves(arch, each) for arch in archs)]
    by_ptx = [
        str(each)
        for each in known
        if str(each) not in by_cubin and any(arch.kind == "compute" and serves(arch, each) for arch in archs)
    ]
    future = any(arch.kind == "compute" and not arch.suffix for arch in archs)
    phrases = [f"runs on {predict.capability_ranges(by_cubin)}"] if by_cubin else []
    through = [predict.capability_ranges(by_ptx)] if by_ptx else []
    through += ["all later GPUs"] if future else []
    if through:
        phrases.append(f"{'' if by_cubin else 'runs '}on {' and '.join(through)} through PTX compiled by the driver")
    return "; ".join(phrases) + ("" if future else " and nowhere else") if phrases else "runs nowhere"


def spell(
    archs: Sequence[Arch], ptx: Sequence[Arch], *, cmake: str | None = None, torch: str | None = None
) -> Spellings:
    """`archs` is machine code, `ptx` is PTX; `cmake`, `torch`: the versions that have to take it, where known."""
    releases = Releases(cmake=cmake, torch=torch)
    return Spellings(**{row.name: row.write(row.variable, archs, ptx, releases) for row in spellings.ROWS})
