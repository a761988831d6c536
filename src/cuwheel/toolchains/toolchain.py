"""A toolchain: what the providers decide and the store keeps, its variables, its commands, and what to know of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.errors import UsageError
from cuwheel.facts import toolkits
from cuwheel.facts.rows.common import OperatingSystem
from cuwheel.facts.rows.toolchains import Component
from cuwheel.facts.rows.toolkits import Toolkit
from cuwheel.machine.profile import Attempt
from cuwheel.machine.world import World
from cuwheel.network import addresses
from cuwheel.support import codec, files, quoting
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


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


# The variables by which build systems find a toolkit and its host compiler.

_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT")
_COMPILERS = ("NVCC_CCBIN", "CUDAHOSTCXX")


def settings_for(toolkit: Installed, compiler: HostCompiler | None) -> tuple[Setting, ...]:
    return tuple(_settings_for(toolkit, compiler))


def _settings_for(toolkit: Installed, compiler: HostCompiler | None) -> Iterator[Setting]:
    yield from (Setting(name=name, value=toolkit.root) for name in _ROOTS)
    windows = toolkit.platform.startswith("windows")
    yield Setting(name="CUDACXX", value=nvcc_of(toolkit))
    if windows:
        folders = [f"{toolkit.root}\\bin", f"{toolkit.root}\\bin\\x86_64"]  # the second holds the libraries of wheels
        yield Setting(name="PATH", value=";".join(folders), how="prepend")
    else:
        yield Setting(name="PATH", value=f"{toolkit.root}/bin", how="prepend")
    if compiler:
        yield from (Setting(name=name, value=compiler.path) for name in _COMPILERS)
        if not toolkits.reads_ccbin(toolkit.cuda):
            yield from (
                Setting(name=name, value=value)
                for name, value in toolkits.ccbin_variable(toolkit.cuda, compiler.path).items()
            )
    if stubs := _stubs(toolkit):
        yield Setting(name="LIBRARY_PATH", value=stubs, how="prepend")


def nvcc_of(toolkit: Installed) -> str:
    """The program."""
    windows = toolkit.platform.startswith("windows")
    return f"{toolkit.root}\\bin\\nvcc.exe" if windows else f"{toolkit.root}/bin/nvcc"


def _stubs(toolkit: Installed) -> str | None:
    """The folder with a libcuda.so to link with. What is in an image cannot be looked at, and has one."""
    if toolkit.prefix and not toolkit.archives:
        return f"{toolkit.root}/lib64/stubs"
    places = (Path(toolkit.root, "lib64", "stubs"), Path(toolkit.root, "lib", "stubs"), Path(toolkit.folder, "stubs"))
    return next((str(place) for place in places if (place / "libcuda.so").exists()), None)


def must_be_outside(made: Toolchain) -> None:
    """A shell's variables do not lead into a container."""
    if made.prefix:
        hint = "run inside: " + " ".join(made.prefix)
        raise UsageError(f"this CUDA {made.toolkit.cuda} is in a container", hint=hint)


def shell_lines(chosen: Iterable[Setting]) -> tuple[str, ...]:
    """For the shell that cuwheel was started from to eval."""
    shell = quoting.shell_here()
    return tuple(
        quoting.set_variables({each.name: each.value}, shell, prepend=(each.name,) if each.how == "prepend" else ())
        for each in chosen
    )


def apply_settings(chosen: Iterable[Setting], environ: Mapping[str, str]) -> dict[str, str]:
    """An environment with these settings in it."""
    result = dict(environ)
    for each in chosen:
        before = result.get(each.name) if each.how == "prepend" else None
        result[each.name] = f"{each.value}{os.pathsep}{before}" if before else each.value
    return result


def variables_inside(chosen: Iterable[Setting]) -> dict[str, str]:
    """For a container, whose own PATH is kept: the compilers are named in full."""
    return {each.name: each.value for each in chosen if each.name != "PATH"}


# Commands where the toolkit is: as they are, or inside a container that sees the folders of the build.


def command_where_toolkit_is(
    toolkit: Installed,
    words: Sequence[str | Path],
    *,
    folders: Sequence[Path] = (),
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """`words` to hand to `process.run`. `folders` are seen inside under the same path, and `environ` is set there."""
    plain = tuple(str(word) for word in words)
    if not toolkit.prefix:
        return plain
    *run, image = toolkit.prefix
    mounts = [word for folder in folders for word in ("--volume", f"{folder}:{folder}")]
    place = ["--workdir", str(cwd)] if cwd else []
    variables = [word for name, value in (environ or {}).items() for word in ("--env", f"{name}={value}")]
    return (*run, *mounts, *place, *variables, image, *plain)


def run_as_caller() -> tuple[str, ...]:
    """So that written files belong to the user who started the build."""
    return ("--user", f"{os.getuid()}:{os.getgid()}")


# What to know of a toolchain that is there and may still not do.


def examine_toolchain(toolchain: Toolchain) -> tuple[Finding, ...]:
    return tuple(finding for note in NOTES for finding in note(toolchain))


def _glibc(toolchain: Toolchain) -> Iterator[Finding]:
    here = World.here().libc_version
    row = toolkits.find_toolkit(toolchain.toolkit.cuda)
    if here and not toolchain.prefix and toolchain.provider != "conda" and (clash := toolkits.glibc_clash(row, here)):
        yield Finding(
            rule="glibc-too-new",
            severity="warning",
            message=f"CUDA {row.version}'s headers do not compile with glibc {here}: both declare {clash.symbols[0]}",
            evidence=(f"from glibc {clash.glibc} on, up to CUDA {clash.last_broken}",),
            fix=f"cuwheel toolchain install {row.version} --provider conda,container",
        )


def _no_compiler(toolchain: Toolchain) -> Iterator[Finding]:
    if toolchain.host_compiler is None and not toolchain.prefix:
        yield Finding(
            rule="host-compiler-missing",
            severity="warning",
            message="no host compiler was chosen: nvcc uses what it finds",
            fix=f"cuwheel toolchain install {toolchain.toolkit.cuda}",
        )


NOTES: tuple[Callable[[Toolchain], Iterator[Finding]], ...] = (_glibc, _no_compiler)
