"""What stays of a target's libraries, what goes and why: pure, from surveys with every entry.

Kept is, in each container, what the driver would take for each machine, and whatever that cannot be said of. A
container with nothing for any of them is left empty: the driver says 209 of an empty one as it did of the full one
(seen on an H200, where PyTorch and NVIDIA's libraries ran with theirs emptied).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from cuwheel.changes.binaries.plan import (
    COMPRESSION_RATIOS,
    EntryDecision,
    LibraryPlan,
    Reason,
    registered_containers,
    why_untouchable,
)
from cuwheel.changes.slim.answer import Kept, SlimPlan
from cuwheel.device_code.bitcode import family_of
from cuwheel.facts import packages
from cuwheel.machine.fleet import Machine
from cuwheel.support.finding import finding
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Capability
from cuwheel_core.support import opening
from cuwheel_core.support.wording import file_name, first_few, size
from cuwheel_core.verdicts import drivers, predict
from cuwheel_core.verdicts.choice import (
    LOADABLE,
    Loader,
    chosen_entry,
    loadable_code,
    loader_of,
    possible_entries,
    serves,
    with_and_without_jit,
)
from cuwheel_core.verdicts.modules import device_linked, without_kernels

if TYPE_CHECKING:
    from cuwheel.changes.binaries.rewrite import Rewritten
    from cuwheel.changes.graft.compiled import Plan
    from cuwheel.changes.slim.request import SlimTask
    from cuwheel.device_code.contents import Bitcode
    from cuwheel_core.device_code.libraries import Compression, Entry, Library
    from cuwheel_core.support.finding import Finding

_WORTH = 1 << 14  # of code that stays where it is: only whole pages of it are saved
_SHOWN = 5


class PackageRelease(NamedTuple):
    """A distribution, and the release by whose rules it chooses its libraries; None: the newest that is known."""

    name: str
    release: str | None


def release_in_folder(name: str, version: str | None, folder: Path) -> PackageRelease:
    """The package of libraries in a folder; its release by the files beside them, else by its version."""
    return PackageRelease(name, packages.shown_release(name, lambda file: opening.head(folder / file)) or version)


def make_plan(
    libraries: Sequence[Library],
    task: SlimTask,
    package_of: Callable[[str], PackageRelease | None],
    bitcode: Sequence[Bitcode] = (),
) -> SlimPlan:
    """`package_of`: the distribution that a library belongs to, by the library's path."""
    strips = task.request.strip_debug
    with_code = [each for each in libraries if each.device_code or (strips and host_debug_of(each))]
    removed, findings = _for_other_cuda(with_code, task.cuda, package_of) if task.cuda else ((), ())
    unused = _unused_bitcode(bitcode, task)
    removed = (*removed, *_tools_for_other_gpus(libraries, task, package_of), *(each.path for each in unused))
    ahead = None
    if task.request.compile and task.machines:
        ahead = _compiled_first([each for each in with_code if each.path not in removed], task, task.machines)
    made = ahead.entries if ahead else {}
    plans = {
        each.path: decide_library(each, task, made.get(each.path, ())) for each in with_code if each.path not in removed
    }
    kept: list[Kept] = []
    refused: list[Finding] = []
    if task.workload:
        from cuwheel.changes.slim import use  # noqa: PLC0415 - few cut by use

        refused += use.trace_problems(with_code, task.machines, task.workload)
        kept += [use.kept_by_use(plans[each.path], each, task.workload) for each in with_code if each.path in plans]
    return SlimPlan(
        task=task,
        libraries=tuple(libraries),
        plans=plans,
        removed=removed,
        findings=(
            *findings,
            *(ahead.findings if ahead else ()),
            *(with_library_name(plan.path, each) for plan in plans.values() for each in plan.untouched),
        ),
        refused=(*refused, *(with_library_name(plan.path, each) for plan in plans.values() for each in plan.refused)),
        kept=tuple(kept),
        ahead=ahead,
        bitcode=tuple(bitcode),
    )


def _compiled_first(libraries: Sequence[Library], task: SlimTask, machines: Sequence[Machine]) -> Plan:
    """What `graft --compile` would make for the machines."""
    from cuwheel.changes.binaries import compiling  # noqa: PLC0415 - few compile
    from cuwheel.changes.graft import compiled  # noqa: PLC0415
    from cuwheel.changes.graft.request import GraftRequest  # noqa: PLC0415

    names = tuple(each.name for each in machines)
    request = GraftRequest(task.target, compile=names, drop_signature=task.request.drop_signature)
    return compiled.plan_of(libraries, request, compiling.aims_of(machines))


def with_library_name(path: str, found: Finding) -> Finding:
    """A plan speaks of its own library; among many one must know which."""
    name = file_name(path)
    return found if found.about else replace(found, about=name)


def findings_of_writing(results: Iterable[Rewritten]) -> list[Finding]:
    """What writing met that the plans had not told."""
    return [with_library_name(result.change.path, each) for result in results for each in result.findings]


def _for_other_cuda(
    libraries: Iterable[Library], cuda: str, package_of: Callable[[str], PackageRelease | None]
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Finds the libraries that are never loaded with this CUDA, in packages that have one for each version."""
    versions: dict[PackageRelease, dict[str, str]] = {}
    for library in libraries:
        owner = package_of(library.path)
        profile = packages.find_profile(*owner) if owner else None
        if owner and profile and profile.loads == "one" and (version := packages.made_for(profile, library.path)):
            versions.setdefault(owner, {})[library.path] = version
    if not versions:
        words = f"--cuda {cuda} changes nothing: no package here is known to have one library per CUDA version"
        return (), (finding("cuda-changes-nothing", words),)
    removed: list[str] = []
    findings = []
    for owner, made_for in versions.items():
        profile = packages.find_profile(*owner)
        best = packages.best_version(profile, made_for.values(), cuda) if profile else None
        if best is not None:
            removed += [path for path, version in made_for.items() if version != best]
            continue
        known = ", ".join(sorted(set(made_for.values())))
        findings.append(
            finding(
                "no-library-for-cuda",
                f"{owner.name} has no library for CUDA {cuda}: all of its libraries were kept",
                evidence=(f"it has libraries for {known}",),
                fix=f"use --cuda with one of {known}, or another version of {owner.name}",
                severity="warning",
            )
        )
    return tuple(removed), tuple(findings)


def _unused_bitcode(bitcode: Sequence[Bitcode], task: SlimTask) -> list[Bitcode]:
    """Bitcode that no GPU links: each takes its own capability's file, else the highest that is lower, as of PTX."""
    devices = _devices_and_future(task)
    families: dict[str, list[Bitcode]] = {}
    for each in bitcode:
        families.setdefault(family_of(each), []).append(each)
    unused: list[Bitcode] = []
    for family in families.values():
        plain = [each for each in family if not each.arch.suffix]
        taken = [
            max(fitting, key=lambda each: each.arch)
            for device in devices
            if (fitting := [each for each in plain if each.arch.capability <= device.capability])
        ]
        if taken:  # or nothing in it is for any of them: perhaps somebody compiles for others here
            unused += [each for each in plain if each not in taken]
    return unused


def _tools_for_other_gpus(
    libraries: Sequence[Library], task: SlimTask, package_of: Callable[[str], PackageRelease | None]
) -> list[str]:
    """Programs and libraries that a package itself uses with other GPUs alone, by the table of packages."""
    devices = _devices_and_future(task)
    if not devices:
        return []
    found = []
    for each in libraries:
        rows = packages.files_for_gpus(each.path)
        owner = package_of(each.path) if rows else None
        used = next((row for row in rows if owner and row.is_of(*owner)), None)
        if used and not any(used.covers(device.capability) for device in devices):
            found.append(each.path)
    return found


# One library.


class _Ruling(NamedTuple):
    """What becomes of an entry."""

    keep: bool
    reason: str


def decide_library(library: Library, task: SlimTask, made: Sequence[Entry] = ()) -> LibraryPlan:
    """What stays, what goes, and why. `library` must have been surveyed with `detail="entries"`.

    `made`: what will be in its containers before anything is cut.

    Later rulings overrule earlier ones: what a machine loads, what no trace loaded, relocatable and debug code.
    """
    request = task.request
    library = replace(library, entries=(*library.entries, *made)) if made else library
    untouchable = why_untouchable(library, drop_signature=request.drop_signature)
    rulings: dict[int, _Ruling] = {}
    refused: tuple[Finding, ...] = ()
    registered = registered_containers(library)
    if untouchable is None:
        members: dict[int, list[int]] = {each: [] for each in registered}
        for index, entry in enumerate(library.entries):
            if entry.container in members:
                members[entry.container].append(index)
        rulings = _by_machine(library, task, members)
        rulings.update(_unregistered(library, task))
        if task.workload:
            from cuwheel.changes.slim import use  # noqa: PLC0415 - few cut by use

            unused = _Ruling(keep=False, reason="the traced workload does not load it")
            rulings.update((index, unused) for index in use.unloaded_entries(library, registered, task.workload))
        if request.drop_relocatable:
            refused = _drop_relocatable(library, task, members, rulings)
        if request.strip_debug:
            _strip_debug(library, members, rulings)
        asked = request.force or task.workload is not None
        if task.machines is not None and not asked and rulings and _runs_nowhere(library, task):
            rulings = {}
            refused = ()
            untouchable = Reason(
                "nothing-for-targets",
                f"nothing in it is for {', '.join(each.name for each in task.machines)}: slimmed, it would be useless",
                "remove the file, or slim it with --force",
            )
    wanted: Compression | None = None
    if request.recompress and untouchable is None:
        old = any(drivers.below_zstd_floor(library, machine) for machine in task.machines or ())
        wanted = "lz4" if old else "zstd"
    return LibraryPlan(
        path=library.path,
        entries=tuple(
            _decision(index, entry, rulings.get(index), wanted if entry.container in registered else None)
            for index, entry in enumerate(library.entries)
        ),
        bytes_before=library.size,
        untouched=(
            *_left_as_it_is(library, task, untouchable, wanted, rulings),
            *_gaps_out_of_sight(library, task, rulings),
        ),
        refused=refused,
        machines=task.machines,
        drops_relocatable=request.drop_relocatable,
        by_use=task.workload is not None,
        drop_signature=request.drop_signature,
        debug=host_debug_of(library) if request.strip_debug else 0,
        made=tuple(made),
    )


def host_debug_of(library: Library) -> int:
    """Bytes of the host's code that debuggers alone read, in a file that is rewritten at all."""
    linked = library.format == "elf" and library.type in ("shared", "executable")
    return sum(each.bytes for each in library.parts if each.name == "debug") if linked else 0


def _decision(index: int, entry: Entry, ruling: _Ruling | None, wanted: Compression | None) -> EntryDecision:
    keep = ruling is None or ruling.keep
    better = keep and wanted and entry.kind in LOADABLE and (entry.compression, wanted) in COMPRESSION_RATIOS
    return EntryDecision(
        index=index,
        entry=entry,
        keep=keep,
        recompress_to=wanted if better else None,
        reason=ruling.reason if ruling else "for every architecture",
    )


# What goes, and why.


def _by_machine(library: Library, task: SlimTask, members: dict[int, list[int]]) -> dict[int, _Ruling]:
    """Rules on each container: what the driver takes for a machine, could take for a future one, or nobody can say."""
    if task.machines is None:
        return {}
    machines = [(machine.name, loader_of(machine)) for machine in task.machines]
    known = [(name, found) for name, found in machines if found]
    future = _newer_devices([found.capability for _, found in known]) if task.request.future else ()
    if unknown := [name for name, found in machines if found is None]:
        return {
            index: _Ruling(keep=True, reason=f"the capability of {unknown[0]} is not known")
            for indices in members.values()
            for index in indices
        }
    seen: dict[tuple[tuple[str, str], ...], tuple[_Ruling, ...]] = {}  # thousands of containers share a few lists
    rulings: dict[int, _Ruling] = {}
    kernelless = without_kernels(library) - device_linked(library)  # of a link, one that is empty is nothing unusual
    for number, indices in members.items():
        entries = [library.entries[index] for index in indices]
        key = tuple((entry.kind, entry.arch) for entry in entries)
        if number in kernelless:  # emptied, it could not be told from one that lost its kernels
            rulings.update((index, _Ruling(keep=True, reason="it has no kernels and is small")) for index in indices)
            continue
        if key not in seen:
            seen[key] = _rulings_of_container(entries, known, future)
        rulings.update(zip(indices, seen[key], strict=True))
    return rulings


def _rulings_of_container(
    entries: Sequence[Entry], machines: Sequence[tuple[str, Loader]], future: Sequence[Loader]
) -> tuple[_Ruling, ...]:
    reasons: dict[int, str] = {}
    for name, device in machines:
        for index in possible_entries(entries, device):
            verb = "takes" if entries[index].linked else "would link"
            reasons.setdefault(index, f"what the driver {verb} for {name}")
    for device in future:
        if (taken := chosen_entry(entries, device)) is not None:
            reasons.setdefault(taken, f"future GPUs can use it, such as {device.capability}")
    for index, entry in enumerate(entries):
        if loadable_code(entry) is None:
            reasons.setdefault(index, f"it is not known what uses {entry.kind} code")
    return tuple(
        _Ruling(index in reasons, reasons.get(index, "none of these machines would load it"))
        for index in range(len(entries))
    )


def _newer_devices(fleet: Sequence[Capability]) -> tuple[Loader, ...]:
    """GPUs newer than a fleet's newest: those of the tables, and one beyond.

    Each as one that compiles PTX: machine code for a later GPU is not what `future` is about.
    """
    known = gpus.current_capabilities()
    newest = max(fleet, default=known[0])
    beyond = Capability(max(each.major for each in (*known, newest)) + 1, 0)
    return tuple(Loader(capability=each, jit="forced") for each in (*known, beyond) if each > newest)


def _unregistered(library: Library, task: SlimTask) -> dict[int, _Ruling]:
    """What the library finds by itself, nobody knows how: it goes, in place, where no machine could load any of it.

    Not by what the driver would choose: each piece by itself must be for other GPUs, and large enough to save pages.
    """
    devices = _devices_and_future(task)
    if not devices:
        return {}
    groups: dict[tuple[int | None, int], list[int]] = {}
    named = registered_containers(library)
    for index, entry in enumerate(library.entries):
        if entry.container not in named:
            alone = index if entry.container is None else -1
            groups.setdefault((entry.container, alone), []).append(index)
    found: dict[int, _Ruling] = {}
    for indices in groups.values():
        entries = [library.entries[index] for index in indices]
        worth = sum(each.header_size + each.bytes for each in entries) >= _WORTH
        if worth and not any(_fits(each, devices) for each in entries):
            found.update(
                (index, _Ruling(keep=False, reason="none of these machines could load it")) for index in indices
            )
    return found


def _devices(task: SlimTask) -> list[Loader]:
    """The GPUs of all machines; none where that of one is not known."""
    found = [loader_of(each) for each in task.machines or ()]
    return [] if None in found else [each for each in found if each]


def _devices_and_future(task: SlimTask) -> list[Loader]:
    """The GPUs to slim for, with `--future` newer ones, too."""
    devices = _devices(task)
    return [
        *devices,
        *(_newer_devices([each.capability for each in devices]) if task.request.future and devices else ()),
    ]


def _fits(entry: Entry, devices: Sequence[Loader]) -> bool:
    """Whether one of these GPUs could load it, or nobody can tell."""
    found = loadable_code(entry)
    return found is None or any(serves(found.arch, device.capability) for device in devices)


def _drop_relocatable(
    library: Library, task: SlimTask, members: dict[int, list[int]], rulings: dict[int, _Ruling]
) -> tuple[Finding, ...]:
    """Relocatable code is linked at load where the linked code does not fit: it goes where that does, everywhere."""
    objects = [index for indices in members.values() for index in indices if not library.entries[index].linked]
    if not objects:
        return ()
    if not task.request.force and (missing := _not_linked_for(library, task)):
        return (
            finding(
                "relocatable-code-needed",
                "the relocatable code cannot be removed: the linked code has nothing for "
                f"{', '.join(missing)}, and the driver links the relocatable code there",
            ),
        )
    for index in objects:
        rulings[index] = _Ruling(keep=False, reason="the linked code covers every machine")
    return ()


def _not_linked_for(library: Library, task: SlimTask) -> list[str]:
    """The machines for which the linked containers have no machine code, so that the driver links at load."""
    containers: dict[int, list[Entry]] = {each: [] for each in device_linked(library)}
    for entry in library.entries:
        if entry.container in containers:
            containers[entry.container].append(entry)
    machines = [(each.name, loader_of(each)) for each in task.machines or ()]
    if task.machines is None:
        archs = [found.arch for each in library.entries if (found := loadable_code(each))]
        served = [each for each in gpus.current_capabilities() if any(serves(arch, each) for arch in archs)]
        machines = [(str(each), Loader(capability=each)) for each in served]
    missing = []
    for name, device in machines:
        taken = [] if device is None else [(each, chosen_entry(each, device)) for each in containers.values()]
        if not taken or any(index is None or each[index].kind != "cubin" for each, index in taken):
            missing.append(name)
    return missing


def _strip_debug(library: Library, members: dict[int, list[int]], rulings: dict[int, _Ruling]) -> None:
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
            if entry.debug and equal is not None and rulings.get(index, _Ruling(keep=True, reason="")).keep:
                rulings[index] = _Ruling(keep=False, reason="the same code without debug information is beside it")
                rulings[equal] = _Ruling(keep=True, reason="replaces the same code with debug information")


def _runs_nowhere(library: Library, task: SlimTask) -> bool:
    """Whether nothing in the whole library is for any of the machines, as `check` would say of them."""
    devices = _devices(task)
    found = predict.reach_of(library)
    outcomes = [found.by_code(each) for device in devices for each in with_and_without_jit(device)]
    return bool(devices) and not any(each.taken or each.alternatives for each in outcomes)


# What is left as it is, and why; and what can no longer be seen.


def _left_as_it_is(
    library: Library,
    task: SlimTask,
    untouchable: Reason | None,
    wanted: Compression | None,
    decided: Collection[int] = (),
) -> Iterator[Finding]:
    """`decided`: the entries that a plan does not simply leave."""
    if untouchable and library.entries:
        yield _left_unchanged(untouchable.rule, untouchable.words, library.entries, task, fix=untouchable.fix)
        return
    outside = [
        each
        for index, each in enumerate(library.entries)
        if (each.section not in FATBIN_SECTIONS or each.container is None) and index not in decided
    ]
    if outside:
        words = "device code is outside the sections that the CUDA runtime registers: the library loads it itself"
        yield _left_unchanged("code-elsewhere", words, outside, task)
    inside = [each for each in library.entries if each.section in FATBIN_SECTIONS and each.container is not None]
    known = registered_containers(library)
    gone = {library.entries[index].container for index in decided}
    nameless = [each for each in inside if each.container not in known and each.container not in gone]
    if nameless:
        words = "nothing that the CUDA runtime registers refers to these containers: the library finds them itself"
        yield _left_unchanged("container-without-wrapper", words, nameless, task)
    plain = {(each.container, each.kind, each.arch) for each in inside if not each.debug}
    debug = [each for each in inside if each.debug and (each.container, each.kind, each.arch) not in plain]
    if task.request.strip_debug and debug:
        words = "device code with debug information has no counterpart without it: build without -G"
        yield _left_unchanged("debug-code", words, debug, task)
    if wanted == "zstd":
        # An unknown driver may be too old for it.
        machines = task.machines or (Machine(name="any", capability=None),)
        floors = (drivers.zstd_floor(library, each) for each in machines if not each.driver)
        if floor := next((each for each in floors if each), None):
            yield finding("zstd-needs-driver", f"code compressed with ZSTD needs driver {floor} or later")


def _gaps_out_of_sight(library: Library, task: SlimTask, rulings: Mapping[int, _Ruling]) -> Iterator[Finding]:
    """Containers that have nothing for a machine, of a library that `check` does not take for one that chooses.

    Emptied, they look like those of one that does: of the slimmed file `check` will say that it runs. So it is with one
    that chooses, and of which a machine takes next to nothing: cuSPARSELt on a T4.
    """
    kept = {each.container for index, each in enumerate(library.entries) if index not in rulings or rulings[index].keep}
    emptied = {each.container for each in library.entries if each.linked and each.container is not None} - kept
    if task.workload or not emptied:
        return
    found = predict.reach_of(library)
    devices = [(machine.name, loader_of(machine)) for machine in task.machines or ()]
    counts = [(name, found.by_code(device)) for name, device in devices if device]
    shown = {"partial"} if found.chooses.many and not found.chooses.itself else set()
    shown |= {"fails"} if found.chooses.itself else set()
    gaps = {name: each for name, each in counts if each.outcome in shown and each.taken and each.containers.none}
    if gaps:
        runs = "does not run" if found.chooses.itself else "runs only in part"
        yield finding(
            "gaps-out-of-sight",
            f"it {runs} on {', '.join(gaps)}, slimmed or not, and the slimmed library no longer shows that: "
            "`check` will say that it runs",
            evidence=tuple(
                f"{each.containers.none} of {each.containers.total} containers have nothing for {name}"
                for name, each in gaps.items()
            ),
        )


def _left_unchanged(rule: str, words: str, entries: Sequence[Entry], task: SlimTask, fix: str = "") -> Finding:
    could = _bytes_for_others(entries, task)
    places = first_few(entries, _SHOWN, lambda each: f"{each.arch} in {each.section or 'the file'} at {each.offset:#x}")
    saving = f"; {size(could)} of it are for other GPUs" if could else ""
    pieces = "one piece" if len(entries) == 1 else f"{len(entries)} pieces"
    return finding(rule, f"{pieces} of device code left unchanged: {words}{saving}", evidence=places, fix=fix)


def _bytes_for_others(entries: Sequence[Entry], task: SlimTask) -> int:
    """What dropping would save of these, were it safe."""
    devices = _devices(task)
    if not devices:
        return 0
    groups: dict[int | None, list[Entry]] = {}
    for each in entries:
        groups.setdefault(each.container, []).append(each)
    saved = 0
    for container, group in groups.items():
        kept = {index for device in devices for index in possible_entries(group, device)}
        if container is None:  # each stands alone
            kept = {index for index, each in enumerate(group) if _fits(each, devices)}
        saved += sum(
            each.header_size + each.bytes
            for index, each in enumerate(group)
            if index not in kept and loadable_code(each) is not None
        )
    return saved
