"""What `install` takes for a requirement: what `find` puts first, or in its place a fallback, tried in order.

One of them is a release built from its source distribution for exactly the machines that need it: foreseen, then done.
"""

from __future__ import annotations

import os
import platform
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from cuwheel.building import pipeline
from cuwheel.building.request import BuildRequest
from cuwheel.delivery import best_candidate, candidates, judging
from cuwheel.delivery.best_candidate import MAY_BE_TAKEN, Found
from cuwheel.delivery.candidates import Candidate, IndexFile
from cuwheel.delivery.judging import Ruling
from cuwheel.device_code import wheel_facts
from cuwheel.diagnosis import failed_job
from cuwheel.errors import CuwheelError, UnavailableError, UnknownNameError, UsageError
from cuwheel.facts import packages, versions
from cuwheel.machine import fleet
from cuwheel.network import client, transfer
from cuwheel.network.remote import Budget
from cuwheel.support import codec, files, log
from cuwheel.support.finding import Finding
from cuwheel.wheel import metadata, requirements
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.metadata import WheelName, normalised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cuwheel.building.values import BuildResult, JobResult
    from cuwheel.delivery.request import FindRequest, InstallRequest
    from cuwheel.machine.fleet import Machine


# A release built from its source distribution.

_BUILT = "installed-builds"
_KNOWN = ("driver", "driver_cuda", "os", "cpu", "glibc", "torch_cuda", "jax_cuda", "l4t", "jit")


class PlannedBuild(Struct, frozen=True, kw_only=True):
    """What is built, for what, and with what. `requires`: as its metadata says before it is built."""

    name: str
    version: str
    source: str
    cuda: str
    archs: tuple[str, ...]
    python: str
    backend: str
    toolkit: str
    compiler: str
    torch: str | None
    requires: tuple[str, ...]


class _Work(Struct, frozen=True, kw_only=True):
    """`cuda`, `torch`: in place of what the project's own configuration says."""

    source: Path
    fleet: Path
    python: str
    cuda: tuple[str, ...] | None = None
    torch: str | None = None

    def request(self, output: Path | None = None) -> BuildRequest:
        """Without an `output`, a dry run. One plain wheel, whatever the project publishes."""
        settings: dict[str, object] = {"naming": "none", "merge": False, "variants": False}
        settings |= {} if self.cuda is None else {"cuda": list(self.cuda)}
        settings |= {"requires": [f"torch=={self.torch}"]} if self.torch else {}
        return BuildRequest(
            str(self.source),
            machines=[str(self.fleet)],
            python=[versions.minor(self.python)],
            settings=settings,
            output=output or self.fleet.parent / "unused",
            resume=True,
            dry_run=output is None,
        )


def foresee_build(candidate: Candidate, machines: Sequence[Machine], python: str) -> PlannedBuild:
    """Nothing but the source is fetched. Raises a CuwheelError that says why it cannot be built."""
    with _prepared_work(candidate, machines, python) as work:
        return _foreseen_build(candidate, *_decided_build(work, machines))


def build_from_source(candidate: Candidate, machines: Sequence[Machine], python: str) -> Path:
    """The wheel; one that an earlier run made of the same parts is taken again."""
    with _prepared_work(candidate, machines, python) as given:
        work, decided = _decided_build(given, machines)
        output = files.cache_folder() / _BUILT / f"{normalised(decided.order.project.name)}-{candidate.version}"
        job = pipeline.build(work.request(output), dict(os.environ)).jobs[0]
        if job.wheel is None:
            raise UnavailableError(_build_failure(job, candidate.file))
        return job.wheel.path


@contextmanager
def _prepared_work(candidate: Candidate, machines: Sequence[Machine], python: str) -> Iterator[_Work]:
    """The source, and the machines as a fleet file: a build plans for their drivers and their torch too."""
    _must_be_like_here(machines)
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as scratch:
        source = candidate.path or Path(scratch, candidate.file)
        if candidate.path is None:
            listing = candidate.listing
            transfer.download(listing.url, source, sha256=listing.sha256, size=listing.size, label=listing.file)
        fleet = Path(scratch, "machines.toml")
        fleet.write_text("".join(map(fleet_row, machines)), encoding="utf-8")
        yield _Work(source=source, fleet=fleet, python=python)


def _must_be_like_here(machines: Sequence[Machine]) -> None:
    if not all(each.capability for each in machines):
        raise UnavailableError("the GPU to build for is not known", hint="name one: --on h100")
    here = {"os": platform.system().lower(), "cpu": fleet.cpu_here()}
    for machine in machines:
        for name, own in here.items():
            if getattr(machine, name) not in (None, own):
                raise UnavailableError(f"it cannot be built on {own} for {getattr(machine, name)}")


def fleet_row(machine: Machine) -> str:
    """Of a fleet file, with all that a plan asks of a machine."""
    known = {name: value for name in _KNOWN if (value := getattr(machine, name)) is not None}
    row = {"name": machine.name, "capability": str(machine.capability), **known}
    lines = (f"{name} = {codec.encode(value).decode()}\n" for name, value in row.items())
    return f"[[machine]]\n{''.join(lines)}"


def _decided_build(work: _Work, machines: Sequence[Machine]) -> tuple[_Work, BuildResult]:
    """By the project's own list of CUDA versions, if one of them serves these machines; else by whichever does."""
    try:
        made = pipeline.build(work.request(), dict(os.environ))
    except UsageError:
        work = replace(work, cuda=())
        made = pipeline.build(work.request(), dict(os.environ))
    serving = [each.plan.cuda for each in made.jobs if not each.problem]
    if not serving and made.jobs and made.jobs[0].problem:
        raise UnavailableError(made.jobs[0].problem.what, hint=made.jobs[0].problem.hint)
    work = replace(work, cuda=(max(serving, key=versions.key),), torch=_torch_for_build(made, machines))
    made = pipeline.build(work.request(), dict(os.environ))
    if made.unserved:
        reasons = "; ".join(why for each in made.unserved for why in each.why)
        raise UnavailableError(f"no single CUDA version serves all of these GPUs: {reasons}")
    return work, made


def _torch_for_build(decided: BuildResult, machines: Sequence[Machine]) -> str | None:
    wanted = (*decided.order.table.requires, *decided.order.project.requires)
    names = {normalised(each.name) for each in map(requirements.parse, wanted) if each}
    if decided.order.project.backend != "torch" and "torch" not in names:
        return None
    return next((each.torch.partition("+")[0] for each in machines if each.torch), None)


def _foreseen_build(candidate: Candidate, work: _Work, decided: BuildResult) -> PlannedBuild:
    job, project = decided.jobs[0], decided.order.project
    toolchain = job.job.toolchain if job.job else None
    compiler = toolchain.host_compiler if toolchain else None
    packed = metadata.from_texts(files.head(decided.order.tree.folder / "PKG-INFO"), "")
    return PlannedBuild(
        name=normalised(project.name),
        version=str(candidate.version),
        source=candidate.file,
        cuda=job.plan.cuda,
        archs=tuple(map(str, (*job.plan.archs, *job.plan.ptx))),
        python=job.python,
        backend=project.backend,
        toolkit=f"{toolchain.toolkit.release} ({toolchain.toolkit.provider})" if toolchain else "",
        compiler=f"{compiler.kind} {compiler.version}" if compiler else "",
        torch=work.torch,
        requires=packed.requires,
    )


def _build_failure(job: JobResult, source: str) -> str:
    found = failed_job.failure(job)
    what = found.what if found else job.reason or job.outcome
    cause = f" ({found.causes[0].title})" if found and found.causes else ""
    return f"the build of {source} failed: {what}{cause}"


Fallback: TypeAlias = Literal["older version", "newer version", "source build", "cpu build"]
Way: TypeAlias = Literal["another version", "source build", "cpu build"]
_CPU_LABEL = "cpu"  # of a local version, as torch has it


class Passed(Struct, frozen=True, kw_only=True):
    """A fallback that was not taken, and why."""

    way: Way
    reason: str


class Choice(Struct, frozen=True, kw_only=True):
    """What is taken for one requirement: nothing where both `ruling` and `build` are None.

    `build`: what would be built, in a dry run. `fallback`: what it is instead of the newest release's wheel, and `why`.
    """

    name: str
    wanted: str
    found: Found
    ruling: Ruling | None = None
    build: PlannedBuild | None = None
    fallback: Fallback | None = None
    why: str = ""
    passed: tuple[Passed, ...] = ()

    @property
    def is_made(self) -> bool:
        return self.ruling is not None or self.build is not None


def choose(request: InstallRequest, wanted: str, prefix: Path | None, *, shallow: bool = False) -> Choice:
    """In the order of the fallbacks; each says why it was passed over. `shallow`: it may well have no device code."""
    asked = request.for_environment(prefix, wanted)
    found = best_candidate.find(asked, shallow=shallow)
    start = Choice(name=normalised(found.name), wanted=wanted, found=found)
    if made := _as_asked(start, request):
        return made
    passed: list[Passed] = []
    for way, look in _WAYS:
        answer = look(start, request, asked)
        if isinstance(answer, Choice):
            return replace(answer, why=answer.why or _why_not_newest(found.rulings), passed=tuple(passed))
        passed.append(Passed(way=way, reason=answer))
    return replace(start, found=replace(found, chosen=None), why=_why_not_newest(found.rulings), passed=tuple(passed))


def _as_asked(start: Choice, request: InstallRequest) -> Choice | None:
    """The best of what the requirement allows, unless it is the CPU's; an older release counts as a fallback."""
    rulings, newest = start.found.rulings, _newest(start.found.rulings)
    usable = (each for each in rulings if each.rank <= MAY_BE_TAKEN and not _is_for_cpu(each, start.found))
    first = next((each for each in usable if not request.no_older or _release(each) == newest), None)
    if first is None:
        return None
    taken = replace(start, found=replace(start.found, chosen=first), ruling=first)
    if newest is None or _release(first) == newest:
        return taken
    return replace(taken, fallback="older version", why=_why_not_newest(rulings))


def _another_version(start: Choice, request: InstallRequest, asked: FindRequest) -> Choice | str:
    """Beyond what the requirement allows."""
    if request.no_older and not request.any_version:
        return "switched off: --no-older"
    limits = candidates.parse_requirement(start.wanted)
    if not limits.specifier:
        return "no release runs"
    found = best_candidate.find(asked.of(limits.name))
    usable = [each for each in found.rulings if each.rank <= MAY_BE_TAKEN and not _is_for_cpu(each, found)]
    if not usable:
        return "no release runs, whatever its version"
    if not request.any_version:
        return f"{usable[0].candidate.version} runs, but it is not {limits.specifier}: --any-version takes it"
    newest = _newest(start.found.rulings)
    newer = newest is None or _release(usable[0]) > newest
    return replace(
        start,
        found=replace(found, chosen=usable[0]),
        ruling=usable[0],
        fallback="newer version" if newer else "older version",
    )


def _source_build(start: Choice, request: InstallRequest, _: FindRequest) -> Choice | str:
    if request.wheel_only:
        return "switched off: --wheel-only"
    sources = [
        each for each in start.found.rulings if each.candidate.wheel is None and each.candidate.listing.yanked is None
    ]
    newest = _newest(start.found.rulings)
    if request.no_older:
        sources = [each for each in sources if _release(each) == newest]
    if not sources:
        return "there is no source distribution"
    candidate = max(sources, key=_release).candidate
    machines = start.found.machines
    python = next((each.python for each in machines if each.python), None)
    if python is None:
        return "the version of Python is not known"
    try:
        plan = foresee_build(candidate, machines, python)
        log.info(
            "building %s for %s with CUDA %s (%s), Python %s",
            plan.source, ", ".join(plan.archs), plan.cuda, plan.compiler or plan.toolkit, plan.python,
        )  # fmt: skip
        planned = replace(start, build=plan, fallback="source build")
        if request.dry_run:
            return planned
        ruling = _judged_file(build_from_source(candidate, machines, python), start.found, request)
    except CuwheelError as error:
        return error.message
    if ruling.rank > MAY_BE_TAKEN:
        return f"what was built does not run: {'; '.join(ruling.reasons)}"
    found = replace(start.found, chosen=ruling, rulings=(ruling, *start.found.rulings))
    return replace(planned, found=found, ruling=ruling)


def _judged_file(wheel: Path, found: Found, request: InstallRequest) -> Ruling:
    """A wheel on this machine, as `find` judges those of an index."""
    name = WheelName.parse(wheel.name)
    listing = IndexFile(file=wheel.name, url=wheel.as_uri(), sha256=files.sha256(wheel), size=wheel.stat().st_size)
    version = Version(name.version.replace("_", "-")) if name else Version("0")
    candidate = Candidate(listing=listing, version=version, wheel=name, index=str(wheel.parent))
    bench = judging.Judge(found.machines, request.env, installed=True)
    with client.Session() as session:
        return bench.rule(Ruling(candidate=candidate), judging.read_wheel(candidate, session, Budget(request.budget)))


def disagreement(choice: Choice, wheel: Path, prefix: Path) -> Finding | None:
    """What the file itself says, where it is not what the index's facts said when it was chosen.

    Facts spare the download of every candidate. Whoever can change them can make any wheel the best one, so what is
    installed is read once more, before it is.
    """
    told = choice.ruling
    if told is None or told.origin == "wheel" or choice.fallback == "source build":
        return None
    with WheelFile(wheel) as opened:
        facts = wheel_facts.of_wheel(opened, sha256=told.candidate.listing.sha256)
    judging.keep_facts(told.candidate, facts)  # in place of what may be wrong there
    bench = judging.Judge(choice.found.machines, prefix, installed=True)
    read = bench.rule(Ruling(candidate=told.candidate), judging.Contents(wheel_facts.survey(facts), "wheel"))
    compared = ("outcome", "rank", "reasons", "requires", "device_code", "needs")
    if all(getattr(read, name) == getattr(told, name) for name in compared):
        return None
    seen = {each: "; ".join(getattr(read, each)) for each in ("reasons", "requires")}
    said = {each: "; ".join(getattr(told, each)) for each in ("reasons", "requires")}
    differing = [f"{each}: {said[each] or 'nothing'}; in the file: {seen[each] or 'nothing'}" for each in seen]
    return Finding(
        rule="facts-contradict-file",
        severity="error",
        message=f"{told.candidate.file} is {read.outcome} here, and its {told.origin} says {told.outcome}",
        evidence=(f"listed by {told.candidate.index}", *differing),
        fix="ask whoever publishes that index; cuwheel publish --check finds facts that are not those of the files",
    )


def _cpu_build(start: Choice, request: InstallRequest, asked: FindRequest) -> Choice | str:
    """A wheel without device code of the same package, or the package that its makers publish for the CPU."""
    if request.no_cpu:
        return "switched off: --no-cpu"
    usable = [each for each in start.found.rulings if each.rank <= MAY_BE_TAKEN and _is_for_cpu(each, start.found)]
    if usable:
        found = replace(start.found, chosen=usable[0])
        return replace(start, found=found, ruling=usable[0], fallback="cpu build")
    other = packages.cpu_distribution(start.name)
    if other is None:
        return "no wheel without device code was found, and no package for the CPU is known"
    limits = candidates.parse_requirement(start.wanted)
    try:
        found = best_candidate.find(asked.of(f"{other}{limits.specifier}"))
    except UnknownNameError as error:
        return error.message
    if found.chosen is None:
        return f"{other} does not run either"
    both = replace(found, rulings=(*found.rulings, *start.found.rulings))
    return replace(start, name=other, found=both, ruling=found.chosen, fallback="cpu build")


_WAYS: tuple[tuple[Way, Callable[[Choice, InstallRequest, FindRequest], Choice | str]], ...] = (
    ("another version", _another_version),
    ("source build", _source_build),
    ("cpu build", _cpu_build),
)


def _is_for_cpu(ruling: Ruling, found: Found) -> bool:
    """Without device code, of a package that has some: a GPU that is there would stay unused."""
    if not any(each.capability for each in found.machines) or ruling.device_code is not False:
        return False
    label = (ruling.candidate.version.local or "").split(".")[0]
    return label == _CPU_LABEL or any(each.device_code for each in found.rulings)


def _is_yanked(ruling: Ruling) -> bool:
    return ruling.candidate.listing.yanked is not None


def _release(ruling: Ruling) -> Version:
    return Version(ruling.candidate.version.public)


def _newest(rulings: Sequence[Ruling]) -> Version | None:
    return max((_release(each) for each in rulings if not _is_yanked(each)), default=None)


def _why_not_newest(rulings: Sequence[Ruling]) -> str:
    """Why the newest release is not taken: what speaks against the best of its files, one for GPUs if it has some."""
    newest = _newest(rulings)
    if newest is None:
        return "no file fits what was asked for"
    own = [each for each in rulings if _release(each) == newest and not _is_yanked(each)]
    wheels = [each for each in own if each.candidate.wheel] or own
    wheels.sort(key=lambda each: not each.device_code)
    return f"{newest}: {'; '.join(wheels[0].reasons[:2]) or wheels[0].outcome}"
