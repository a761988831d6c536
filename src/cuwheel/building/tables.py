"""The configuration of a build, as a person writes it: `[tool.cuwheel]` in pyproject.toml, or a cuwheel.toml.

Keys are written with hyphens (`force-archs`); underscores are taken too. `config` reads and merges; this is the shape.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from cuwheel.verdicts.planning.plan import Wishes

Backend: TypeAlias = Literal["auto", "scikit-build-core", "cmake", "torch", "setuptools", "cargo", "other"]
Naming: TypeAlias = Literal["none", "local", "suffix"]


class GateTable(Struct, frozen=True, kw_only=True):
    """`[gate]`: what a wheel must be to leave the build.

    `allow`: architectures (`sm_75`, `compute_*`), or `library-glob:arch`: extra architectures to accept.
    `library-glob:*`: a library that the build took along and did not compile. `debug`: code compiled with -G.
    `forbidden`: sonames that must not be needed (globs). `glibc`: the newest that may be needed. `size`: of the wheel
    (`100 MB`). `device-code = false`: it has none by design (a wrapper of the driver's API). `enabled = false` reports
    and fails nothing.
    """

    enabled: bool = True
    device_code: bool = True
    allow: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    glibc: str | None = None
    size: str | None = None


class RepairTable(Struct, frozen=True, kw_only=True):
    """`[repair]`: `enabled` None: where the wheel needs it, that is where it has libraries and a plain linux tag."""

    enabled: bool | None = None
    policy: str | None = None  # manylinux_2_28; None: the lowest that the libraries allow
    exclude: tuple[str, ...] = ()  # beside NVIDIA's
    requires: bool = False  # write the packages of NVIDIA's libraries into the metadata


class GuardTable(Struct, frozen=True, kw_only=True):
    """`[guard]`: write the coverage and the lines that check it into this package of the wheel.

    `inject`: put the call into its `__init__.py` too, for sources that know nothing of it; `guard = "inject"` is short
    for that. Then `package` may be left out where the wheel itself tells which it is.
    """

    package: str | None = None  # None: no guard, unless `inject`
    inject: bool = False
    message: str = ""  # what to install instead, in the package's own words


class CheckTable(Struct, frozen=True, kw_only=True):
    """`[[verify.check]]`: exactly one of `command`, `python` and `import_`.

    `expect`: texts that must be in the output. `number`: the last number printed, within `tolerance` of it.
    `gpu`: whether it needs one; `capabilities`: which (`9.0`); elsewhere the check is skipped and listed as such.
    """

    name: str = ""
    import_: str | None = None
    command: str | None = None
    python: str | None = None
    expect: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    status: int = 0
    number: float | None = None
    tolerance: float = 0.0
    gpu: bool = False
    capabilities: tuple[str, ...] = ()
    timeout: float = 120.0
    memory: str = "8 GB"
    environment: dict[str, str] = field(default_factory=dict)


class VerifyTable(Struct, frozen=True, kw_only=True):
    """`[verify]`: `imports` None: the packages that the wheel itself has at its top."""

    imports: tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()  # installed beside the wheel, only to verify it
    python: tuple[str, ...] = ()
    stub: bool = False  # import against a libcuda stub where there is no driver
    check: tuple[CheckTable, ...] = ()


class CiTable(Struct, frozen=True, kw_only=True):
    """`[ci]`: what `cuwheel ci` writes.

    `cpus`: of the wheels. `windows`: build them for Windows too. `gpu-runner`: labels of a runner with a GPU and the
    first of `cpus`; without, nothing is proven on one. `image`: a container to build in; `{cuda}` (13_0) and `{cpu}`
    stand for those of a job. `publish`: `pages` (index and page), `release` (files as assets of a release, the index
    over them on Pages), `public` (the public index, by trusted publishing) or `none`. `upstream`: a repository
    (`owner/name`, or its https address) whose source is built, in place of this one's. `index`: the address that the
    index has, or is going to have. `watch`: a package, or the address of a git repository, whose new releases open an
    issue; with `rebuild` they start a build instead. `package`: what is built, where it is called otherwise than what
    is watched. `schedule`: when to build and to watch, as cron says it. `cuwheel`: what is installed to build with.
    """

    cpus: tuple[str, ...] = ("x86_64",)
    windows: bool = False
    gpu_runner: tuple[str, ...] = ()
    image: str = ""
    publish: Literal["pages", "release", "public", "none"] = "pages"
    upstream: str = ""
    index: str = ""
    watch: str = ""
    package: str = ""
    rebuild: bool = False
    schedule: str = "17 4 * * 1"
    retention_days: int = 14
    timeout_minutes: int = 350
    python: str = "3.12"  # of the jobs that build nothing
    cuwheel: str = ""


class Table(Struct, frozen=True, kw_only=True):
    """`[tool.cuwheel]`, whole.

    Texts of `environment`, `before` and `config_settings` may hold `{archs.cmake}`, `{archs.torch}`, `{archs.nvcc}`,
    `{archs.cudaarchs}`, `{archs.bitsandbytes}`, `{archs.cargo}`, `{cuda}` (13.0), `{cuda_digits}` (130), `{toolkit}`,
    `{nvcc}`, `{host_compiler}`, `{python}`, `{source}` and `{jobs}`; `{{` is a brace.
    """

    recipe: bool = True  # of a package that cuwheel knows: below what is said here
    for_: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    subdirectory: str = ""  # of the source: where its pyproject.toml is, when it uses files beside that folder
    backend: Backend = "auto"
    requires: tuple[str, ...] = ()  # for the build, beside what the project itself asks for
    components: tuple[str, ...] = ()  # of the toolkit: cublas, cudnn, nccl, …
    environment: dict[str, str] = field(default_factory=dict)
    pass_through: tuple[str, ...] = ()  # variables of the caller that the build may see
    before: tuple[str, ...] = ()  # commands in the source folder before it is packaged
    config_settings: dict[str, str] = field(default_factory=dict)
    force_archs: bool = False
    naming: Naming | None = None  # None: local where there are wheels for several CUDA versions, else none
    label: str = ""  # of this build, in the local version: builds of one version that are published more than once
    python_tag: str | None = None  # py3-none, where libraries are loaded with ctypes and serve every Python
    merge: bool = False  # the wheels of all CUDA versions as one, where they differ in added libraries alone
    variants: bool = False  # variant wheels of them too, for installers that choose by GPU and driver
    cache: bool = False
    timeout: float = 7200.0  # seconds, of one job
    plan: Wishes = field(default_factory=Wishes)  # as the options of `cuwheel plan`
    gate: GateTable = field(default_factory=GateTable)
    repair: RepairTable = field(default_factory=RepairTable)
    guard: GuardTable = field(default_factory=GuardTable)
    verify: VerifyTable = field(default_factory=VerifyTable)
    ci: CiTable = field(default_factory=CiTable)
