"""The values that the steps of a build exchange: source and jobs, what the gate is asked, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from cuwheel.building.answer import Build, Job, Listed, Phase
from cuwheel.building.recipes import Recipe
from cuwheel.building.recording.calls import Record
from cuwheel.building.request import BuildRequest
from cuwheel.building.tables import GateTable, Table
from cuwheel.machine.fleet import Machine
from cuwheel.network.venvs import Python
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import Archive, Setting, Toolchain
from cuwheel.verdicts.planning import plan as plan_values
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding

# What a build is made of: jobs decided before anything is done, and what became of each.


class Project(Struct, frozen=True, kw_only=True):
    """What the files of a source say of it, without running any of them."""

    name: str
    version: str = ""  # empty where the backend works it out
    requires_python: str = ""
    backend: str  # how it is built: see tables.Backend, without `auto`
    requires: tuple[str, ...] = ()
    build_dir: bool = False  # it leaves the place of its build folder to scikit-build-core
    evidence: str = ""  # why this backend was taken


class Tree(Struct, frozen=True, kw_only=True):
    """A source on disk. `files` are relative to `folder`.

    `left_out`: links that lead out of it. `empty`: submodules that nobody fetched.
    """

    asked: str
    folder: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    repository: bool = False  # the folder is the top of a git repository
    commit: str = ""
    described: str = ""  # by its nearest tag: many projects make their version of it
    epoch: int = 0  # when it was last changed, as far as that can be told without its files' times
    sha256: str = ""


class DecidedJob(Struct, frozen=True, kw_only=True):
    """One wheel to build: decided, and nothing done yet.

    `python` is the minor version. `interpreter` is None where it is in a container, and found there, and where a dry
    run did without. `folder`: where it is built; it depends on nothing but the job. `settings`: every variable that the
    build sees.
    """

    id: str
    cuda: str
    python: str
    interpreter: Python | None
    plan: plan_values.Job
    backend: str
    toolchain: Toolchain
    folder: Path
    settings: tuple[Setting, ...]
    before: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    subdirectory: str = ""
    config_settings: dict[str, str] = field(default_factory=dict)
    force_archs: tuple[str, ...] = ()  # nvcc's own words; empty: the build system is trusted
    module_ids: dict[str, str] = field(default_factory=dict)  # of files, by path or name: see graft/subject.py
    by_shares: bool = False  # each architecture is compiled by itself: see shares.py
    links: tuple[tuple[str, str], ...] = ()  # tools outside of the system's folders: name and place
    notes: tuple[Finding, ...] = ()
    key: str = ""  # of everything that goes in: the same key gives the same wheel

    @property
    def copy(self) -> Path:
        """The copy of the whole source."""
        return self.folder / "src"

    @property
    def source(self) -> Path:
        """Where its pyproject.toml is."""
        return self.copy / self.subdirectory

    @property
    def environ(self) -> dict[str, str]:
        return {each.name: each.value for each in self.settings}


class Cached(Struct, frozen=True, kw_only=True):
    """What the compiler cache did; `problem`: why there was none."""

    hits: int = 0
    misses: int = 0
    problem: str = ""


class Problem(Struct, frozen=True, kw_only=True):
    """Why a job ended without a wheel: a program failed, its time was over, or something else."""

    phase: str
    what: str
    kind: Literal["program", "time", "other"] = "other"
    hint: str = ""


class Built(Struct, frozen=True, kw_only=True):
    """What became of a job, as far as the backend's own wheel: naming, repair and gate come after it.

    `record` is empty where nothing was recorded. `resumed`: an earlier run made the wheel, and these are its figures.
    """

    key: str
    wheel: str = ""
    sha256: str = ""
    phases: tuple[Phase, ...] = ()
    seconds: float = 0.0
    log: str = ""
    record: str = ""
    recorded: float = 0.0  # when the record began
    others: dict[str, str] = field(default_factory=dict)  # versions of what was installed to build
    requirements: tuple[Archive, ...] = ()  # the files that it was installed from, where a lock is to name them
    cached: Cached | None = None
    problem: Problem | None = None
    resumed: bool = False
    findings: tuple[Finding, ...] = ()  # of how it was built


# What the gate is asked and what it answers: frozen values.


class GateRequest(Struct, frozen=True, kw_only=True):
    """What a wheel was to be.

    `archs` and `ptx` as the plan has them (`sm_90a`, `compute_90`). `cuda`: empty for any. `places`: folders of this
    machine that no library may name: the job's, the source's, the toolkit store's. `toolkit_root`: whose static
    archives are looked into for unplanned device code; empty if there is none. `record`: shows which archives were
    linked. `machines`: those that it must run on. `cpu`: that it is for, where this machine has another.
    """

    archs: tuple[Arch, ...]
    ptx: tuple[Arch, ...]
    cuda: str
    table: GateTable = field(default_factory=GateTable)
    places: tuple[str, ...] = ()
    toolkit_root: str = ""
    record: Record | None = None
    machines: tuple[Machine, ...] = ()
    cpu: str = ""


class GateResult(Struct, frozen=True, kw_only=True):
    """`succeeded`: whether the wheel may leave the build. With `enabled = false` it always may."""

    findings: tuple[Finding, ...]
    listed: tuple[Listed, ...]
    succeeded: bool


class JobResult(Struct, frozen=True, kw_only=True):
    """What became of one wheel: the answer, and what tells why it failed.

    `job` is None where there was no toolchain to make one for. `problem`: why there is no wheel.
    """

    answer: Job
    job: DecidedJob | None = None
    built: Built | None = None
    record: Record | None = None
    problem: Problem | None = None


class BuildPlan(Struct, frozen=True, kw_only=True):
    """What a build will do, decided in steps: the source and its configuration, the architectures, the jobs.

    `configuration`: the file that `table` was read from. `recipe`: whose settings lie below it. `machines`: those that
    it is for, on which finished wheels are judged; none where a list of architectures was asked for. `planned`: the
    architectures for each CUDA version. `jobs`: the wheels, decided for this machine; none where the workers of a
    cluster decide. `failed`: those that have no toolchain. `images`: of each toolkit in one, the PATH there.
    """

    request: BuildRequest
    store: Store
    tree: Tree
    table: Table
    project: Project
    configuration: Path | None = None
    recipe: Recipe | None = None
    machines: tuple[Machine, ...] = ()
    planned: tuple[plan_values.Job, ...] = ()
    unserved: tuple[plan_values.NotServed, ...] = ()
    findings: tuple[Finding, ...] = ()
    jobs: tuple[DecidedJob, ...] = ()
    failed: tuple[JobResult, ...] = ()
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class BuildResult(Struct, frozen=True, kw_only=True):
    """What became of a plan: each of its jobs, in order, and the answer that is made of them."""

    plan: BuildPlan
    jobs: tuple[JobResult, ...]
    answer: Build
