"""What is true of machines and of CUDA: the verbs that look things up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.facts.rows.toolkits import Release
    from cuwheel.finding import Finding
    from cuwheel.inspection.presence import WithDeviceCode
    from cuwheel.machine.fleet import Machine
    from cuwheel.machine.profile import MachineProfile
    from cuwheel.report.doctor import Doctor
    from cuwheel.report.gpus import Gpus
    from cuwheel.report.toolkits import Toolkits


def doctor(*, on: MachineProfile | Path | None = None, env: Path | None = None, needs: Sequence[str] = ()) -> Doctor:
    """What is wrong with this machine and what is installed on it, or with the one a profile describes."""
    from concurrent.futures import ThreadPoolExecutor

    from cuwheel.compat import machine_rules
    from cuwheel.compat import prerequisites as needs_
    from cuwheel.finding import SEVERITIES
    from cuwheel.machine import probe, profile
    from cuwheel.report.doctor import Doctor

    wanted = needs_.parse(needs)
    there: Sequence[WithDeviceCode] = ()  # a saved machine's files are elsewhere
    if on is None:
        with ThreadPoolExecutor(1) as beside:  # the probes mostly wait for programs
            looking = beside.submit(_with_device_code, env)
            machine = probe.probe(env)
            there = looking.result()
    else:
        machine = profile.load(on) if isinstance(on, Path) else on
    found = machine_rules.examine(machine)
    found = (*found, *_judged_here(machine, there, found))
    return Doctor(
        machine=machine,
        findings=tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))),
        needs=needs_.examine(wanted, machine),
    )


def _with_device_code(env: Path | None) -> list[WithDeviceCode]:
    """The largest first: it takes the longest."""
    from cuwheel.inspection import presence
    from cuwheel.machine import python_environment, world

    _, folders = python_environment.locate(world.World.here(), env)
    return sorted(presence.distributions_with_device_code(folders), key=lambda each: -each.size)


def _judged_here(
    machine: MachineProfile, there: Sequence[WithDeviceCode], said: Sequence[Finding]
) -> tuple[Finding, ...]:
    """What the rules of `check` find in the environment's CUDA packages; without a GPU there is nothing to ask."""
    from functools import partial

    from cuwheel import log, parallel
    from cuwheel.compat import installed as stage
    from cuwheel.machine import named

    machines = [each for each in named.here(machine) if each.capability] if there else []
    if not machines:
        return ()
    judged = parallel.each(partial(_judged, machines=machines), there, partial(log.listen, level="error"))
    return stage.merged(sorted(judged, key=lambda each: each[0]), said)


def _judged(installed: WithDeviceCode, machines: Sequence[Machine]) -> tuple[str, tuple[Finding, ...]]:
    from cuwheel.compat import installed as stage
    from cuwheel.inspection.survey import survey

    # Nearly everything that is installed runs, and that shows without looking for code in every corner.
    name, found = stage.judged(
        survey(installed.name, env=installed.folder, detail="containers", search="nowhere"), machines
    )
    if not any(stage.matters(each) for each in found):
        return name, ()
    return stage.judged(survey(installed.name, env=installed.folder, detail="containers"), machines)


def gpus(*names: str) -> Gpus:
    """The GPUs that names, parts of names or capabilities mean; all of them without one."""
    from cuwheel.compat.targets import releases_for
    from cuwheel.facts import architectures, gpu_drivers
    from cuwheel.facts import gpus as table
    from cuwheel.facts.arch import Arch
    from cuwheel.facts.tables import tables
    from cuwheel.facts.toolkits import all_releases
    from cuwheel.report.gpus import GpuRow, Gpus

    titles = {key: source.title for key, source in tables().gpus.sources.items()}

    def row(gpu: table.Gpu) -> GpuRow:
        fitting = releases_for(gpu.capability)
        drivers = None if gpu.tegra else gpu_drivers.support(gpu.capability)
        return GpuRow(
            name=gpu.name,
            capability=str(gpu.capability),
            arch=str(Arch(gpu.capability)),
            generation=architectures.find_architecture(gpu.capability).generation,
            product=gpu.product,
            tegra=gpu.tegra is not None,
            cuda_first=fitting[0].version if fitting else None,
            cuda_first_known=not fitting or fitting[0] != all_releases()[0],
            cuda_last=fitting[-1].version if fitting else None,
            driver_first=drivers.first if drivers else None,
            driver_last=drivers.last if drivers else None,
            sources=tuple(titles[each] for each in gpu.source),
            note=gpu.note,
        )

    found = [gpu for name in names for gpu in table.look_up(name)] if names else table.all_gpus()
    return Gpus(gpus=tuple(row(gpu) for gpu in dict.fromkeys(found)))


def toolkits(*wanted: str, compiles: str | None = None) -> Toolkits:
    """What the tables know of CUDA versions: those asked for, or all; only those that compile for a target."""
    from cuwheel.compat.targets import releases_for
    from cuwheel.facts import gpus as gpu_table
    from cuwheel.facts import toolkits as table
    from cuwheel.facts.arch import Arch, looks_like_arch
    from cuwheel.facts.rows.toolkits import HostCompilers, Toolkit
    from cuwheel.facts.tables import tables
    from cuwheel.report.toolkits import ToolkitRow, Toolkits

    titles = {key: source.title for key, source in tables().toolkits.sources.items()}

    def row(toolkit: Release) -> ToolkitRow:
        limits = toolkit.host_compilers if isinstance(toolkit, Toolkit) else HostCompilers()
        return ToolkitRow(
            version=toolkit.version,
            ptx_isa=toolkit.ptx_isa,
            driver_linux=toolkit.driver.linux,
            driver_windows=toolkit.driver.windows,
            driver_floor_linux=table.runtime_floor(toolkit.version, "linux"),
            driver_floor_windows=table.runtime_floor(toolkit.version, "windows"),
            gcc_max=limits.gcc_max,
            clang_max=limits.clang_max,
            msc_ver_min=limits.msc_ver_min,
            msc_ver_max=limits.msc_ver_max,
            architectures=toolkit.architectures,
            measured=isinstance(toolkit, Toolkit) and toolkit.measured,
            sources=tuple(titles[each] for each in toolkit.source),
            note=toolkit.note,
        )

    found = [table.find_release(version) for version in wanted] if wanted else table.all_releases()
    if compiles and looks_like_arch(compiles):
        found = [each for each in found if each.supports(Arch.parse(compiles))]
    elif compiles:
        able = releases_for(gpu_table.capability_of(compiles))
        found = [each for each in found if each in able]
    return Toolkits(toolkits=tuple(row(toolkit) for toolkit in dict.fromkeys(found)))
