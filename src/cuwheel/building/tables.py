"""What a configuration may say: `[tool.cuwheel]` in pyproject.toml or a cuwheel.toml, placeholders, rules."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import fields
from packaging.requirements import InvalidRequirement

from cuwheel.errors import UsageError
from cuwheel.facts import services, spellings, toolchain_parts
from cuwheel.facts.rows.services import CheckTerms
from cuwheel.support import limited
from cuwheel.verdicts.planning.plan import PlanOptions
from cuwheel_core.errors import UnknownNameError
from cuwheel_core.support import wording

Backend: TypeAlias = Literal["auto", "scikit-build-core", "cmake", "torch", "setuptools", "cargo", "other"]
Naming: TypeAlias = Literal["none", "local", "suffix"]


class BackendKind(Struct, frozen=True, kw_only=True):
    """How projects of a kind are built. `programs`: that run beside the compilers. `components`: of CUDA, always.

    `tied`: why such a project is built for this machine's processor alone.
    """

    programs: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    tied: str = ""


BACKENDS: dict[str, BackendKind] = {
    "scikit-build-core": BackendKind(programs=("cmake", "ninja")),
    "cmake": BackendKind(programs=("cmake", "ninja")),
    "torch": BackendKind(
        programs=("ninja",),
        components=("torch",),
        tied="it links with torch's libraries, and those that are installed here are for this processor",
    ),
    "setuptools": BackendKind(),
    "cargo": BackendKind(tied="Rust's compiler is not told of another processor yet"),
    "other": BackendKind(),
}


class GateTable(Struct, frozen=True, kw_only=True, rename="kebab"):
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


class RepairTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[repair]`: `enabled` None: where the wheel needs it, that is where it has libraries and a plain linux tag."""

    enabled: bool | None = None
    policy: str | None = None  # manylinux_2_28; None: the lowest that the libraries allow
    exclude: tuple[str, ...] = ()  # beside NVIDIA's
    requires: bool = False  # write the packages of NVIDIA's libraries into the metadata


class GuardTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[guard]`: write the coverage and the lines that check it into this package of the wheel.

    `inject`: put the call into its `__init__.py` too, for sources that know nothing of it; `guard = "inject"` is short
    for that. Then `package` may be left out where the wheel itself tells which it is.
    """

    package: str | None = None  # None: no guard, unless `inject`
    inject: bool = False
    message: str = ""  # what to install instead, in the package's own words


class CheckTable(CheckTerms, frozen=True, kw_only=True, rename="kebab"):
    """`[[verify.check]]`: exactly one of `command`, `python` and `import_`."""

    name: str = ""
    import_: str | None = None
    command: str | None = None
    python: str | None = None
    timeout: float = 120.0
    memory: str = "8 GB"


class VerifyTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[verify]`: `imports` None: the packages that the wheel itself has at its top."""

    imports: tuple[str, ...] | None = None
    requires: tuple[str, ...] = ()  # installed beside the wheel, only to verify it
    python: tuple[str, ...] = ()
    stub: bool = False  # import against a libcuda stub where there is no driver
    check: tuple[CheckTable, ...] = ()


# With extras behind it, as pip takes them. Nothing in it means anything to a shell, and no path leads out.
_EXTRAS = r"(?:\[[a-z,]+\])?"
_WHEEL_IN_REPOSITORY = re.compile(rf"(?:\./)?(?:[\w][\w.+-]*/)*[\w][\w.+-]*\.whl{_EXTRAS}", re.ASCII)
_WHEEL_AT_ADDRESS = re.compile(
    rf"https://[\w.-]+(?::\d+)?/[\w./%+~-]+\.whl{_EXTRAS}(?:#sha256=[0-9a-f]{{64}})?", re.ASCII
)


class CiTable(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[ci]`: what `cuwheel ci` writes.

    `cpus`: of the wheels; without, that of the machines which they are for. `windows`: build them for Windows too.
    `gpu-runner`: labels of a runner with a GPU and the first of `cpus`; without, nothing is proven on one. `image`: a
    container to build in; `{cuda}` (13_0) and `{cpu}` stand for those of a job. `publish`: `pages` (index and page),
    `release` (files as assets of a release, the index over them on Pages), `public` (the public index, by trusted
    publishing) or `none`. `upstream`: a repository (`owner/name`, or its https address) whose source is built, in
    place of this one's. `index`: the address that the index has, or is going to have. `watch`: a package, or the
    address of a git repository, whose new releases open an issue; with `rebuild` they start a build instead.
    `package`: what is built, where it is called otherwise than what is watched. `schedule`: when to build and to
    watch, as cron says it. `install`: what pip installs to build with: a requirement, or wheels by their
    addresses or paths in this repository, with blanks between them: cuwheel's and its core's.
    """

    cpus: tuple[str, ...] = ()
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
    install: str = ""

    @property
    def installed_from_repository(self) -> bool:
        """Every job that installs it needs the repository then."""
        return any(map(_WHEEL_IN_REPOSITORY.fullmatch, self.installs))

    @property
    def installs(self) -> tuple[str, ...]:
        """What pip is given: several wheels, that of the core first, or one requirement, which may hold blanks."""
        words = tuple(self.install.split())
        wheels = all(_WHEEL_IN_REPOSITORY.fullmatch(each) or _WHEEL_AT_ADDRESS.fullmatch(each) for each in words)
        return words if wheels else (self.install,)


class Table(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`[tool.cuwheel]`, whole.

    Texts of `environment`, `before` and `config_settings` may hold `{archs.cmake}`, `{archs.torch}`, `{archs.nvcc}`,
    `{archs.cudaarchs}`, `{archs.bitsandbytes}`, `{archs.cargo}`, `{cuda}` (13.0), `{cuda_digits}` (130), `{toolkit}`,
    `{nvcc}`, `{host_compiler}`, `{python}`, `{source}` and `{jobs}`; `{{` is a brace.
    """

    recipe: bool = True  # of a package that cuwheel knows: below what is said here
    for_: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    cpu: Literal["x86_64", "aarch64"] | None = None  # the processor to build for, where it is not this machine's
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
    cache_limit: str = ""  # of all that is kept on this machine: what `cuwheel cache --prune` leaves, such as 50GB
    timeout: float = 7200.0  # seconds, of one job
    plan: PlanOptions = field(default_factory=PlanOptions)  # as the options of `cuwheel plan`
    gate: GateTable = field(default_factory=GateTable)
    repair: RepairTable = field(default_factory=RepairTable)
    guard: GuardTable = field(default_factory=GuardTable)
    verify: VerifyTable = field(default_factory=VerifyTable)
    ci: CiTable = field(default_factory=CiTable)


# The tables as a caller gives them in Python, and the keys that are fields of the request, or of no build.
SETTINGS: dict[str, type[Struct]] = {
    "PlanSettings": PlanOptions,
    "GateSettings": GateTable,
    "RepairSettings": RepairTable,
    "GuardSettings": GuardTable,
    "BuildSettings": Table,
}
_ELSEWHERE = frozenset(("for_", "python", "verify", "ci", "cache_limit"))


def setting_names(table: type[Struct]) -> tuple[str, ...]:
    """The keys of a table that a build may be given, as Python calls them."""
    return tuple(each.name for each in fields(table) if table is not Table or each.name not in _ELSEWHERE)


# Texts with `{placeholders}`, as a configuration has them.

PLACEHOLDERS = (
    *(f"archs.{each}" for each in spellings.NAMES),
    "cuda",
    "cuda_digits",
    "toolkit",
    "nvcc",
    "host_compiler",
    "python",
    "source",
    "jobs",
)


def placeholder_problems(text: str) -> Iterator[str]:
    """What is wrong with the placeholders of a text."""
    try:
        names = list(_placeholders(text))
    except ValueError as error:
        yield f"{text!r}: {error}; write a literal brace twice, {{{{ or }}}}"
        return
    for name in names:
        if name not in PLACEHOLDERS:
            yield f"{text!r}: unknown placeholder {{{name}}}; choose from {', '.join(PLACEHOLDERS)}"


def _placeholders(text: str) -> Iterator[str]:
    for _, name, form, conversion in string.Formatter().parse(text):
        if name is not None:
            yield name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")


def fill_placeholders(text: str, values: Mapping[str, str | None]) -> str:
    """A text without placeholders. A value of None is one that this job does not have."""
    sentences = []
    for literal, name, _, _ in string.Formatter().parse(text):
        sentences.append(literal)
        if name is None:
            continue
        value = values[name]
        if value is None:
            raise UsageError(
                f"{text!r}: {{{name}}} has no value for this job",
                hint="cuwheel plan shows why, and what comes nearest",
            )
        sentences.append(value)
    return "".join(sentences)


# What a configuration must be beyond its shape: every problem, one sentence each.

_PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
_VERSION = re.compile(r"\d+(\.\d+)*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PACKAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_POLICY = re.compile(r"(many|musl)linux\w+", re.ASCII)
_TAG = re.compile(r"[a-z]{2,8}\d{1,4}(\.[a-z]{2,8}\d{1,4})*-(none|abi3)", re.ASCII)
_ALLOWED = re.compile(
    r"debug|(sm|compute|lto)_\d+[af]?|[\w*?\[\]!-]*[*?\[][\w*?\[\]!-]*", re.ASCII
)  # or a glob of them
VERSION_LABEL = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|https://[A-Za-z0-9][\w.:/~-]*", re.ASCII)
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_WATCHED = re.compile(r"[A-Za-z0-9][\w.-]*|https://[!-~]+", re.ASCII)
_ADDRESS = re.compile(r"https://[A-Za-z0-9][\w.:/~-]*", re.ASCII)
_CRON = re.compile(r"[\d*/,-]+( [\d*/,A-Za-z-]+){4}", re.ASCII)
_PINNED = re.compile(r"[a-z0-9](?:[\w.:/-]|\{cuda\}|\{cpu\})*(:(?!latest$)[\w][\w.-]*|@sha256:[0-9a-f]{64})", re.ASCII)
_LONGEST_RETENTION, _LONGEST_JOB = 90, 6 * 60  # of hosted runners
_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)


def problems_of_table(table: Table) -> Iterator[str]:
    """All that types do not say of a configuration, each with the name of the setting."""
    yield from (
        f"python: {each!r} is not a version such as 3.12" for each in table.python if not _PYTHON.fullmatch(each)
    )
    yield from _requirements("requires", table.requires)
    yield from _components(table.components)
    yield from (
        f"pass-through: {each!r} is not a variable name (it may end in *)"
        for each in table.pass_through
        if not _PATTERN.fullmatch(each)
    )
    yield from (
        f"environment: {each!r} is not a variable name" for each in table.environment if not _VARIABLE.fullmatch(each)
    )
    if not 0 < table.timeout < float("inf"):
        yield f"timeout: {table.timeout:g} is not a positive number of seconds"
    if table.python_tag is not None and not _TAG.fullmatch(table.python_tag):
        yield f"python-tag: {table.python_tag!r} is not a tag such as py3-none"
    if table.label and not VERSION_LABEL.fullmatch(table.label):
        yield f"label: {table.label!r} is not a label of a version: lower-case letters, digits and dots, such as 42.1"
    if table.cache_limit and not wording.read_size(table.cache_limit):
        yield f"cache-limit: {table.cache_limit!r} is not a size, such as 50GB"
    if PurePath(table.subdirectory).anchor or ".." in PurePath(table.subdirectory).parts:
        yield f"subdirectory: {table.subdirectory!r} is outside the source"
    if table.merge and table.naming not in (None, "none"):
        yield f"merge: one wheel for several CUDA versions cannot be named after one of them (naming is {table.naming})"
    yield from _texts(table)
    yield from (
        f"gate.allow: {each!r} is not an architecture such as sm_75, compute_* or library.so:sm_75"
        for each in table.gate.allow
        if not may_be_allowed(each)
    )
    if table.gate.size is not None and not wording.read_size(table.gate.size):
        yield f"gate.size: {table.gate.size!r} is not a size such as 100 MB"
    if table.gate.glibc is not None and not _VERSION.fullmatch(table.gate.glibc):
        yield f"gate.glibc: {table.gate.glibc!r} is not a version such as 2.28"
    if table.repair.policy is not None and not _POLICY.fullmatch(table.repair.policy):
        yield f"repair.policy: {table.repair.policy!r} is not a policy such as manylinux_2_28"
    if table.guard.package is not None and not _PACKAGE.fullmatch(table.guard.package):
        yield f"guard.package: {table.guard.package!r} is not a package name"
    yield from _requirements("verify.requires", table.verify.requires)
    yield from (
        f"verify.python: {each!r} is not a version such as 3.12"
        for each in table.verify.python
        if not _PYTHON.fullmatch(each)
    )
    yield from (f"ci.{each}" for each in _ci(table.ci))
    for number, check in enumerate(table.verify.check):
        yield from (f"verify.check[{number}]: {each}" for each in _check(check))


def _components(names: tuple[str, ...]) -> Iterator[str]:
    for each in names:
        try:
            toolchain_parts.find_components(each)
        except UnknownNameError as error:
            yield f"components: {error.message}"


def _requirements(where: str, requirements: tuple[str, ...]) -> Iterator[str]:
    for each in requirements:
        try:
            limited.requirement(each)
        except InvalidRequirement as error:
            yield f"{where}: {each!r} is not a requirement: {str(error).splitlines()[0]}"


def _texts(table: Table) -> Iterator[str]:
    for name, text in table.environment.items():
        yield from (f"environment.{name}: {each}" for each in placeholder_problems(text))
        if "\0" in text:
            yield f"environment.{name}: it must not contain a NUL character"
    for number, text in enumerate(table.before):
        yield from (f"before[{number}]: {each}" for each in placeholder_problems(text))
        if not text.strip():
            yield f"before[{number}]: it is empty"
    for name, text in table.config_settings.items():
        yield from (f"config-settings.{name}: {each}" for each in placeholder_problems(text))


def may_be_allowed(text: str) -> bool:
    """`sm_75`, `compute_*`, or one of a library: `library.so:sm_75`."""
    return _ALLOWED.fullmatch(text.rpartition(":")[2].strip()) is not None


def _check(check: CheckTable) -> Iterator[str]:
    ways = [name for name in ("command", "python", "import_") if getattr(check, name) is not None]
    if len(ways) != 1:
        named = " and ".join(each.removesuffix("_") for each in ways) or "none of them"
        yield f"it must have exactly one of command, python and import, but has {named}"
    if not 0 < check.timeout < float("inf"):
        yield f"timeout: {check.timeout:g} is not a positive number of seconds"
    if not wording.read_size(check.memory):
        yield f"memory: {check.memory!r} is not a size such as 8 GB"
    if check.tolerance < 0:
        yield f"tolerance: {check.tolerance:g} must not be negative"
    yield from (
        f"environment: {each!r} is not a variable name" for each in check.environment if not _VARIABLE.fullmatch(each)
    )


def _ci(table: CiTable) -> Iterator[str]:
    """All of it is written into files that a service runs with rights of its own."""
    known = ", ".join(services.linux_runners())
    yield from (f"cpus: {each!r} is not one of {known}" for each in table.cpus if each not in services.linux_runners())
    yield from (
        f"gpu-runner: {each!r} is not a runner's label" for each in table.gpu_runner if not _LABEL.fullmatch(each)
    )
    for name, value, form, words in (
        ("image", table.image, _PINNED, "an image that is pinned: give it a dated tag or a digest, not latest"),
        ("upstream", table.upstream, _REPOSITORY, "a repository: owner/name, or its https address"),
        ("watch", table.watch, _WATCHED, "a package or the https address of a repository"),
        ("package", table.package, _PACKAGE_NAME, "the name of a package"),
        ("index", table.index, _ADDRESS, "an https address"),
        ("schedule", table.schedule, _CRON, "five fields as cron has them"),
        ("python", table.python, _PYTHON, "a version such as 3.12"),
    ):
        if value and not form.fullmatch(value):
            yield f"{name}: {value!r} is not {words}"
    if table.watch and not table.index:
        yield "watch: needs index, the address of what was built, to compare with"
    for name, number, most in (
        ("retention-days", table.retention_days, _LONGEST_RETENTION),
        ("timeout-minutes", table.timeout_minutes, _LONGEST_JOB),
    ):
        if not 0 < number <= most:
            yield f"{name}: {number} is not between 1 and {most}"
    for install in table.installs:
        if not _WHEEL_IN_REPOSITORY.fullmatch(install) and not _WHEEL_AT_ADDRESS.fullmatch(install):
            yield from _requirements("install", (install,))
