"""What is asked of `cuwheel publish`, `cuwheel find` and `cuwheel install`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from packaging.requirements import Requirement

from cuwheel.delivery import candidates
from cuwheel.errors import NetworkError, UsageError
from cuwheel.machine.fleet import Machines, Refinement, machine_words
from cuwheel.network import addresses
from cuwheel.support.request_fields import as_paths, must_be_positive, normalise
from cuwheel_core.support import printable

_SCHEMES = ("https://", "http://")
_SHOWN = 100
_LONGEST_REASON = 500
BUDGET = 300 * 10**6
LockFormat: TypeAlias = Literal["pylock", "requirements", "uv"]
Fallback: TypeAlias = Literal["older", "any-version", "source", "cpu"]
FALLBACKS: tuple[Fallback, ...] = get_args(Fallback)
LINUX = "manylinux_2_28_x86_64"
TWO_YEARS = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """Wheels into the index in the folder `to`, which is made where it is not there.

    `wheels`: files, folders of them, or `name==version`, which is downloaded. `files_url`: where the
    folder `files` is going to be served from, if not beside the pages. `yank`, `unyank`, `remove`: file names of the
    index, or `name==version`; `reason`: why they are yanked. `keep`: the newest releases of each project that stay.
    `sign`: an OpenSSH key. `attest`: attestations for the wheels, where the machine has an identity. `variants`:
    variant wheels of the plain ones, too. `existing`: an index at an address or in a folder, whose content is brought
    along if `to` has none. `catalogue`: a folder or address whose content the index's page shows, too; `shipped` for
    the one in cuwheel, `none` to show none any more. `dry_run`: nothing is written.

    `requirements`: a file; all that it comes to on `machines` (a fleet file), from the user's indexes and `indexes`, is
    brought, `slim` cut for them, and published with a lock for each kind of machine. `originals`: packages under
    NVIDIA's terms stay as they are. `copy_to`: a folder, or `HOST:FOLDER` for rsync, that gets a copy afterwards.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    to: Path
    files_url: str | None = None
    yank: Sequence[str] = ()
    unyank: Sequence[str] = ()
    reason: str | None = None
    remove: Sequence[str] = ()
    keep: int | None = None
    sign: Path | None = None
    attest: bool = False
    existing: str | None = None
    catalogue: str | None = None
    variants: bool = False
    dry_run: bool = False
    requirements: Path | None = None
    machines: Machines = ()
    refine: Refinement | None = None
    indexes: Sequence[str] = ()
    find_links: Sequence[str] = ()
    slim: bool = False
    originals: bool = False
    copy_to: str | None = None

    def __post_init__(self) -> None:
        normalise(self)
        _take_folders_of_wheels(self)
        object.__setattr__(self, "machines", machine_words(self.machines))
        must_be_positive(keep=self.keep)
        changed = self.wheels or self.yank or self.unyank or self.remove or self.keep or self.catalogue
        if self.requirements is not None:
            if changed:
                raise UsageError("a mirror is made of a requirements file alone", hint="publish the rest afterwards")
            if not self.machines:
                raise UsageError("a mirror needs its machines", hint="--for fleet.toml")
        elif (
            self.machines
            or self.slim
            or self.originals
            or self.indexes
            or self.find_links
            or (self.refine and self.refine.words)
        ):
            raise UsageError(
                "--for, --slim, --originals, --index, --find-links and what is said of machines are for a mirror",
                hint="cuwheel publish -r requirements.txt --for fleet.toml --slim --to mirror",
            )
        if not (changed or self.requirements or self.copy_to):
            raise UsageError("nothing to publish was given", hint="cuwheel publish dist/*.whl --to index")
        for each in (*self.yank, *self.unyank, *self.remove):
            must_be_file(each)
        if self.reason is not None:
            must_be_line(self.reason)
            if not self.yank:
                raise UsageError("a reason needs a file that is yanked", hint="--yank FILE --reason 'wrong results'")
        if self.files_url is not None:
            must_be_address(self.files_url)
        if self.existing and self.dry_run:
            raise UsageError("--existing copies an index, which --dry-run does not", hint="leave out --dry-run")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The wheels, however many."""
        return as_paths(self.wheels)


def _take_folders_of_wheels(request: PublishRequest | FindRequest | CatalogueRequest) -> None:
    """Takes a folder of wheels that was given as an index as what it is."""
    loose = [each for each in request.indexes if candidates.is_folder_of_wheels(each)]
    if loose:
        object.__setattr__(request, "indexes", tuple(each for each in request.indexes if each not in loose))
        object.__setattr__(request, "find_links", (*request.find_links, *loose))


def must_be_line(reason: str) -> None:
    """Installers print it beside messages of their own."""
    if len(reason) > _LONGEST_REASON or printable.line(reason) != reason or not reason.strip():
        raise UsageError(f"a reason is one line of at most {_LONGEST_REASON} letters", hint="--reason 'wrong results'")


def must_be_file(word: str) -> None:
    """What an index may have, as people name it."""
    from cuwheel.delivery import index_folder  # noqa: PLC0415 - who finds and installs has no such folder
    from cuwheel.device_code.target import is_pinned  # noqa: PLC0415

    release = is_pinned(word) and index_folder.version_of(word.partition("==")[2])
    if index_folder.wheel_name(word) is None and not release:
        raise UsageError(
            f"{word[:_SHOWN]!r} is not the file name of a wheel, nor name==version",
            hint="such as foo==1.2, or foo-1.2-….whl",
        )


def must_be_address(url: str) -> None:
    """Refuses what is not the address of a folder on a server that may stand in pages that everybody reads."""
    try:
        parts = addresses.split(url)
    except NetworkError as error:
        raise UsageError(error.lines) from None
    if not url.startswith(_SCHEMES) or not parts.hostname or not url.isprintable() or " " in url:
        raise UsageError(f"{url[:_SHOWN]!r} is not a URL: it must begin with https:// or http://")
    if parts.username or parts.password:
        raise UsageError("the address must not contain a login: it would appear on every page")
    if parts.query or parts.fragment:
        raise UsageError(f"{url[:_SHOWN]!r} must be the address of a folder, without ? or #")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRequest:
    """The wheel of a package that runs on machines.

    `wanted`: a name, perhaps with versions (`torch>=2.5`). `on`: GPU names, capabilities, machine profiles, fleet files
    or `Machine` values; without one, this machine.
    `env`: the environment that it is for. `indexes`: in place of those that pip or uv is configured with; `find_links`:
    folders or pages with files, beside them. `catalogues`: folders or URLs of facts, by the hashes of wheels; `none`
    for not even the one in cuwheel. `all_releases`: every one is judged, not only until one runs. `budget`: bytes that
    may be downloaded where nobody has facts.
    """

    wanted: str = field(kw_only=False)
    on: Machines = ()
    refine: Refinement | None = None
    env: Path | None = None
    indexes: Sequence[str] = ()
    find_links: Sequence[str] = ()
    catalogues: Sequence[str] = ()
    no_index: bool = False
    pre: bool = False
    all_releases: bool = False
    budget: int = BUDGET
    requirement: Requirement = field(init=False, repr=False, compare=False)  # `wanted`, parsed

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "on", machine_words(self.on))
        must_be_positive(budget=self.budget)
        _take_folders_of_wheels(self)
        if self.wanted:
            object.__setattr__(self, "requirement", candidates.parse_requirement(self.wanted))

    @property
    def words_of_places(self) -> tuple[str, ...]:
        """The options of the command line that say where is looked."""
        named = [("--index", each) for each in self.indexes] + [("--find-links", each) for each in self.find_links]
        flags = [flag for flag, asked in (("--no-index", self.no_index), ("--pre", self.pre)) if asked]
        return (*chain.from_iterable(named), *flags)

    @property
    def words_of_context(self) -> tuple[str, ...]:
        """The options that ask for the same places, machines and environment once more."""
        env = ("--env", str(self.env)) if self.env else ()
        asked = machine_words(self.on)
        named = chain.from_iterable(("--on", each) for each in asked if isinstance(each, str))
        return (*self.words_of_places, *named, *(self.refine.words if self.refine else ()), *env)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRequest:
    """Facts of projects' releases, added to the catalogue in `to`; without names, of those that it holds.

    Of each project the newest and the oldest release of each minor version of the last `days` (0: of all time), and of
    these one wheel for `platform`. `budget`: bytes that may be downloaded; None for no limit. `cluster`: whose workers
    read them.
    """

    names: Sequence[str] = field(default=(), kw_only=False)
    to: Path
    indexes: Sequence[str] = ()
    find_links: Sequence[str] = ()
    platform: str = LINUX
    days: int = TWO_YEARS
    budget: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        normalise(self)
        if self.cluster is not None:
            from cuwheel.network import cluster_access  # noqa: PLC0415 - few have one

            cluster_access.parse_address(self.cluster)
        _take_folders_of_wheels(self)
        if not self.names and not (self.to / "catalogue.json").is_file():
            raise UsageError("no package was given", hint="cuwheel catalogue add torch --to catalogue")
        for each in self.names:
            candidates.parse_requirement(each)
        if self.budget is not None:
            must_be_positive(budget=self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest(FindRequest):
    """The wheel that `find` puts first, into the environment `env`, or the active one.

    `requirements`: a file, in place of `wanted`: its packages with CUDA code are judged together. `lock`: a fleet file;
    what each kind of its machines installs is written into the folder `output`, as `lock_as` says, and nothing
    installed. `locked`: such a lock, or a folder of them; that of this machine is installed. `download`: all files of
    the lock into this folder, in place of installing. `allow`: installed packages that may be replaced by another
    version, beside the one that is asked for. `dry_run`: only what would change. `pin`: where settings that it needs
    are written: `activate`, `env-file=PATH`, `systemd=FOLDER`, `dockerfile=PATH`. `slim`: without the device code that
    these GPUs never load. `compile`: with machine code where their driver would have to compile PTX. `signers`:
    every file must be in an index that one of them signed.

    `fallback`: what may be taken where no wheel of the newest release runs: an `older` one, one built from its
    `source`, one for the `cpu`, and `any-version`, beyond those in `wanted`.
    """

    wanted: str = field(default="", kw_only=False)
    requirements: Path | None = None
    lock: Path | None = None
    locked: Path | None = None
    output: Path | None = None
    lock_as: Sequence[LockFormat] = ()
    download: Path | None = None
    allow: Sequence[str] = ()
    dry_run: bool = False
    pin: Sequence[str] = ()
    slim: bool = False
    compile: bool = False
    signers: Path | None = None
    fallback: Sequence[Fallback] = ("older", "source", "cpu")

    def __post_init__(self) -> None:
        what = sum(map(bool, (self.wanted, self.requirements, self.locked)))
        if not what:
            raise UsageError("no package to install was given", hint="cuwheel install NAME")
        if what > 1:
            raise UsageError("a package, a requirements file and a lock cannot be combined")
        if self.locked and self.lock:
            raise UsageError("a lock is either written or used")
        if (self.output and not self.lock) or (self.download and not (self.lock or self.locked)):
            raise UsageError("--output and --download are for locks", hint="cuwheel install NAME --lock-for fleet.toml")
        FindRequest.__post_init__(self)
        if unknown := set(self.lock_as) - set(get_args(LockFormat)):
            raise UsageError(f"{min(unknown)[:40]!r} is not a format of locks", hint=", ".join(get_args(LockFormat)))
        if strange := set(self.fallback) - set(FALLBACKS):
            raise UsageError(f"{min(strange)[:40]!r} is not a fallback", hint=", ".join(FALLBACKS))
        for each in self.pin:
            from cuwheel.delivery import pin_files  # noqa: PLC0415 - few write settings

            pin_files.parse_place(each)

    @property
    def words_with_allow(self) -> tuple[str, ...]:
        """The command that asks for the same once more, up to the names that `--allow` gets beside those it has."""
        what = (
            ("-r", str(self.requirements))
            if self.requirements
            else ("--locked", str(self.locked))
            if self.locked
            else (self.wanted,)
        )
        flags = [f"--{name}" for name in ("slim", "compile", "dry_run") if getattr(self, name)]
        named = [("--pin", each) for each in self.pin] + [("--catalogue", each) for each in self.catalogues]
        named += [("--signers", str(self.signers))] if self.signers else []
        if tuple(self.fallback) != ("older", "source", "cpu"):
            named += [("--fallback", ",".join(self.fallback) or "none")]
        flags = [each.replace("_", "-") for each in flags]
        return ("cuwheel", "install", *what, *self.words_of_context, *flags, *chain.from_iterable(named))

    @property
    def without_source(self) -> tuple[Fallback, ...]:
        return tuple(each for each in self.fallback if each != "source")


# What is asked of `cuwheel ci`.

Service: TypeAlias = Literal["github", "gitlab", "cibuildwheel"]
SERVICES: tuple[Service, ...] = ("github", "gitlab", "cibuildwheel")


@dataclass(frozen=True, slots=True, kw_only=True)
class CiRequest:
    """The workflow of a project for a service, from its configuration.

    `source`: the folder of the repository. `file`: where the workflow is, if not where the service looks for it.
    `cuda`: for cibuildwheel, whose tables are for one CUDA version: another than the first of the configuration.
    `write`: make or renew it; without, nothing is changed.
    """

    service: Service = field(kw_only=False)
    source: Path = Path()
    file: Path | None = None
    config: Path | None = None
    cuda: str | None = None
    write: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Path(self.source))
        if self.service not in SERVICES:
            raise UsageError(
                f"{str(self.service)[:40]!r} is not one of {', '.join(SERVICES)}", hint="cuwheel ci github"
            )
        if self.cuda is not None and self.service != "cibuildwheel":
            raise UsageError("--cuda belongs to cibuildwheel", hint="cuwheel ci cibuildwheel --cuda 13.0")
