"""Plans for machines and CUDA versions as people name them, and how large a job's libraries will be.

All that is wrong with the words is said at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from cuwheel.errors import UsageError
from cuwheel.facts import spellings, torch
from cuwheel.facts.tables import tables
from cuwheel.machine import fleet
from cuwheel.support import quoting
from cuwheel.verdicts.planning import plan, planner, serving
from cuwheel.verdicts.planning.plan import (
    ArchSize,
    Job,
    NotServed,
    OnMachine,
    Plan,
    PlanOptions,
    Platform,
    Reading,
    Size,
    Word,
)
from cuwheel.verdicts.planning.planner import reach_in_words, torch_release
from cuwheel_core.facts import gpus, toolkits, versions
from cuwheel_core.facts.arch import Arch
from cuwheel_core.facts.tables import tables as core_tables
from cuwheel_core.support.wording import a_few, file_name
from cuwheel_core.verdicts import predict
from cuwheel_core.verdicts.choice import Choice, Code, Loader, choose, serves
from cuwheel_core.verdicts.condition import Condition, condition

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.facts.spellings.row import ArchList, ListWord, Row
    from cuwheel.machine.fleet import Machine, Machines, Refinement
    from cuwheel.verdicts.planning.serving import Kind
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.errors import CuwheelError
    from cuwheel_core.facts.rows.toolkits import Toolkit

Place: TypeAlias = tuple[str, str]  # a system and a processor
_ARM64 = "aarch64"


# How large a job's libraries will be, going by a wheel that was built from the same sources.


def predict_size(survey: Survey, cuda: str, archs: Sequence[Arch]) -> Size:
    """The unpacked libraries with this list instead of theirs.

    A wheel may have one library for each CUDA version: those of the version nearest to `cuda` are taken.
    """
    libraries = _nearest([each for each in survey.libraries if each.device_code], cuda)
    if not libraries:
        raise UsageError(
            f"{file_name(survey.target)} has no device code, so its size says nothing about architectures",
            hint=quoting.here(["cuwheel", "inspect", survey.target]),
        )
    known = _bytes_by_arch(libraries)
    total = sum(each.size for each in libraries)
    other = total - sum(known.values())
    rows = tuple(_arch_size(arch, known) for arch in archs)
    return Size(
        bytes=other + sum(row.bytes for row in rows),
        other_bytes=other,
        archs=rows,
        like_bytes=total,
        libraries=tuple(each.path for each in libraries),
        method=_method_in_words(survey, libraries, rows),
    )


def _nearest(libraries: Sequence[Library], cuda: str) -> list[Library]:
    """The libraries of the toolkit nearest to `cuda`: of its major before others, then by release."""
    order = [row.version for row in toolkits.all_toolkits()]
    wanted = order.index(cuda)

    def distance(library: Library) -> tuple[bool, int]:
        found = [version for each in library.toolkits if (version := versions.minor(each)) in order]
        if not found:
            return False, 0  # nothing says otherwise
        return min((versions.major(each) != versions.major(cuda), abs(order.index(each) - wanted)) for each in found)

    best = min(map(distance, libraries), default=None)
    return [each for each in libraries if distance(each) == best]


def _bytes_by_arch(libraries: Iterable[Library]) -> Counter[Arch]:
    """Stored bytes of each architecture that was asked for.

    Relocatable machine code alone was not: CUDA's own libcudadevrt brings some for every architecture there is, and
    PTX for the newest of them. Other PTX stays relocatable where it was asked for: a device link makes none.
    """
    known: Counter[Arch] = Counter()
    for library in libraries:
        linked = {row.arch for row in library.device_code if row.linked}
        brought = {row.arch for row in library.device_code if row.kind == "cubin"} - linked
        unasked = {each.capability for each in brought} - {each.capability for each in linked}
        for row in library.device_code:
            own = not linked or row.arch in linked
            if (row.kind == "cubin" and own) or (row.kind == "ptx" and (own or row.arch.capability not in unasked)):
                known[row.arch] += row.bytes
    return known


def _arch_size(arch: Arch, known: Counter[Arch]) -> ArchSize:
    alike = [each for each in known if each.kind == arch.kind] or list(known)
    like = min(alike, key=lambda each: _unlikeness(each, arch))
    return ArchSize(arch=arch, bytes=known[like], like=like)


def _unlikeness(each: Arch, arch: Arch) -> tuple[bool, bool, int, bool]:
    return (
        each != arch,
        each.capability.major != arch.capability.major,
        abs(each.capability.number - arch.capability.number),
        each.suffix != arch.suffix,
    )


def _method_in_words(survey: Survey, libraries: Sequence[Library], rows: Sequence[ArchSize]) -> str:
    built = sorted({versions.minor(each) for library in libraries for each in library.toolkits}, key=versions.key)
    by = f", built by CUDA {', '.join(built)}" if built else ""
    named = a_few([file_name(library.path) for library in libraries], 3)
    guessed = [f"{row.arch} like {row.like}" for row in rows if row.arch != row.like]
    estimates = f"; not in it, estimated from the nearest: {', '.join(guessed)}" if guessed else ""
    return (
        f"unpacked size of {named} of {file_name(survey.target)}{by}, with the stored bytes of each architecture "
        f"of the list and everything else as it is{estimates}"
    )


def plan_for(
    machines: Machines,
    cuda: Sequence[str],
    options: PlanOptions,
    *,
    refine: Refinement | None = None,
    cmake: str | None = None,
    torch: str | None = None,
    built_on: Place | None = None,
    elsewhere: Sequence[Place] = (),
    one_list: bool = False,
) -> Plan:
    """The smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too.

    A build makes what runs on one system and processor, whatever the GPU: each of those has jobs of its own. What a
    machine does not say of itself is as it is where it is built. `torch`: the release that a build compiles with, where
    it is known. `built_on`: where it is built, for machines of that kind alone. `elsewhere`: others on which the same
    is built, for machines that are not planned here. `one_list`: for all machines, wherever that is built.
    """
    errors: list[CuwheelError] = []
    rows = plan.find_toolkits(cuda, errors)
    version = plan.cmake_version(cmake, errors)
    wanted = plan.without_conflicts(options)
    found = plan.find_machines(machines, lambda: planner.every_gpu(rows, wanted), errors, refine)
    if not found and not errors:
        errors.append(UsageError("no machine to plan for was given", hint="cuwheel plan --for h100,l40"))
    conflicts = tuple(plan.conflicting_options(options))
    here = built_on or (fleet.system_here(), fleet.cpu_here())
    groups: dict[Place, list[Machine]] = {}
    for machine in found:
        place = here if one_list else (machine.os or here[0], machine.cpu or here[1])
        groups.setdefault(place, []).append(machine)
    chosen = [groups.get(here, [])] if built_on else list(groups.values()) or [[]]
    split = not (built_on or one_list)
    made = [_for_platform(each, rows, wanted, split=split, cmake=version, torch=torch) for each in chosen]
    unserved = [each for one in made for each in one.unserved]
    if errors or conflicts:
        plan.raise_problems(errors, [*conflicts, *planner.contradictions(unserved)])
    if built_on:
        foreign = [each for place, members in groups.items() if place != here for each in members]
        taken = elsewhere if here in groups else ()
        left = (each for each in foreign if not any(_runs_what_is_built_on(each, place) for place in taken))
        unserved += [_for_another_system(each, here) for each in left]
    notes = tuple(_left_out_of_all(machines, rows, wanted))
    jobs = (replace(job, notes=(*job.notes, *notes)) for one in made for job in one.jobs)
    return Plan(jobs=tuple(jobs), unserved=tuple(unserved))


def _left_out_of_all(names: Machines, rows: Sequence[Toolkit], options: PlanOptions) -> Iterator[str]:
    """Which GPUs `all` does not mean because of an option, though these toolkits serve them without."""
    words = (each.lower() for each in fleet.machine_words(names) if isinstance(each, str))
    if options.native and plan.ALL in words:
        meant = planner.every_gpu(rows, options)
        if absent := [each.name for each in planner.every_gpu(rows) if each not in meant]:
            yield f"all does not mean {', '.join(absent)} here: native asks for code of its own; it works without"


def _for_platform(
    machines: Sequence[Machine],
    rows: Sequence[Toolkit],
    options: PlanOptions,
    *,
    split: bool,
    cmake: str | None,
    torch: str | None,
) -> Plan:
    """The plan for machines of one system and processor.

    `split`: with a job for Jetson and one for servers, where CUDA for arm64 is two distributions.
    """
    made = planner.make_plan(machines, rows, options, cmake=cmake, torch=torch)
    jobs: list[Job] = []
    for job in made.jobs:
        toolkit = toolkits.find_toolkit(job.cuda)
        kinds = tuple(dict.fromkeys(each.runs_l4t for each in machines))
        if not split or len(kinds) <= 1 or toolkits.one_arm64(toolkit):
            jobs.append(replace(job, platform=_platform_of(machines, toolkit)))
            continue
        for l4t in kinds:
            members = [each for each in machines if each.runs_l4t is l4t]
            part = planner.make_plan(members, [toolkit], options, cmake=cmake, torch=torch).jobs[0]
            if part.coverage:
                jobs.append(replace(part, platform=_platform_of(members, toolkit)))
    return replace(made, jobs=tuple(jobs))


def _platform_of(machines: Sequence[Machine], toolkit: Toolkit) -> Platform:
    """As far as these machines say one thing."""
    systems, cpus, kinds = ({getattr(each, name) for each in machines} - {None} for name in ("os", "cpu", "runs_l4t"))
    two = cpus == {_ARM64} and not toolkits.one_arm64(toolkit)
    return Platform(
        os=systems.pop() if len(systems) == 1 else None,
        cpu=next(iter(cpus)) if len(cpus) == 1 else None,
        l4t=kinds.pop() if two and len(kinds) == 1 else None,
    )


def _runs_what_is_built_on(machine: Machine, place: Place) -> bool:
    return machine.os in (None, place[0]) and machine.cpu in (None, place[1])


def _for_another_system(machine: Machine, here: Place) -> NotServed:
    system, cpu = here
    other = machine.os not in (None, system)
    where = "the Jetson itself" if machine.runs_l4t else f"a machine with {machine.os if other else machine.cpu}"
    fix = f"build it on {where}"
    if not other and any((row.on, row.target) == (cpu, machine.cpu) for row in tables().toolchains.cross):
        fix = f"build it for that processor: cuwheel build --cpu {machine.cpu}; or on {where}"
    its, built = (f"system is {machine.os}", system) if other else (f"processor is {machine.cpu}", cpu)
    return NotServed(
        machine=machine.name,
        count=machine.count,
        capability=machine.capability,
        why=(f"its {its}, and what is built here is for {built}",),
        fix=fix,
    )


def with_sizes(made: Plan, like: Survey) -> Plan:
    """`like`: an earlier wheel, from whose bytes the new ones are predicted."""
    return replace(
        made,
        jobs=tuple(replace(job, size=predict_size(like, job.cuda, [*job.archs, *job.ptx])) for job in made.jobs),
    )


def explain_list(
    text: str,
    machines: Machines,
    cuda: Sequence[str],
    *,
    refine: Refinement | None = None,
    spelling: str | None = None,
) -> Plan:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    errors: list[CuwheelError] = []
    rows = plan.find_toolkits(cuda, errors)
    if len(rows) > 1:
        errors.append(UsageError("--read takes one CUDA version at a time"))
    found = plan.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    plan.raise_problems(errors, ())
    reading = explain(text, found, spelling=spelling, toolkit=rows[0] if rows else None)
    return plan.Plan(jobs=(), unserved=(), reading=reading)


# The reverse of a plan: a list that somebody else wrote, word by word, and what it covers.

_KINDS = {"sm": "machine code", "compute": "PTX", "lto": "LTO-IR"}


def explain(
    text: str,
    machines: Sequence[Machine] = (),
    *,
    spelling: str | None = None,
    toolkit: Toolkit | None = None,
) -> Reading:
    """What a list means and covers; for each machine, how it serves it. `toolkit`: the one that builds it."""
    if not text.strip(" ;,"):
        raise UsageError("the list to read is empty", hint='cuwheel plan --read "8.0;9.0+PTX"')
    name = spelling or guess(text)
    rules = spellings.BY_NAME[name]
    release = torch_release(machines)
    found = rules.read(text, release)
    cubins = [arch for arch in found.archs if arch.kind != "compute"]
    ptx = [arch for arch in found.archs if arch.kind == "compute"]
    absent = [each for each in gpus.current_capabilities() if not any(serves(arch, each) for arch in found.archs)]
    return Reading(
        text=text,
        spelling=name,
        guessed=spelling is None,
        words=tuple(_word(word, rules) for word in found.words),
        archs=tuple(cubins),
        ptx=tuple(ptx),
        unknown=found.unknown,
        open=found.open,
        reach=reach_in_words(found.archs) if found.archs or not found.open else "what it covers is not known",
        missed=predict.capability_ranges(map(str, absent)),
        machines=tuple(_on(machine, found.archs, toolkit) for machine in machines),
        toolkits=_toolkits(found.archs),
        notes=tuple(_notes(text, name, found, toolkit, release)) if found.archs or found.open else (),
    )


def guess(text: str) -> str:
    """Whose spelling it looks like."""
    for name, look in spellings.GUESSES:
        if look.search(text):
            return name
    return "torch" if any(torch.list_named(word) for word in re.split(r"[;,\s]+", text)) else "cmake"


def _word(word: ListWord, rules: Row) -> Word:
    if word.resolved_by_build:
        meaning = f"{rules.owner} resolves it when it sees the toolkit or the GPU"
    elif not word.archs:
        meaning = f"nothing known to {rules.owner}"
    else:
        meaning = " and ".join(_code(word.archs, kind) for kind in dict.fromkeys(arch.kind for arch in word.archs))
    return Word(word=word.text, archs=tuple(word.archs), meaning=meaning)


def _code(archs: Sequence[Arch], kind: str) -> str:
    scopes = {"": "", "a": " (this capability alone)", "f": " (its family)"}
    named = ", ".join(f"{arch}{scopes[arch.suffix]}" for arch in archs if arch.kind == kind)
    return f"{_KINDS[kind]} {named}"


def _toolkits(archs: Sequence[Arch]) -> str:
    able = [row for row in toolkits.all_toolkits() if all(row.supports(arch) for arch in archs)]
    return toolkits.span(able) if able and archs else ""


def _notes(text: str, name: str, found: ArchList, toolkit: Toolkit | None, release: str | None) -> Iterator[str]:
    if toolkit and (beyond := [arch.number for arch in found.archs if not toolkit.supports(arch)]):
        yield f"CUDA {toolkit.version} cannot compile {', '.join(dict.fromkeys(beyond))}: nvcc fails"
    if found.open:
        yield "it also covers what the build system resolves itself"
    strange = [str(arch) for arch in found.archs if not toolkits.toolkits_supporting(arch)]
    if strange:
        yield f"no known toolkit compiles {', '.join(strange)}"
    elif not toolkit and not _toolkits(found.archs) and found.archs:
        yield "no single toolkit compiles all of it: its oldest architecture was dropped before its newest appeared"
    if name == "torch":
        # What that PyTorch refuses, or the newest where it is not known; and what not every release takes.
        for arch in dict.fromkeys(Arch(each.capability, each.suffix) for each in found.archs):
            taken = torch.taken_by(arch)
            only = f"; torch {taken} accepts it" if taken else ""
            if not torch.takes(arch, release):
                yield f"PyTorch{f' {release}' if release else ''} refuses {torch.spelled(arch)}{only}"
            elif release is None and not torch.takes(arch, tables().torch.change[0].since):
                yield f"{torch.spelled(arch)} needs torch {taken}"
    if name == "cargo":
        yield "whether it becomes machine code, PTX or both is the build script's choice"
    if name == "bitsandbytes":
        yield "bitsandbytes always adds PTX for the highest"
    others = [each for each in ("bitsandbytes", "cargo") if name == "cmake" and _differs(text, each, found)]
    for other in others:
        read = spellings.BY_NAME[other].read(text)
        rules = spellings.BY_NAME[other]
        yield f"as {rules.variable} of {rules.owner} it is {', '.join(map(str, read.archs))} (--as {other})"


def _differs(text: str, name: str, found: ArchList) -> bool:
    """Whether the same text is also a list of that spelling, and another one."""
    read = spellings.BY_NAME[name].read(text)
    return bool(read.archs) and not read.unknown and set(read.archs) != set(found.archs)


def _on(machine: Machine, archs: Sequence[Arch], toolkit: Toolkit | None) -> OnMachine:
    kind = serving.kind_of(machine)
    if kind is None:
        return OnMachine(
            machine=machine.name,
            count=machine.count,
            capability=None,
            how="none",
            by=None,
            explanation=serving.NO_GPU,
        )
    isa = toolkit.ptx_isa if toolkit else None
    code = [Code(arch=arch, ptx_isa=isa if arch.kind == "compute" else None) for arch in archs]
    # The newest PTX that the driver is known to compile; None where that is open.
    known = serving.rows_of(kind.driver.compiles_surely)
    choice = choose(
        code,
        Loader(
            capability=kind.capability,
            ptx_isa=(known[-1].ptx_isa if known and kind.driver.compiles == kind.driver.compiles_surely else None),
            jit=kind.jit,
        ),
    )
    arch = archs[choice.entry] if choice.entry is not None else None
    return OnMachine(
        machine=machine.name,
        count=machine.count,
        capability=kind.capability,
        how=choice.how,
        by=arch if arch and choice.how != "none" else None,
        explanation=_explanation(kind, arch, choice),
        requires=tuple(_conditions(kind, arch, choice, toolkit)),
        notes=tuple(_tegra_notes(kind, toolkit, choice)),
    )


def _explanation(kind: Kind, arch: Arch | None, choice: Choice) -> str:
    if choice.how == "native":
        return f"{kind.capability} is served by {arch}, its own architecture"
    if choice.how == "compatible":
        rule = (
            "'f' code runs on its family" if arch and arch.suffix else "machine code runs on later minors of its major"
        )
        return f"{kind.capability} is served by {arch}: {rule}"
    if choice.how == "jit":
        return f"{kind.capability} is served by {arch}: the driver compiles this PTX when it is first used"
    error = f"{choice.error.name}, {choice.error.code}" if choice.error else "no error is known"
    if arch:
        return f"{kind.capability} would use {arch}, but its driver cannot compile it ({error})"
    return f"nothing in the list runs on {kind.capability} ({error})"


def _conditions(kind: Kind, arch: Arch | None, choice: Choice, toolkit: Toolkit | None) -> Iterator[Condition]:
    if arch is None or choice.how == "none":
        return
    if toolkit:
        yield from serving.serving_conditions(kind, toolkit, arch)
        return
    if arch.kind == "sm":
        yield from serving.across_tegra_conditions(arch, kind.capability)
    elif choice.how == "jit":
        yield condition("driver-as-new-as-ptx")


def _tegra_notes(kind: Kind, toolkit: Toolkit | None, choice: Choice) -> Iterator[str]:
    """A list that serves a Jetson is rarely what is wrong there."""
    if kind.tegra and (toolkit is None or not toolkits.one_arm64(toolkit)):
        since = core_tables().toolkits.arm64.one_distribution_since
        fits = choice.how != "none"
        yield (
            f"the list is not the {'' if fits else 'only '}problem on a Jetson: L4T is{'' if fits else ' one too'}. "
            f"Below CUDA {since} arm64 has two toolkits, and a wheel built for SBSA servers fails on L4T with 'named "
            "symbol not found' although its code fits. Build on the Jetson (or with its toolkit, "
            "targets/aarch64-linux), or use wheels made for L4T"
        )
