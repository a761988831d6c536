"""What of a library its machines load: pure, from a survey with every entry.

Kept is, in each container, what the driver would take for each machine, and whatever that cannot be said of. A
container with nothing for any of them is left empty: the driver says 209 of an empty one as it did of the full one
(seen on an H200, where PyTorch and NVIDIA's libraries ran with theirs emptied).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.changes.binaries.decisions import EntryDecision, LibraryPlan, SlimOptions
from cuwheel.changes.slim import unchanged, use
from cuwheel.facts import architectures
from cuwheel.facts.arch import Capability
from cuwheel.verdicts import drivers, predict
from cuwheel.verdicts.choice import (
    LOADABLE,
    Device,
    chosen_entry,
    device_of_machine,
    loadable_code,
    possible_entries,
    with_and_without_jit,
)
from cuwheel.verdicts.modules import device_linked, without_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.device_code.libraries import Compression, Entry, Library
    from cuwheel.support.finding import Finding

__all__ = ["EntryDecision", "LibraryPlan", "SlimOptions", "decide"]

_ANY = "for every architecture"
_OTHERS = "none of these machines could load it"
_WORTH = 1 << 14  # of code that stays where it is: only whole pages of it are saved
# Emptied, it could not be told from one that lost its kernels.
_NO_KERNEL = "it has no kernels and is small"
# What is left of a payload, by how it was and will be stored: measured on bitsandbytes, NCCL and CuPy.
_RATIOS: dict[tuple[Compression, Compression], float] = {
    ("none", "zstd"): 0.12,
    ("none", "lz4"): 0.2,
    ("lz4", "zstd"): 0.4,
}


class _Verdict(NamedTuple):
    keep: bool
    reason: str


def decide(library: Library, options: SlimOptions) -> LibraryPlan:
    """`library` must have been surveyed with `detail="entries"`."""
    fixed = unchanged.reason(library, options)
    verdicts: dict[int, _Verdict] = {}
    refused: tuple[Finding, ...] = ()
    if fixed is None:
        members = _members(library)
        verdicts = _verdicts(library, options, members)
        verdicts.update(_unregistered(library, options))
        if options.workload:
            unused = _Verdict(keep=False, reason=use.NOT_LOADED)
            verdicts.update((index, unused) for index in use.unloaded(library, options.workload))
        if options.drop_relocatable:
            refused = _drop_relocatable(library, options, members, verdicts)
        if options.strip_debug:
            _strip_debug(library, members, verdicts)
        asked = options.force or options.workload is not None
        if options.targets is not None and not asked and verdicts and _runs_nowhere(library, options):
            verdicts = {}
            refused = ()
            fixed = unchanged.nothing_for(options.targets)
    wanted = _compression(library, options) if fixed is None else None
    named = unchanged.named(library)
    entries = tuple(
        _decision(index, entry, verdicts.get(index), wanted if entry.container in named else None)
        for index, entry in enumerate(library.entries)
    )
    return LibraryPlan(
        path=library.path,
        options=options,
        entries=entries,
        untouched=tuple(unchanged.findings(library, options, fixed, wanted, verdicts)),
        refused=refused,
        bytes_before=library.size,
        bytes_after_estimate=library.size - sum(map(_saved, entries)),
    )


def _members(library: Library) -> dict[int, list[int]]:
    """The entries of each container that may be changed."""
    members: dict[int, list[int]] = {each: [] for each in unchanged.named(library)}
    for index, entry in enumerate(library.entries):
        if entry.container in members:
            members[entry.container].append(index)
    return members


def _verdicts(library: Library, options: SlimOptions, members: dict[int, list[int]]) -> dict[int, _Verdict]:
    if options.targets is None:
        return {}
    machines = [(machine.name, device_of_machine(machine)) for machine in options.targets]
    known = [(name, found) for name, found in machines if found]
    future = _newer_devices([found.capability for _, found in known]) if options.future else ()
    if unknown := [name for name, found in machines if found is None]:
        return {
            index: _Verdict(keep=True, reason=f"the capability of {unknown[0]} is not known")
            for indices in members.values()
            for index in indices
        }
    seen: dict[tuple[tuple[str, str], ...], tuple[_Verdict, ...]] = {}  # thousands of containers share a few lists
    verdicts: dict[int, _Verdict] = {}
    kernelless = without_kernels(library) - device_linked(library)  # of a link, one that is empty is nothing unusual
    for number, indices in members.items():
        entries = [library.entries[index] for index in indices]
        key = tuple((entry.kind, entry.arch) for entry in entries)
        if number in kernelless:
            verdicts.update((index, _Verdict(keep=True, reason=_NO_KERNEL)) for index in indices)
            continue
        if key not in seen:
            seen[key] = _container(entries, known, future)
        verdicts.update(zip(indices, seen[key], strict=True))
    return verdicts


def _unregistered(library: Library, options: SlimOptions) -> dict[int, _Verdict]:
    """What the library finds by itself, nobody knows how: it goes, in place, where no machine could load any of it.

    Not by what the driver would choose: each piece by itself must be for other GPUs, and large enough to save pages.
    """
    devices = [device_of_machine(each) for each in options.targets or ()]
    if not devices or None in devices:
        return {}
    known = [each for each in devices if each]
    known += _newer_devices([each.capability for each in known]) if options.future else ()
    groups: dict[tuple[int | None, int], list[int]] = {}
    named = unchanged.named(library)
    for index, entry in enumerate(library.entries):
        if entry.container not in named:
            alone = index if entry.container is None else -1
            groups.setdefault((entry.container, alone), []).append(index)
    found: dict[int, _Verdict] = {}
    for indices in groups.values():
        entries = [library.entries[index] for index in indices]
        worth = sum(each.header_size + each.bytes for each in entries) >= _WORTH
        if worth and not any(unchanged.fits(each, known) for each in entries):
            found.update((index, _Verdict(keep=False, reason=_OTHERS)) for index in indices)
    return found


def _container(
    entries: Sequence[Entry], machines: Sequence[tuple[str, Device]], future: Sequence[Device]
) -> tuple[_Verdict, ...]:
    reasons: dict[int, str] = {}
    for name, on in machines:
        for index in possible_entries(entries, on):
            verb = "takes" if entries[index].linked else "would link"
            reasons.setdefault(index, f"what the driver {verb} for {name}")
    for on in future:
        if (taken := chosen_entry(entries, on)) is not None:
            reasons.setdefault(taken, f"future GPUs can use it, such as {on.capability}")
    for index, entry in enumerate(entries):
        if loadable_code(entry) is None:
            reasons.setdefault(index, f"it is not known what uses {entry.kind} code")
    return tuple(
        _Verdict(index in reasons, reasons.get(index, "none of these machines would load it"))
        for index in range(len(entries))
    )


def _drop_relocatable(
    library: Library, options: SlimOptions, members: dict[int, list[int]], verdicts: dict[int, _Verdict]
) -> tuple[Finding, ...]:
    """Relocatable code is linked at load where the linked code does not fit: it goes where that does, everywhere."""
    objects = [index for indices in members.values() for index in indices if not library.entries[index].linked]
    if not objects:
        return ()
    if not options.force and (missing := _not_linked_for(library, options)):
        return (unchanged.needs_relocatable(missing),)
    for index in objects:
        verdicts[index] = _Verdict(keep=False, reason="the linked code covers every machine")
    return ()


def _not_linked_for(library: Library, options: SlimOptions) -> list[str]:
    """The machines for which the linked containers have no machine code, so that the driver links at load."""
    containers: dict[int, list[Entry]] = {each: [] for each in device_linked(library)}
    for entry in library.entries:
        if entry.container in containers:
            containers[entry.container].append(entry)
    machines = [(each.name, device_of_machine(each)) for each in options.targets or ()]
    if options.targets is None:
        machines = [(str(each.capability), each) for each in unchanged.served(library)]
    missing = []
    for name, on in machines:
        taken = [] if on is None else [(each, chosen_entry(each, on)) for each in containers.values()]
        if not taken or any(index is None or each[index].kind != "cubin" for each, index in taken):
            missing.append(name)
    return missing


def _strip_debug(library: Library, members: dict[int, list[int]], verdicts: dict[int, _Verdict]) -> None:
    """A debug cubin goes where the same container has the same without: taking a cubin apart is not safe."""
    for indices in members.values():
        plain = {
            (library.entries[index].kind, library.entries[index].arch): index
            for index in reversed(indices)
            if not library.entries[index].debug
        }
        for index in indices:
            entry = library.entries[index]
            equal = plain.get((entry.kind, entry.arch))
            if entry.debug and equal is not None and verdicts.get(index, _Verdict(keep=True, reason="")).keep:
                verdicts[index] = _Verdict(keep=False, reason="the same code without debug information is beside it")
                verdicts[equal] = _Verdict(keep=True, reason="replaces the same code with debug information")


def _runs_nowhere(library: Library, options: SlimOptions) -> bool:
    """Whether nothing in the whole library is for any of the machines, as `check` would say of them."""
    found = predict.reach_of(library)
    devices = [device_of_machine(each) for each in options.targets or ()]
    if None in devices:
        return False
    outcomes = (found.by_code(each) for on in devices if on for each in with_and_without_jit(on))
    return not any(each.taken or each.alternatives for each in outcomes)


def _compression(library: Library, options: SlimOptions) -> Compression | None:
    if not options.recompress:
        return None
    old = any(drivers.below_zstd_floor(library, machine) for machine in options.targets or ())
    return "lz4" if old else "zstd"


def _decision(index: int, entry: Entry, verdict: _Verdict | None, wanted: Compression | None) -> EntryDecision:
    keep = verdict is None or verdict.keep
    better = wanted if keep and entry.kind in LOADABLE and _improves(entry.compression, wanted) else None
    return EntryDecision(
        index=index,
        entry=entry,
        keep=keep,
        recompress_to=better,
        reason=verdict.reason if verdict else _ANY,
    )


def _improves(now: Compression, wanted: Compression | None) -> bool:
    return wanted is not None and (now, wanted) in _RATIOS


def _saved(each: EntryDecision) -> int:
    if not each.keep:
        return each.bytes
    if each.recompress_to is None:
        return 0
    return int((each.bytes - each.entry.header_size) * (1 - _RATIOS[each.entry.compression, each.recompress_to]))


def _newer_devices(fleet: Sequence[Capability]) -> tuple[Device, ...]:
    """GPUs newer than a fleet's newest: those of the tables, and one beyond.

    Each as one that compiles PTX: machine code for a later GPU is not what `future` is about.
    """
    known = architectures.current_capabilities()
    newest = max(fleet, default=known[0])
    beyond = Capability(max(each.major for each in (*known, newest)) + 1, 0)
    return tuple(Device(capability=each, jit="forced") for each in (*known, beyond) if each > newest)
