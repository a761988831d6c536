"""The answer of `cuwheel build`, which is also `build.json` beside the wheels: what the stages make, report shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from cuwheel.building.recording.calls import Call, CallState, Record, ToolKind, parse_call, source_of
from cuwheel.support.answer import Answer
from cuwheel.support.cause import Cause
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Setting, Toolchain
from cuwheel.verdicts.planning.plan import Job as PlanJob
from cuwheel.verdicts.planning.plan import NotServed, Served
from cuwheel.wheel.variant import VariantSet
from cuwheel_core.facts.arch import Arch, machine_code_first
from cuwheel_core.support.finding import Finding

if TYPE_CHECKING:
    from cuwheel.device_code.contents import Survey

# `resumed`: an earlier run had made it. `refused`: made, and stopped by the gate. `skipped`: not begun; `reason` says
# why. `planned`: a dry run.
Outcome: TypeAlias = Literal["built", "resumed", "failed", "refused", "skipped", "planned"]
GOOD: tuple[Outcome, ...] = ("built", "resumed", "planned")
_MOST_SPANS = 5000  # a page of more would not open; the record has them all


class Phase(Struct, frozen=True, kw_only=True):
    """`began`: seconds since the job began."""

    name: str
    began: float
    seconds: float


class Listed(Struct, frozen=True, kw_only=True):
    """Unplanned device code that is accepted: it came from an archive of the toolkit, or is allowed."""

    library: str
    archs: tuple[Arch, ...]
    containers: int
    bytes: int
    origin: str  # `libcudadevrt.a`, or the word of `allow` that names it


class WorkerSpan(Struct, frozen=True, kw_only=True):
    """What a worker of a cluster did, in seconds since the build began."""

    worker: str
    name: str
    began: float
    ended: float
    failed: bool = False


class Piece(Struct, frozen=True, kw_only=True):
    """All that one of nvcc's inner programs took in a call, for one architecture."""

    name: str
    arch: str
    seconds: float


class Span(Struct, frozen=True, kw_only=True):
    """One compiler call in time, in seconds since the job began. `file`: what it compiled or made."""

    number: int
    tool: ToolKind
    name: str
    file: str
    began: float
    ended: float | None
    state: CallState
    cache_hit: bool | None = None
    pieces: tuple[Piece, ...] = ()


class Calls(Struct, frozen=True, kw_only=True):
    """What the record of a job holds. `spans` are the first so many of `total`; the whole is in the record's folder."""

    total: int = 0
    compiled: int = 0  # source files
    failed: int = 0
    seconds: float = 0.0  # of all, added up: beside the time of the phase it tells how much ran at once
    hits: int | None = None  # of the compiler cache; None where there was none
    misses: int | None = None
    spans: tuple[Span, ...] = ()


class Tools(Struct, frozen=True, kw_only=True):
    """What it was made with: nvcc by its own word, where it came from, and every archive with its hash."""

    cuda: str
    nvcc: str
    root: str
    provider: str
    identity: str
    host_compiler: HostCompiler | None
    archives: tuple[Archive, ...] = ()
    others: dict[str, str] = field(default_factory=dict)  # cmake, ninja, … → version


class ArchBytes(Struct, frozen=True, kw_only=True):
    """Stored bytes for one architecture; `planned` false for what the toolkit's archives or `allow` brought."""

    arch: Arch
    bytes: int
    count: int
    planned: bool


class LibraryBytes(Struct, frozen=True, kw_only=True):
    path: str
    size: int
    archs: tuple[ArchBytes, ...]


class Wheel(Struct, frozen=True, kw_only=True):
    """A wheel in its place."""

    path: str
    size: int
    sha256: str
    name: str
    version: str
    tags: tuple[str, ...]
    libraries: tuple[LibraryBytes, ...] = ()

    @property
    def file(self) -> Path:
        return Path(self.path)


class Failure(Struct, frozen=True, kw_only=True):
    """Why a job ended: the first call that failed and mattered, if one did, and what `explain` makes of its words."""

    what: str
    phase: str = ""
    call: int | None = None
    command: str = ""
    cwd: str = ""
    status: int | None = None
    output: str = ""  # the end of what it printed
    replay: str = ""  # the command that runs it again
    causes: tuple[Cause, ...] = ()


class Job(Struct, frozen=True, kw_only=True):
    """One wheel. `python` is empty where any will do.

    `settings`: every variable that the build saw. `listed`: unplanned device code that was accepted.
    """

    id: str
    cuda: str
    python: str
    archs: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    outcome: Outcome
    reason: str = ""
    coverage: tuple[Served, ...] = ()
    backend: str = ""
    commands: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    tools: Tools | None = None
    phases: tuple[Phase, ...] = ()
    seconds: float = 0.0
    calls: Calls = field(default_factory=Calls)
    wheel: Wheel | None = None
    listed: tuple[Listed, ...] = ()
    findings: tuple[Finding, ...] = ()
    failure: Failure | None = None
    log: str = ""
    record: str = ""


class Source(Struct, frozen=True, kw_only=True):
    """What was built: as it was asked for, what it says it is, and a hash over the files that were copied."""

    asked: str
    name: str = ""
    version: str = ""
    sha256: str = ""
    files: int = 0
    commit: str = ""


class Merged(Struct, frozen=True, kw_only=True):
    """One wheel merged from those of `jobs`; if there is none, `reason` says why."""

    jobs: tuple[str, ...]
    wheel: Wheel | None = None
    reason: str = ""
    findings: tuple[Finding, ...] = ()


class Recipe(Struct, frozen=True, kw_only=True):
    """What is known of how this package is built. `settings`: those that were used, as a configuration has them."""

    name: str
    why: str
    settings: tuple[str, ...]
    tried: tuple[str, ...]


class Build(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.build/1"] = "cuwheel.build/1"
    cuwheel: str
    source: Source
    configuration: tuple[str, ...] = ()  # the files that it was read from
    recipe: Recipe | None = None
    began: str = ""  # ISO 8601, UTC
    seconds: float = 0.0
    dry_run: bool = False
    output: str = ""
    jobs: tuple[Job, ...]
    variants: tuple[VariantSet, ...] = ()  # with `variants`: one for each release
    variants_failed: str = ""  # why there are none though they were wanted
    merged: tuple[Merged, ...] = ()  # with `merge`: instead of the jobs' own, which stay with their jobs
    unserved: tuple[NotServed, ...] = ()
    findings: tuple[Finding, ...] = ()
    written: tuple[str, ...] = ()  # beside the wheels
    workers: tuple[WorkerSpan, ...] = ()  # with --cluster: who did what when

    @property
    def succeeded(self) -> bool:
        """False where a job did not give its wheel, or a machine is served by none."""
        made = all(job.outcome in GOOD or (job.outcome == "skipped" and job.wheel) for job in self.jobs)
        whole = all(each.wheel for each in self.merged)
        return bool(self.jobs) and made and whole and not self.unserved and not self.variants_failed


# What the stages make of it.


def bare_answer(id_: str, plan: PlanJob, python: str, outcome: Outcome) -> Job:
    """The answer of a job that could not be decided here: it has no toolchain, or was left to a cluster."""
    return Job(id=id_, cuda=plan.cuda, python=python, archs=plan.archs, ptx=plan.ptx, outcome=outcome)


def tools_of(toolchain: Toolchain, others: Mapping[str, str] | None = None) -> Tools:
    kit = toolchain.toolkit
    return Tools(
        cuda=kit.cuda,
        nvcc=kit.version,
        root=kit.root,
        provider=kit.provider,
        identity=kit.identity,
        host_compiler=toolchain.host_compiler,
        archives=kit.archives,
        others=dict(others or {}),
    )


def wheel_of(found: Survey, sha256: str, planned: Collection[str]) -> Wheel:
    """`planned`: machine code and PTX of the plan."""
    libraries = []
    for library in found.libraries:
        rows: dict[Arch, tuple[int, int]] = {}
        for row in library.device_code:
            stored, count = rows.get(row.arch, (0, 0))
            rows[row.arch] = stored + row.bytes, count + row.count
        archs = (
            ArchBytes(arch=arch, bytes=rows[arch][0], count=rows[arch][1], planned=arch in planned)
            for arch in sorted(rows, key=machine_code_first)
        )
        libraries.append(LibraryBytes(path=library.path, size=library.size, archs=tuple(archs)))
    distribution = found.distribution
    return Wheel(
        path=found.target,
        size=found.size,
        sha256=sha256,
        name=distribution.name if distribution else "",
        version=distribution.version if distribution else "",
        tags=distribution.tags if distribution else (),
        libraries=tuple(libraries),
    )


def calls_of(record: Record | None, offset: float = 0.0, cached: tuple[int, int] | None = None) -> Calls:
    """What a record holds; `offset`: when it began, in seconds since its job did."""
    calls = sorted(record.calls if record else (), key=lambda call: call.number)
    known_hits = [call.cache_hit for call in calls if call.cache_hit is not None]
    hits, misses = cached or ((known_hits.count(True), known_hits.count(False)) if known_hits else (None, None))
    took = [call.ended - call.began for call in calls if call.ended is not None]
    return Calls(
        total=len(calls),
        compiled=len({(call.cwd, file) for call in calls if (file := source_of(call))}),
        failed=sum(call.failed for call in calls),
        seconds=round(sum(took), 3),
        hits=hits,
        misses=misses,
        spans=tuple(_span(call, offset) for call in calls[:_MOST_SPANS]),
    )


def _span(call: Call, offset: float) -> Span:
    pieces: dict[tuple[str, str], float] = defaultdict(float)
    for phase in call.phases:
        pieces[phase.name, phase.arch] += phase.seconds
    return Span(
        number=call.number,
        tool=call.tool,
        name=call.name,
        file=source_of(call) or parse_call(call).output,
        began=round(call.began + offset, 3),
        ended=None if call.ended is None else round(call.ended + offset, 3),
        state=call.state,
        cache_hit=call.cache_hit,
        pieces=tuple(Piece(name=name, arch=arch, seconds=round(took, 3)) for (name, arch), took in pieces.items()),
    )
