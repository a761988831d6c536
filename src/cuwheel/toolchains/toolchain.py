"""What the providers decide and what the store keeps: frozen values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.facts.rows.common import OperatingSystem
from cuwheel.facts.rows.toolchains import Component
from cuwheel.facts.rows.toolkits import Toolkit
from cuwheel.machine.profile import Attempt
from cuwheel.network import addresses
from cuwheel.support import codec, files

ArchiveKind: TypeAlias = Literal["wheel", "tar", "deb", "conda"]
ProviderName: TypeAlias = Literal["system", "index", "redist", "debian", "conda", "container"]
How: TypeAlias = Literal["set", "prepend"]


class Archive(Struct, frozen=True, kw_only=True):
    """One file to fetch and unpack. `url` is empty where it is only known by name: then the index is asked again."""

    kind: ArchiveKind
    name: str
    version: str
    file: str
    sha256: str
    url: str = ""
    size: int | None = None

    def __post_init__(self) -> None:
        """Archives go into locks, markers and reports: addresses are always kept without their login."""
        force_setattr(self, "url", addresses.plain(self.url))


class Wanted(Struct, frozen=True, kw_only=True):
    """A request whose words were looked up in the tables. `exact` is a patch release (`13.0.2`), where one was named.

    `redist_url`, `apt_sources` and `image` point providers elsewhere than the tables do.
    """

    toolkit: Toolkit
    exact: str | None = None
    components: tuple[Component, ...]
    providers: tuple[ProviderName, ...]
    cpu: str
    system: OperatingSystem = "linux"
    offline: bool = False
    redist_url: str | None = None
    apt_sources: str | None = None
    image: str | None = None

    @property
    def cuda(self) -> str:
        return self.toolkit.version

    @property
    def platform(self) -> str:
        """As NVIDIA calls it: `linux-x86_64`, `windows-x86_64`."""
        return f"{self.system}-{self.cpu}"

    @property
    def asked(self) -> str:
        """As a person would say it."""
        return self.exact or self.cuda


class Recipe(Struct, frozen=True, kw_only=True):
    """What a provider will do, decided before anything is done.

    `place`: a toolkit that is there already. `commands`: programs that make one, with `{root}` for its folder.
    `prefix`: what to put before a command so that it runs where the toolkit is.
    """

    provider: ProviderName
    cuda: str
    release: str
    platform: str
    components: tuple[str, ...]
    archives: tuple[Archive, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    place: str = ""
    prefix: tuple[str, ...] = ()
    found_via: str = ""

    @property
    def identity(self) -> str:
        """The same toolkit has the same identity wherever it was installed from: hashes and names count, addresses "
        "do not."""
        parts = [[each.name, each.version, each.sha256] for each in self.archives]
        whole = [self.provider, self.cuda, self.platform, sorted(self.components), sorted(parts)]
        whole += [self.place, self.commands, "" if self.archives else self.release]
        return files.sha256_of(codec.encode(whole))


class HostCompiler(Struct, frozen=True, kw_only=True):
    kind: str
    version: str
    path: str
    found_via: str


class Installed(Struct, frozen=True, kw_only=True):
    """What the store has. `root` holds bin/nvcc; `version` is what that nvcc says of itself."""

    identity: str
    provider: ProviderName
    cuda: str
    release: str
    version: str
    platform: str
    components: tuple[str, ...]
    folder: str
    root: str
    size: int
    archives: tuple[Archive, ...] = ()
    prefix: tuple[str, ...] = ()
    host_compiler: HostCompiler | None = None  # its own, where it brought one
    found_via: str = ""


class Setting(Struct, frozen=True, kw_only=True):
    """A variable of the environment; `prepend`: before what is there, with a colon."""

    name: str
    value: str
    how: How = "set"


class Toolchain(Struct, frozen=True, kw_only=True):
    """Ready to build with: a toolkit, a host compiler that it takes, and the variables that say so.

    `prefix` goes before every command of the build: empty, unless the toolkit is in a container.
    """

    toolkit: Installed
    host_compiler: HostCompiler | None
    settings: tuple[Setting, ...]
    trail: tuple[Attempt, ...] = ()

    @property
    def root(self) -> str:
        return self.toolkit.root

    @property
    def identity(self) -> str:
        return self.toolkit.identity

    @property
    def provider(self) -> ProviderName:
        return self.toolkit.provider

    @property
    def prefix(self) -> tuple[str, ...]:
        return self.toolkit.prefix
