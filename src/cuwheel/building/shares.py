"""A job compiled in shares, one for each architecture, each kept by what went in, and grafted into one wheel.

Every share is configured with the job's whole list, built at the same place, and given its own architectures where nvcc
is called. So a list with one architecture more costs that architecture.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.building import jobs
from cuwheel.building.answer import Phase
from cuwheel.building.recording import reader
from cuwheel.building.recording.words import without_archs
from cuwheel.building.values import BuildPlan, Built, DecidedJob, Problem
from cuwheel.device_code.description import Description
from cuwheel.facts import spellings
from cuwheel.support import codec, files, log
from cuwheel.support.finding import finding
from cuwheel.version import __version__
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.facts import toolkits
from cuwheel_core.support import wording
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from cuwheel.building.environment import PackageSource
    from cuwheel.building.request import BuildRequest
    from cuwheel.verdicts.planning.plan import Job as PlanJob
    from cuwheel_core.facts.arch import Arch


_FOLDER, _NOTE = "shares", "share.json"


class Share(Struct, frozen=True, kw_only=True):
    """One architecture of a job: machine code, and PTX of the same number."""

    archs: tuple[str, ...]
    words: tuple[str, ...]  # nvcc's

    @property
    def name(self) -> str:
        return " ".join(self.archs)


class KeptShare(Struct, frozen=True, kw_only=True):
    """A share that was built. `calls`: a hash of how nvcc was called, architectures apart."""

    wheel: str
    sha256: str
    calls: str
    seconds: float
    others: dict[str, str]


def shares_of_plan(plan: PlanJob) -> tuple[Share, ...]:
    """PTX goes with the machine code of its number; what has none is a share of its own."""
    groups: dict[tuple[str, str], list[Arch]] = {}
    for arch in (*plan.archs, *plan.ptx):
        groups.setdefault((arch.capability, arch.suffix), []).append(arch)
    return tuple(
        Share(archs=tuple(map(str, group)), words=(*jobs.gencode(group), *whole_list(plan.cuda)))
        for group in groups.values()
    )


def whole_list(cuda: str) -> tuple[str, ...]:
    """The same list for every share: CUB and Thrust put it into names of kernels. All that the toolkit compiles for.

    A list of the job's own architectures would change with each one that is added, and no share would fit any more.
    """
    return jobs.arch_list(toolkits.find_toolkit(cuda).archs)


def share_key(share: Share, job: DecidedJob, plan: BuildPlan) -> str:
    """A hash over all that goes into a share; the job's list is no part of it, it only names the other shares."""
    compiler, table = job.toolchain.host_compiler, plan.table
    lists = {row.passed[0] for row in spellings.ROWS if row.passed}
    parts = [
        __version__,
        [plan.tree.sha256, plan.tree.commit, plan.tree.described],
        [job.cuda, job.backend, share.words, str(job.folder)],
        [job.toolchain.identity, job.toolchain.toolkit.version],
        [compiler.kind, compiler.version, compiler.path] if compiler else None,
        [job.python, job.interpreter.version if job.interpreter else None],
        [table.before, table.requires, table.config_settings, table.environment, table.subdirectory],
        [each for each in jobs.variables_of(job) if each[0] not in lists | table.environment.keys()],
    ]
    return files.sha256_of(codec.encode(parts))


def build_by_shares(
    job: DecidedJob, plan: BuildPlan, requirements: PackageSource, fresh: frozenset[str] = frozenset()
) -> Built:
    """All shares, those of the cache first, as one wheel. The job's folder is held by the caller.

    `fresh`: shares that were compiled in this run.
    """
    began = time.monotonic()
    shares = shares_of_plan(job.plan)
    usable = [each for each in shares if each.name in fresh or not plan.request.rebuild]
    kept = {each.name: found for each in usable if (found := _kept(_place(each, job, plan)))}
    used = dict(kept)
    last = Built(key=job.key)
    phases: list[Phase] = []
    for each in [share for share in shares if share.name not in kept]:
        last, made = compile_share(each, job, plan, requirements)
        phases += last.phases
        if made is None:
            return replace(last, key=job.key, phases=tuple(phases))
        # What an earlier share was given may have been another thing: definitions that follow from the list.
        old = used.keys() & kept.keys() - fresh
        for other in [name for name in old if used[name].calls != made.calls]:
            log.info("%s: the share for %s was compiled otherwise, and is compiled again", job.id, other)
            del used[other]
        used[each.name] = made
    if missing := [each for each in shares if each.name not in used]:
        for each in missing:
            shutil.rmtree(_place(each, job, plan), ignore_errors=True)
        return build_by_shares(job, plan, requirements, fresh | (used.keys() - kept.keys()))
    cached = {name: found for name, found in kept.items() if name not in fresh}
    return _joined(job, shares, used, cached, replace(last, phases=tuple(phases), seconds=time.monotonic() - began))


def compile_share(
    share: Share, job: DecidedJob, plan: BuildPlan, requirements: PackageSource
) -> tuple[Built, KeptShare | None]:
    """One share, which is kept; None where it failed."""
    from cuwheel.building import job_run  # noqa: PLC0415 - a dry run asks only which shares the cache has

    log.info("%s: compiling the share for %s", job.id, share.name)
    words = (*share.words, *jobs.random_seed(job.toolchain.root))
    made = job_run.build_job(replace(job, force_archs=words), plan, requirements)
    named = tuple(replace(phase, name=f"{phase.name} {share.name}") for phase in made.phases)
    kept = None if made.problem else _keep(_place(share, job, plan), made, job)
    return replace(made, phases=named), kept


def are_kept(plan: BuildPlan) -> bool:
    """Whether the cache has shares of any build at all."""
    return (plan.store.folder / _FOLDER).is_dir()


def cached_share(share: Share, job: DecidedJob, plan: BuildPlan) -> KeptShare | None:
    return _kept(_place(share, job, plan))


def accept_share(share: Share, job: DecidedJob, plan: BuildPlan, wheel: Path, made: KeptShare) -> None:
    """A share that another machine compiled, as if it had been here."""
    place = _place(share, job, plan)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    copied = files.copy(wheel, place / Path(made.wheel).name)
    files.write(place / _NOTE, codec.encode(replace(made, wheel=str(copied))), durable=True)


def _joined(
    job: DecidedJob, shares: Sequence[Share], used: dict[str, KeptShare], kept: dict[str, KeptShare], last: Built
) -> Built:
    first, *others = (Path(used[each.name].wheel) for each in shares)
    to = job.folder / "wheel"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    began = time.monotonic()
    record = jobs.build_record(job, used[shares[0].name].others)
    about = Description(cuda=job.cuda, archs=(), sources=job.key, build=record)
    try:
        wheel = _grafted(first, others, to, about)
    except CuwheelError as error:
        problem = Problem(phase="graft", what=error.message, hint=error.hint)
        return replace(last, key=job.key, wheel="", problem=problem)
    phase = Phase(name="graft", began=last.seconds, seconds=time.monotonic() - began)
    # Which shares there were, and why that paid or not.
    cached = [each.name for each in shares if each.name in kept and used[each.name] is kept[each.name]]
    compiled = [each.name for each in shares if each.name not in cached]
    saved = sum(used[name].seconds for name in cached)
    message = f"compiled as shares: {', '.join(compiled) or 'none'}; from the cache: {', '.join(cached) or 'none'}"
    if cached:
        why = f"the shares of the cache took {wording.duration(round(saved))} when they were compiled"
    else:
        why = "none was in the cache: one build for all takes less, but the next architecture will cost only itself"
    return replace(
        last,
        key=job.key,
        wheel=str(wheel),
        sha256=files.sha256(wheel),
        phases=(*last.phases, phase),
        seconds=last.seconds + phase.seconds,
        others=used[shares[0].name].others,
        findings=(finding("built-by-shares", message, evidence=(why,)),),
    )


def _grafted(first: Path, others: Sequence[Path], to: Path, about: Description) -> Path:
    """The shares in one wheel under its own name. Raises where they do not fit."""
    from cuwheel.changes.graft.act import graft_wheels  # noqa: PLC0415 - not for a dry run
    from cuwheel.changes.graft.decide import Known  # noqa: PLC0415
    from cuwheel.changes.graft.request import GraftRequest  # noqa: PLC0415

    name = WheelName.parse(first.name)
    version = name.version if name else None
    if not others:
        return files.copy(first, to / first.name)
    made = graft_wheels(first, others, GraftRequest(first, others, output=to, version=version), Known(about))
    if made.refused or not made.written:
        why = "; ".join(each.message for each in made.findings) or "no share has device code"
        raise UnreadableError(first, f"the shares do not fit together: {why}", hint="build with --shares no")
    return Path(made.outputs[0])


def _place(share: Share, job: DecidedJob, plan: BuildPlan) -> Path:
    return plan.store.folder / _FOLDER / share_key(share, job, plan)[:32]


def _kept(place: Path) -> KeptShare | None:
    """A share of the cache, if it is still what it was."""
    found = codec.noted(place / _NOTE, KeptShare)
    return found if found and files.holds(Path(found.wheel), found.sha256) else None


def _keep(place: Path, made: Built, job: DecidedJob) -> KeptShare:
    """The note is written last: a share that was interrupted is none."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    wheel = files.copy(Path(made.wheel), place / Path(made.wheel).name)
    # How nvcc was called for the files of the source, less the architectures.
    rows = []
    for call in reader.read_record(Path(made.record)).calls if made.record else ():
        if call.tool == "nvcc" and any(word.endswith(".cu") and _inside(word, call.cwd, job) for word in call.words):
            words = without_archs(call.words)
            rows.append(codec.encode([call.cwd, words]).decode())
    found = KeptShare(
        wheel=str(wheel),
        sha256=files.sha256(wheel),
        calls=files.sha256_of("\n".join(sorted(rows)).encode()),
        seconds=made.seconds,
        others=made.others,
    )
    files.write(place / _NOTE, codec.encode(found), durable=True)
    return found


def _inside(word: str, cwd: str, job: DecidedJob) -> bool:
    """Whether a file is of the source: what CMake tries in a folder of its own is not."""
    path = Path(cwd, word)
    return job.copy in path.parents and "CMakeFiles" not in path.parts


# Whether jobs are compiled in shares: where that pays, and why. Pure.


class ShareChoice(Struct, frozen=True, kw_only=True):
    by_shares: bool
    findings: tuple[Finding, ...] = ()


def choose_on_cluster(request: BuildRequest, planned: Sequence[PlanJob], slots: int) -> ShareChoice:
    """`slots`: builds that the workers can run at once."""
    most = max((len(shares_of_plan(each)) for each in planned), default=0)
    if request.shares is not None:
        return ShareChoice(by_shares=request.shares)
    if "container" in request.providers:
        return ShareChoice(by_shares=False)
    count = len(planned)
    if most <= 1 or slots <= count:
        wheels = "1 wheel keeps" if count == 1 else f"{count} wheels keep"
        workers = "the only worker" if slots == 1 else f"{slots} workers"
        busy = f"{wheels} {workers} busy as they are" if slots else "no worker is there yet"
        why = "one architecture each" if most <= 1 else busy
        return ShareChoice(by_shares=False, findings=(_choice_finding(f"each wheel is compiled whole: {why}"),))
    why = f"{count} {'wheel' if count == 1 else 'wheels'} would leave {slots - count} of {slots} workers idle"
    return ShareChoice(by_shares=True, findings=(_choice_finding(f"compiled by architecture: {why}"),))


def reason_for_shares(parts: int, kept: int) -> Finding | None:
    """Why a job of so many shares is compiled by them on this machine, where nobody said; `kept`: those in the cache.

    Without a cache nvcc's own threads are as good, and one build for all is less work.
    """
    if parts > 1 and kept * 2 > parts:
        return _choice_finding(f"compiled by architecture: {kept} of {parts} architectures are in the cache")
    return None


def _choice_finding(message: str) -> Finding:
    return finding("shares-chosen", message)
