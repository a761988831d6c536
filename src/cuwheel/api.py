"""The verbs as functions: each sequences the stages and returns the value that report and JSON show."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.facts.rows import Toolkit
    from cuwheel.finding import Finding
    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.plan.values import Job
    from cuwheel.report.check import Check
    from cuwheel.report.compare import Compare
    from cuwheel.report.doctor import Doctor
    from cuwheel.report.gpus import Gpus
    from cuwheel.report.inspect import Inspect
    from cuwheel.report.kernels import Kernels
    from cuwheel.report.plan import Plan
    from cuwheel.report.slim import Slim
    from cuwheel.report.toolchain import Toolchain as ToolchainAnswer
    from cuwheel.report.toolkits import Toolkits


T = TypeVar("T")


def doctor(*, on: MachineProfile | Path | None = None, env: Path | None = None, needs: Sequence[str] = ()) -> Doctor:
    """What is wrong with this machine and what is installed on it, or with the one a profile describes."""
    from cuwheel.compat import machine_rules
    from cuwheel.compat import needs as needs_
    from cuwheel.finding import SEVERITIES
    from cuwheel.machine import probe, profile
    from cuwheel.report.doctor import Doctor

    wanted = needs_.parse(needs)
    machine = profile.load(on) if isinstance(on, Path) else on or probe.probe(env)
    found = machine_rules.examine(machine)
    if on is None:  # a saved machine's files are elsewhere
        found = (*found, *_installed(machine, env, found))
    return Doctor(
        machine=machine,
        findings=tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))),
        needs=needs_.examine(wanted, machine),
    )


def _installed(machine: MachineProfile, env: Path | None, said: Sequence[Finding]) -> tuple[Finding, ...]:
    """What the rules of `check` find in the environment's CUDA packages; without a GPU there is nothing to ask."""
    from cuwheel.compat import environment as stage
    from cuwheel.inspection import presence
    from cuwheel.inspection.survey import survey
    from cuwheel.machine import environment, named, world

    machines = [each for each in named.here(machine) if each.capability]
    if not machines:
        return ()
    _, folders = environment.locate(world.World.here(), env)
    there = presence.distributions_with_device_code(folders)
    return stage.examine([survey(name, env=folder, detail="containers") for name, folder in there], machines, said)


def gpus(*names: str) -> Gpus:
    """The GPUs that names, parts of names or capabilities mean; all of them without one."""
    from cuwheel.compat.targets import toolkits_for
    from cuwheel.facts import architectures
    from cuwheel.facts import gpus as table
    from cuwheel.facts.arch import Arch
    from cuwheel.facts.tables import tables
    from cuwheel.report.gpus import GpuRow, Gpus

    titles = {key: source.title for key, source in tables().gpus.sources.items()}

    def row(gpu: table.Gpu) -> GpuRow:
        fitting = toolkits_for(gpu.capability)
        return GpuRow(
            name=gpu.name,
            capability=str(gpu.capability),
            arch=str(Arch(gpu.capability)),
            generation=architectures.find_architecture(gpu.capability).generation,
            product=gpu.product,
            tegra=gpu.tegra is not None,
            cuda_first=fitting[0].version if fitting else None,
            cuda_last=fitting[-1].version if fitting else None,
            sources=tuple(titles[each] for each in gpu.source),
            note=gpu.note,
        )

    found = [gpu for name in names for gpu in table.look_up(name)] if names else table.all_gpus()
    return Gpus(gpus=tuple(row(gpu) for gpu in dict.fromkeys(found)))


def toolkits(*wanted: str, compiles: str | None = None) -> Toolkits:
    """What the tables know of CUDA versions: those asked for, or all; only those that compile for a target."""
    from cuwheel.facts import gpus as gpu_table
    from cuwheel.facts import toolkits as table
    from cuwheel.facts.arch import Arch, looks_like_arch
    from cuwheel.facts.tables import tables
    from cuwheel.report.toolkits import ToolkitRow, Toolkits

    titles = {key: source.title for key, source in tables().toolkits.sources.items()}

    def row(toolkit: Toolkit) -> ToolkitRow:
        limits = toolkit.host_compilers
        return ToolkitRow(
            version=toolkit.version,
            ptx_isa=toolkit.ptx_isa,
            driver_linux=toolkit.driver.linux,
            driver_windows=toolkit.driver.windows,
            driver_floor_linux=table.minor_compat_floor(toolkit.major, "linux"),
            driver_floor_windows=table.minor_compat_floor(toolkit.major, "windows"),
            gcc_max=limits.gcc_max,
            clang_max=limits.clang_max,
            msc_ver_min=limits.msc_ver_min,
            msc_ver_max=limits.msc_ver_max,
            architectures=toolkit.architectures,
            measured=toolkit.measured,
            sources=tuple(titles[each] for each in toolkit.source),
            note=toolkit.note,
        )

    found = [table.find_toolkit(version) for version in wanted] if wanted else table.all_toolkits()
    if compiles:
        exact = looks_like_arch(compiles)
        arch = Arch.parse(compiles) if exact else Arch(gpu_table.capability_of(compiles))
        found = [each for each in found if each.supports(arch)]
    return Toolkits(toolkits=tuple(row(toolkit) for toolkit in dict.fromkeys(found)))


def inspect(
    target: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    entries: bool = False,
    whole: bool = False,
) -> Inspect:
    """What device code is in a wheel, library, folder, installed distribution or `name==version`."""
    from dataclasses import replace

    from cuwheel.compat import coverage, library_rules
    from cuwheel.inspection.survey import survey
    from cuwheel.report.inspect import Inspect, LibraryCoverage

    found = survey(_on_disk(target, platform), env=env, detail="entries" if entries else "containers", whole=whole)
    reaches = {library.path: coverage.of(library) for library in found.libraries}
    return Inspect(
        target=found.target,
        kind=found.kind,
        size=found.size,
        distribution=found.distribution,
        libraries=tuple(
            replace(
                library,
                findings=(*library.findings, *library_rules.examine(library)),
                containers=library.containers if entries else (),
            )
            for library in found.libraries
        ),
        coverage=tuple(
            LibraryCoverage(path=path, coverage=reach, words=coverage.words(reach))
            for path, reach in reaches.items()
            if reach
        ),
        findings=found.findings,
    )


def kernels(
    target: str | Path, pattern: str | None = None, *, env: Path | None = None, platform: str | None = None
) -> Kernels:
    """Which kernels are in which cubin; with a pattern, where those that match it are and where they are missing."""
    from cuwheel.inspection import kernels as stage
    from cuwheel.report.kernels import Kernels

    found = stage.kernels(_on_disk(target, platform), pattern, env=env)
    return _shown(Kernels, found)


def compare(
    before: str | Path,
    after: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    kernels: bool = True,
) -> Compare:
    """What an architecture, or a change, costs in bytes; what was gained and lost."""
    from cuwheel.inspection import compare as stage
    from cuwheel.inspection import kernels as kernel_stage
    from cuwheel.inspection.survey import survey
    from cuwheel.report.compare import Compare

    targets = [_on_disk(target, platform) for target in (before, after)]
    old, new = (survey(target, env=env) for target in targets)
    named = [kernel_stage.kernels(target, env=env) for target in targets] if kernels else None
    found = stage.compare(old, new, kernels=(named[0], named[1]) if named else None)
    return _shown(Compare, found)


def _shown(answer: type[T], found: Any) -> T:  # noqa: ANN401 - a stage's value, field for field
    """What a stage found as the answer that has the same fields, and a schema."""
    return answer(**{field.name: getattr(found, field.name) for field in fields(found)})


def plan(  # noqa: PLR0913 - one keyword for each wish
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    cuda: Sequence[str] = (),
    future: bool = False,
    native: bool = False,
    specific: bool = False,
    family: bool = False,
    ptx: bool = True,
    like: str | Path | None = None,
    cmake: str | None = None,
) -> Plan:
    """The smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too."""
    from cuwheel.errors import CuwheelError, UsageError
    from cuwheel.plan import planner, settings
    from cuwheel.report.plan import Plan

    errors: list[CuwheelError] = []
    wishes = settings.Wishes(future=future, native=native, specific=specific, family=family, ptx=ptx)
    rows = settings.find_toolkits(cuda, errors)
    version = settings.cmake_version(cmake, errors)
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    if not found and not errors:
        errors.append(UsageError("there is no machine to plan for", hint="cuwheel plan --for h100,l40"))
    conflicts = tuple(settings.conflicts(wishes))
    made = planner.make(found, rows, settings.compatible(wishes), cmake=version)
    if errors or conflicts:
        settings.refuse(errors, [*conflicts, *planner.contradictions(made.unserved)])
    jobs = _with_sizes(made.jobs, like) if like else made.jobs
    return Plan(jobs=jobs, unserved=made.unserved)


def _with_sizes(jobs: tuple[Job, ...], like: str | Path) -> tuple[Job, ...]:
    from dataclasses import replace

    from cuwheel.inspection.survey import survey
    from cuwheel.plan import sizes

    found = survey(_on_disk(like, None))
    return tuple(replace(job, size=sizes.predict(found, job.cuda, [*job.archs, *job.ptx])) for job in jobs)


def read_list(
    text: str,
    *machines: str | Path | Machine,
    refine: Refinement | None = None,
    spelling: str | None = None,
    cuda: Sequence[str] = (),
) -> Plan:
    """What an architecture list means that somebody else wrote, what it covers, and how it serves machines."""
    from cuwheel.errors import CuwheelError, UsageError
    from cuwheel.plan import planner, reading, settings
    from cuwheel.report.plan import Plan

    errors: list[CuwheelError] = []
    rows = settings.find_toolkits(cuda, errors)
    if len(rows) > 1:
        errors.append(UsageError("a list is read for one CUDA version at a time"))
    found = settings.find_machines(machines, lambda: planner.every_gpu(rows), errors, refine)
    settings.refuse(errors, ())
    toolkit = rows[0] if rows else None
    return Plan(jobs=(), unserved=(), reading=reading.explain(text, found, spelling=spelling, toolkit=toolkit))


def check(
    *targets: str | Path,
    on: Sequence[str | Path | Machine] = (),
    refine: Refinement | None = None,
    env: Path | None = None,
    platform: str | None = None,
) -> Check:
    """Whether wheels, libraries or installed distributions run on machines, how, and why not.

    `on`: GPU names, capabilities, machine profiles, fleet files or `Machine` values; without one, this machine.
    """
    from cuwheel.compat import matrix
    from cuwheel.inspection.survey import survey
    from cuwheel.machine import named, probe
    from cuwheel.report.check import Check, targets_of

    machines = named.machines(on, refine) if on else named.here(probe.probe(env), refine)
    found = [survey(_on_disk(target, platform), env=env, detail="containers") for target in targets]
    return Check(
        targets=targets_of(found),
        machines=machines,
        verdicts=tuple(matrix.judge(each, machine) for each in found for machine in machines),
    )


def slim(  # noqa: PLR0913 - the options of the verb, all by keyword
    *targets: str | Path,
    machines: Sequence[str | Path | Machine] = (),
    env: Path | None = None,
    output: Path | None = None,
    future: bool = False,
    cuda: str | None = None,
    recompress: bool = False,
    drop_relocatable: bool = False,
    strip_debug: bool = False,
    force: bool = False,
    version: str | None = None,
    level: int | None = None,
    platform: str | None = None,
    dry_run: bool = False,
    commit: bool = False,
) -> Slim:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load.

    `machines`: as for `check`; also `this`, and `all` to keep every architecture.
    """
    from cuwheel.report.slim import answer_of
    from cuwheel.rewrite import slim as stage
    from cuwheel.rewrite import wanted
    from cuwheel.rewrite.values import SlimOptions

    changes_all = recompress or drop_relocatable or strip_debug or cuda is not None
    options = SlimOptions(
        targets=wanted.machines(machines, env, changes_all=changes_all),
        future=future,
        recompress=recompress,
        drop_relocatable=drop_relocatable,
        strip_debug=strip_debug,
        force=force,
    )
    job = stage.SlimJob(
        targets=targets if env else tuple(_on_disk(target, platform) for target in targets),
        options=options,
        env=env,
        output=output,
        cuda=wanted.cuda(cuda) if cuda else None,
        version=version,
        level=level,
        dry_run=dry_run,
        commit=commit,
    )
    return answer_of(stage.slim(job), job)


def slim_undo(root: Path) -> Slim:
    """Every original of the environment or folder back in its place."""
    from cuwheel.report.slim import settled
    from cuwheel.rewrite import slim as stage

    return settled(stage.take_back(root), root, "undo")


def slim_commit(root: Path) -> Slim:
    """Give up the originals of the environment or folder, and so free their space."""
    from cuwheel.report.slim import settled
    from cuwheel.rewrite import slim as stage

    return settled(stage.settle(root), root, "commit")


def toolchain(  # noqa: PLR0913 - the options of the verb, all by keyword
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    offline: bool = False,
    upgrade: bool = False,
    source: str | None = None,
    locked: Path | None = None,
    lock: Path | None = None,
    host_compiler: str | None = None,
    redist_url: str | None = None,
    apt_sources: str | None = None,
    image: str | None = None,
    dry_run: bool = False,
) -> ToolchainAnswer:
    """A CUDA toolkit and a host compiler that it takes, installed into the cache if they are not there yet."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import lock as lock_
    from cuwheel.toolchain import notes, provide, store
    from cuwheel.toolchain.values import Recipe

    wish = provide.Wish(
        version=version,
        components=tuple(components),
        providers=tuple(providers),
        cache=cache,
        offline=offline,
        upgrade=upgrade,
        source=source,
        locked=locked,
        host_compiler=host_compiler,
        redist_url=redist_url,
        apt_sources=apt_sources,
        image=image,
    )
    where = str(store.open_store(cache).folder)
    if dry_run:
        decision = provide.decide(wish)
        chosen = decision.chosen
        return Toolchain(
            action="install",
            cache=where,
            toolkits=() if isinstance(chosen, Recipe) else (chosen,),
            recipe=chosen if isinstance(chosen, Recipe) else None,
            trail=decision.trail,
        )
    made = provide.provide(wish)
    if lock:
        lock_.update(lock, lock_.locked(made.toolkit))
    return Toolchain(
        action="install",
        cache=where,
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        lock=str(lock) if lock else None,
        trail=made.trail,
        findings=notes.examine(made),
    )


def toolchains(*, cache: Path | None = None) -> ToolchainAnswer:
    """The toolkits that are installed."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import store

    there = store.open_store(cache)
    return Toolchain(action="list", cache=str(there.folder), toolkits=there.all())


def toolchain_env(
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    host_compiler: str | None = None,
) -> ToolchainAnswer:
    """The variables that lead build systems to an installed toolkit, as lines for a shell to eval."""
    from cuwheel.errors import UsageError
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import provide, settings, store

    made = provide.find(
        provide.Wish(
            version=version,
            components=tuple(components),
            providers=tuple(providers),
            cache=cache,
            host_compiler=host_compiler,
        )
    )
    if made.prefix:
        raise UsageError(f"this CUDA {version} is in a container", hint="run inside: " + " ".join(made.prefix))
    return Toolchain(
        action="env",
        cache=str(store.open_store(cache).folder),
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        lines=settings.lines(made.settings),
    )


def toolchain_verify(
    version: str,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    host_compiler: str | None = None,
) -> ToolchainAnswer:
    """Whether an installed toolkit compiles and links for every architecture that it claims."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import notes, provide, store, verify

    made = provide.find(
        provide.Wish(
            version=version,
            components=tuple(components),
            providers=tuple(providers),
            cache=cache,
            host_compiler=host_compiler,
        )
    )
    return Toolchain(
        action="verify",
        cache=str(store.open_store(cache).folder),
        toolkits=(made.toolkit,),
        host_compiler=made.host_compiler,
        settings=made.settings,
        verification=verify.verify(made),
        findings=notes.examine(made),
    )


def toolchain_fetch(  # noqa: PLR0913 - the options of the verb, all by keyword
    version: str,
    *,
    to: Path,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    cache: Path | None = None,
    offline: bool = False,
    upgrade: bool = False,
    locked: Path | None = None,
    host_compiler: str | None = None,  # noqa: ARG001 - the same wishes as for installing
    redist_url: str | None = None,
    apt_sources: str | None = None,
    image: str | None = None,
    dry_run: bool = False,
) -> ToolchainAnswer:
    """The archives of a toolkit in a folder, with their lock, for `toolchain(version, source=folder)` elsewhere."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import carry, lock, provide, store

    wish = provide.Wish(
        version=version,
        components=tuple(components),
        providers=tuple(providers),
        cache=cache,
        offline=offline,
        upgrade=upgrade,
        locked=locked,
        redist_url=redist_url,
        apt_sources=apt_sources,
        image=image,
    )
    recipe, files = carry.fetch(wish, to, dry_run=dry_run)
    return Toolchain(
        action="fetch",
        cache=str(store.open_store(cache).folder),
        recipe=recipe,
        fetched=tuple(path.name for path in files),
        lock=str(to / lock.NAME),
    )


def toolchain_remove(
    version: str | None,
    *,
    components: Sequence[str] = (),
    providers: Sequence[str] = (),
    downloads: bool = False,
    cache: Path | None = None,
) -> ToolchainAnswer:
    """Remove installed toolkits: those of a version, or all."""
    from cuwheel.report.toolchain import Toolchain
    from cuwheel.toolchain import provide, store

    there = store.open_store(cache)
    wish = provide.Wish(version=version or "", components=tuple(components), providers=tuple(providers), cache=cache)
    doomed = provide.installed_like(wish) if version else there.all()
    for each in doomed:
        there.remove(each)
    freed = sum(each.size for each in doomed) + (there.remove_downloads() if downloads else 0)
    return Toolchain(action="remove", cache=str(there.folder), toolkits=doomed, freed=freed)


def _on_disk(target: str | Path, platform: str | None) -> str | Path:
    """`name==version` as the wheel downloaded for it; everything else as it is."""
    if not isinstance(target, str) or "==" not in target or Path(target).exists():
        return target
    from cuwheel.inspection import index

    return index.wheel_of(target, platform=platform) if index.is_pinned(target) else target
