"""A whole machine: what it is, what is wrong with it, and with the CUDA packages that are installed on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from cuwheel.device_code.source import cut_to_workload
from cuwheel.device_code.survey import survey
from cuwheel.machine import fleet, probe, python_environment, world
from cuwheel.machine.profile import MachineProfile
from cuwheel.support import log, process
from cuwheel.support.answer import Answer
from cuwheel.verdicts import machine_rules
from cuwheel.verdicts.judge import judge_all
from cuwheel.verdicts.prerequisites import NeedResult
from cuwheel.wheel import slim_note
from cuwheel_core.device_code import elf, pe
from cuwheel_core.device_code.sections import FATBIN_SECTIONS
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import FileBuffer
from cuwheel_core.support.finding import Finding, gravest_first
from cuwheel_core.support.wording import a_few, first_few
from cuwheel_core.wheel.metadata import distributions, installed_files

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey
    from cuwheel.machine.fleet import Machine


_FEW = 4
# What `doctor` says of the machine itself already, once and not for each package.
_SAME_IN_MACHINE_RULES = {
    "driver-below-cuda-floor": "driver-too-old",
    "no-library-to-load": "bitsandbytes-library-missing",
}
_NOTHING_NEW = frozenset({"no-device-code", "gpu-not-known", slim_note.CUT_RULE})  # the mark is told once for all


class Doctor(Answer, frozen=True, kw_only=True):
    """A machine, everything that the rules find wrong with it, and which needs it meets."""

    schema: Literal["cuwheel.doctor/1"] = "cuwheel.doctor/1"
    machine: MachineProfile
    findings: tuple[Finding, ...]
    needs: tuple[NeedResult, ...] = ()

    @property
    def succeeded(self) -> bool:
        """No error was found, and every need is met. Warnings and notes do not stop anybody's work."""
        return all(need.met for need in self.needs) and all(each.severity != "error" for each in self.findings)


def examine_profile(machine: MachineProfile) -> Doctor:
    """Another machine, by its profile alone: its files cannot be looked at."""
    return Doctor(machine=machine, findings=machine_rules.examine(machine))


def examine_this_machine(env: Path | None) -> Doctor:
    """This machine, and the packages of the Python environment `env`."""
    with ThreadPoolExecutor(1) as beside:  # the probes mostly wait for programs
        packages = beside.submit(installed_with_device_code, env)
        machine = probe.probe(env)
    found = machine_rules.examine(machine)
    of_packages = examine_installed(machine, packages.result(), found)
    return Doctor(machine=machine, findings=gravest_first((*found, *cut_packages(env), *of_packages)))


# The rules of `check` over everything that is installed: what `doctor` says of an environment's CUDA packages.


def installed_with_device_code(env: Path | None) -> list[WithDeviceCode]:
    """The distributions of an environment that hold device code, the largest first: it takes the longest."""
    _, folders = python_environment.locate(world.World.here(), env)
    return sorted(distributions_with_device_code(folders), key=lambda each: -each.size)


def cut_packages(env: Path | None) -> tuple[Finding, ...]:
    """Whether packages of an environment were cut to a workload: that is so with a GPU or without."""
    _, folders = python_environment.locate(world.World.here(), env)
    return cut_to_workload(each.info for folder in folders for each in distributions(folder))


def examine_installed(
    machine: MachineProfile, packages: Sequence[WithDeviceCode], known: Sequence[Finding]
) -> tuple[Finding, ...]:
    """What the packages give rise to that `known` does not hold already. Without a GPU there is nothing to ask."""
    machines = [each for each in fleet.machines_here(machine) if each.capability] if packages else []
    if not machines:
        return ()
    results = process.map_in_copies(
        partial(_surveyed_and_judged, machines=machines), packages, partial(log.listen, level="error")
    )
    return merge_findings_of_packages(sorted(results, key=lambda each: each[0]), known)


def _surveyed_and_judged(installed: WithDeviceCode, machines: Sequence[Machine]) -> tuple[str, tuple[Finding, ...]]:
    # Nearly everything that is installed runs, and that shows without looking for code in every corner.
    name, found = judge_distribution(
        survey(installed.name, env=installed.folder, detail="containers", search="nowhere", python=False), machines
    )
    if not any(_matters(each) for each in found):
        return name, ()
    return judge_distribution(survey(installed.name, env=installed.folder, detail="containers"), machines)


def judge_distribution(found: Survey, machines: Sequence[Machine]) -> tuple[str, tuple[Finding, ...]]:
    """One distribution: what it is called, and what the rules find in it."""
    name = f"{found.distribution.name} {found.distribution.version}" if found.distribution else found.target
    verdicts = judge_all(found, machines)
    return name, tuple(finding for verdict in verdicts for finding in verdict.findings)


def merge_findings_of_packages(
    found: Iterable[tuple[str, Sequence[Finding]]], known: Iterable[Finding]
) -> tuple[Finding, ...]:
    already = {finding.rule for finding in known}
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for name, findings in found:
        for finding in findings:
            told = _SAME_IN_MACHINE_RULES.get(finding.rule) in already
            if _matters(finding) and not told:
                alike.setdefault((finding.rule, finding.message), []).append((name, finding))
    return gravest_first(map(_merge_alike, alike.values()))


def _matters(finding: Finding) -> bool:
    return finding.severity != "note" and finding.rule not in _NOTHING_NEW


def _merge_alike(found: Sequence[tuple[str, Finding]]) -> Finding:
    names = list(dict.fromkeys(name for name, _ in found))
    first = gravest_first(finding for _, finding in found)[0]
    evidence = list(dict.fromkeys(item for _, finding in found for item in finding.evidence))
    return replace(
        first,
        about=a_few(names, _FEW),
        evidence=first_few(evidence, _FEW),
    )


# Which installed distributions hold device code: asked of the section tables alone, so that it costs little.

_BINARIES = (".so", ".pyd", ".dll")


class WithDeviceCode(NamedTuple):
    """A distribution that holds device code. `size`: the bytes of its libraries."""

    name: str
    folder: Path
    size: int


def distributions_with_device_code(site_packages: Iterable[Path]) -> Iterator[WithDeviceCode]:
    """The first of a name hides later ones, as it does for an import."""
    seen: set[str] = set()
    for folder in site_packages:
        for name, _, info in distributions(folder):
            if name not in seen:
                binaries = list(_binaries(info))
                if any(map(has_device_code, binaries)):
                    yield WithDeviceCode(name, folder, sum(each.stat().st_size for each in binaries if each.is_file()))
            seen.add(name)


def _binaries(info: Path) -> Iterator[Path]:
    for path in installed_files(info):
        name = path.rpartition("/")[2]
        if name.endswith(_BINARIES) or ".so." in name:
            yield info.parent / path


def has_device_code(path: Path) -> bool:
    """Whether a library has a section for it. False for what cannot be read."""
    try:
        with closing(FileBuffer(path)) as buffer:
            start = buffer.read(0, min(buffer.size, 4))
            sections = elf.read_elf(buffer).sections() if start == elf.MAGIC else pe.read_pe(buffer).sections
    except CuwheelError:
        return False
    return any(section.name in FATBIN_SECTIONS for section in sections)
