"""The verbs that only look: at machines, at binaries, at what runs where, at a log. Nothing is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from cuwheel.device_code.target import downloaded_if_pinned, survey_target
from cuwheel.support.request_fields import environment_folder

if TYPE_CHECKING:
    from cuwheel.device_code.compare import Compare
    from cuwheel.device_code.kernels import Kernels
    from cuwheel.diagnosis.answer import Explain
    from cuwheel.machine.fleet import Machine, Machines, Refinement
    from cuwheel.report.gpus import Gpus
    from cuwheel.report.inspect import Inspect
    from cuwheel.report.toolkits import Toolkits
    from cuwheel.verdicts.examination import Doctor
    from cuwheel.verdicts.planning.plan import Plan
    from cuwheel.verdicts.verdict import Check
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.verdicts.device import Device


def doctor(*, on: Machines = (), env: Path | None = None, needs: Sequence[str] = ()) -> Doctor:
    """Examine this machine and what is installed on it, or what a profile describes, and say what is wrong.

    `on`: a machine profile, as a file or a value; none, and `this`, for this machine.
    """
    from cuwheel.machine import fleet
    from cuwheel.verdicts import examination, prerequisites

    wanted = prerequisites.parse_needs(needs)
    saved = fleet.whole_machine(on)
    found = examination.examine_profile(saved) if saved else examination.examine_this_machine(environment_folder(env))
    return replace(found, needs=prerequisites.examine(wanted, found.machine))


def gpus(*names: str) -> Gpus:
    """List the GPUs that names, parts of names or capabilities mean; all of them without one."""
    from cuwheel.report import gpus as report
    from cuwheel_core.facts import gpus as table

    return report.answer_of([gpu for name in names for gpu in table.look_up(name)] if names else table.all_gpus())


def toolkits(*wanted: str, compiles: str | None = None) -> Toolkits:
    """List what is known of CUDA versions: those asked for, or all; with a target only those that compile for it."""
    from cuwheel.report import toolkits as report
    from cuwheel_core.facts import toolkits as table
    from cuwheel_core.verdicts import choice

    found = [table.find_release(version) for version in wanted] if wanted else table.all_releases()
    return report.answer_of(choice.releases_compiling(found, compiles) if compiles else found)


def inspect(
    target: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    entries: bool = False,
    whole: bool = False,
    coverage: bool = False,
    on: Machines = (),
) -> Inspect:
    """Read the device code in a wheel or its facts file, a library, folder, installed package or `name==version`.

    `coverage`: also which kernels have code for which GPU: of the machines `on` which that is asked, or of each
    capability that some of the code was made for.
    """
    from cuwheel.report import inspect as report

    env = environment_folder(env)
    place = downloaded_if_pinned(target, platform)
    found = survey_target(
        place,
        env=env,
        detail="entries" if entries else "containers",
        search="whole" if whole else "data",
        python=False,  # nothing that is shown depends on it, and PyTorch's takes as long as its libraries
    )
    answer = report.answer_of(found, entries=entries)
    return _with_coverage(answer, place, on, env) if coverage else answer


def _with_coverage(answer: Inspect, place: str | Path, on: Machines, env: Path | None) -> Inspect:
    from cuwheel.device_code import coverage as stage
    from cuwheel.errors import UsageError
    from cuwheel.machine import fleet

    if str(place).endswith(".cuwheel.json"):
        raise UsageError(f"{place} has the facts of a wheel, not its kernels", hint="ask about the wheel itself")
    devices: Mapping[str, Device] = stage.devices_of(answer.libraries)
    if fleet.machine_words(on):
        machines = fleet.machines_asked_for(on, None, env=env)
        if blind := [each.name for each in machines if each.capability is None]:
            raise UsageError(f"{blind[0]} has no GPU that cuwheel can see", hint="name one: --on h100")
        devices = {each.name: each for each in machines}
    findings: list[Finding] = []
    matrix = stage.kernel_matrix(place, devices, findings, env=env)
    new = (each for each in findings if each not in answer.findings)
    return replace(answer, kernel_matrix=matrix, findings=(*answer.findings, *new))


def kernels(
    target: str | Path, pattern: str | None = None, *, env: Path | None = None, platform: str | None = None
) -> Kernels:
    """List the kernels in each cubin; with a pattern, where those that match it are and where they are missing."""
    from cuwheel.device_code import kernels as stage

    return stage.kernels(downloaded_if_pinned(target, platform), pattern, env=environment_folder(env))


def compare(
    before: str | Path,
    after: str | Path,
    *,
    env: Path | None = None,
    platform: str | None = None,
    kernels: bool = True,
) -> Compare:
    """Compare two targets: what was gained and lost, and what an architecture, or a change, costs in bytes."""
    from cuwheel.device_code import compare as stage
    from cuwheel.device_code import kernels as kernel_stage
    from cuwheel.device_code.survey import survey

    env = environment_folder(env)
    targets = [downloaded_if_pinned(target, platform) for target in (before, after)]
    old, new = (survey(target, env=env) for target in targets)
    named = [kernel_stage.kernels(target, env=env) for target in targets] if kernels else None
    return stage.compare(old, new, kernels=(named[0], named[1]) if named else None)


def check(
    *targets: str | Path,
    on: Machines = (),
    refine: Refinement | None = None,
    env: Path | None = None,
    platform: str | None = None,
    cluster: str | None = None,
    max_size: int | None = None,
    archs: Sequence[str] = (),
) -> Check:
    """Say whether wheels (or their facts files), libraries or distributions run on machines, how, and why not.

    `on`: GPU names, capabilities, machine profiles, fleet files or `Machine` values, in a list or one text with
    commas; without one, this machine.
    `env`: the Python environment that the packages are in, or come into: its torch and variables are the machines'.
    `cluster`: whose workers read the files. `max_size`: each has at most so many bytes. `archs`: each is for exactly
    these architectures (`sm_90`, `compute_90`).
    """
    from cuwheel.machine import fleet
    from cuwheel.verdicts.judge import judge_all
    from cuwheel.verdicts.verdict import Check, targets_of
    from cuwheel_core.facts.arch import Arch

    env = environment_folder(env)
    machines = fleet.machines_asked_for(on, refine, env=env)
    if cluster:
        from cuwheel.proving import on_cluster

        surveys = on_cluster.survey_on_cluster(targets, cluster, platform=platform, env=env)
    else:
        places = [_downloaded_for(machines, target, platform) for target in targets]
        surveys = [survey_target(place, env=env, detail="containers") for place in places]
    torch = None  # where nothing is installed, a table has its symbols
    if env or not on:
        from cuwheel.machine import python_environment

        torch = python_environment.torch_exports(env, python_environment.symbols_of_torch(surveys))
    about_files: list[tuple[Finding, ...]] = []
    if max_size or archs:
        from cuwheel.building import gate

        wanted = [Arch.parse(each) for each in archs]
        about_files = [gate.examine_finished(each, most=max_size, archs=wanted) for each in surveys]
    return Check(
        targets=targets_of(surveys, list(map(str, targets)), about_files),
        machines=machines,
        verdicts=tuple(verdict for each in surveys for verdict in judge_all(each, machines, torch)),
    )


def _downloaded_for(machines: Sequence[Machine], target: str | Path, platform: str | None) -> str | Path:
    """The wheel that an installer on these machines would take; where there is none, that of here, which says why."""
    from cuwheel.verdicts import wheel_tags
    from cuwheel_core.errors import UnknownNameError

    if not platform and (place := wheel_tags.place_to_ask_for(machines)) != (None, None):
        with contextlib.suppress(UnknownNameError):
            return downloaded_if_pinned(target, *place)
    return downloaded_if_pinned(target, platform)


def plan(
    *machines: Machines,
    refine: Refinement | None = None,
    cuda: Sequence[str] = (),
    future: bool = False,
    native: bool = False,
    specific: bool = False,
    family: bool = False,
    ptx: bool = True,
    cmake: str | None = None,
) -> Plan:
    """Find the smallest architecture list for these machines, and without `cuda` the fewest CUDA versions too."""
    from cuwheel.machine import fleet
    from cuwheel.verdicts.planning import plans
    from cuwheel.verdicts.planning.plan import PlanOptions

    options = PlanOptions(future=future, native=native, specific=specific, family=family, ptx=ptx)
    named = [word for each in machines for word in fleet.machine_words(each)]
    return plans.plan_for(named, cuda, options, refine=refine, cmake=cmake)


def plan_sizes(planned: Plan, like: str | Path) -> Plan:
    """Make a plan with the bytes that each job will need, predicted from an earlier wheel of the project."""
    from cuwheel.verdicts.planning import plans

    return plans.with_sizes(planned, survey_target(downloaded_if_pinned(like)))


def read_list(
    text: str,
    *,
    on: Machines = (),
    refine: Refinement | None = None,
    spelling: str | None = None,
    cuda: Sequence[str] = (),
) -> Plan:
    """Read an architecture list that somebody else wrote: what it means and covers, and how it serves machines."""
    from cuwheel.verdicts.planning import plans

    return plans.explain_list(text, on, cuda, refine=refine, spelling=spelling)


def explain(
    log: str | Path | BinaryIO,
    *,
    on: Machines = (),
    wheel: str | Path | None = None,
    building: bool = False,
) -> Explain:
    """Find the causes of a failure, best first, in the log that it left (a path, or a stream of bytes).

    A record's folder, or `RECORD:N`, is a log too: of the first call that failed, or of that one. `on`: the machine
    it happened on, as a GPU's name or capability, a machine profile, or both; `this`: it is this one. With a `wheel`
    at hand, `check` says whether that one would run there. `building`: it failed inside of `cuwheel build`, whose own
    options then help.
    """
    from cuwheel.diagnosis import inquiry
    from cuwheel.machine import fleet

    machine, gpu = fleet.one_machine(on)
    place = downloaded_if_pinned(wheel) if wheel else None
    return inquiry.inquire(log, machine, wheel=place, gpu=gpu, building=building)


def causes() -> Explain:
    """List all causes that are known."""
    from cuwheel.diagnosis import answer

    return answer.all_known()
