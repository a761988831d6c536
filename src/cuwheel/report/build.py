"""`cuwheel build`: the answer, which is also `build.json` beside the wheels. Its document is in `build_document`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from cuwheel.building.recording.calls import CallState, ToolKind
from cuwheel.building.values import Listed, Outcome, Phase, WorkerSpan
from cuwheel.changes.stamp.variants import VariantSet
from cuwheel.diagnosis.diagnosis import Failure
from cuwheel.facts.arch import Arch
from cuwheel.support.finding import Finding
from cuwheel.toolchains.toolchain import Archive, HostCompiler, Setting
from cuwheel.verdicts.planning.plan import NotServed, Served

GOOD: tuple[Outcome, ...] = ("built", "resumed", "planned")


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
    path: str
    size: int
    sha256: str
    name: str
    version: str
    tags: tuple[str, ...]
    libraries: tuple[LibraryBytes, ...] = ()


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


class Build(Struct, frozen=True, kw_only=True):
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
    variants: tuple[VariantSet, ...] = ()  # with --variants: one for each release
    variants_failed: str = ""  # why there are none though they were wanted
    merged: tuple[Merged, ...] = ()  # with --merge: instead of the jobs' own, which stay with their jobs
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
