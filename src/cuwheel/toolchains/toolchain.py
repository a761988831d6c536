"""A toolchain: its variables, its commands, what to know of it, and a host compiler that its nvcc takes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from cuwheel.errors import NoHostCompilerError, UnavailableError, UsageError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.rows.toolchains import Component
from cuwheel.machine import compilers
from cuwheel.machine.profile import Attempt
from cuwheel.machine.world import World
from cuwheel.network import addresses
from cuwheel.support import codec, files, quoting
from cuwheel.support.finding import finding
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.rows.common import OperatingSystem
from cuwheel_core.facts.rows.toolkits import Toolkit
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cuwheel.machine.profile import Compiler
    from cuwheel_core.support.finding import Finding


ArchiveKind: TypeAlias = Literal["wheel", "tar", "deb", "conda", "compiler"]
ProviderName: TypeAlias = Literal["system", "index", "redist", "debian", "conda", "container"]
How: TypeAlias = Literal["set", "prepend"]
_L4T = "l4t"


class Archive(Struct, frozen=True, kw_only=True):
    """One file to fetch and unpack. `url` is empty where it is only known by name: then the index is asked again.

    A `compiler` is a package of Debian's, unpacked as it is.
    """

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

    `target`: the processor to compile for, where it is not `cpu`; `glibc`: the newest to link with there; `l4t`: for
    Jetson, or for servers, where those are two distributions.
    `folder`, `redist_url`, `apt_sources` and `image` point providers elsewhere than the tables do.
    """

    toolkit: Toolkit
    exact: str | None = None
    components: tuple[Component, ...]
    providers: tuple[ProviderName, ...]
    cpu: str
    target: str | None = None
    glibc: str | None = None
    l4t: bool | None = None
    system: OperatingSystem = "linux"
    offline: bool = False
    folder: str | None = None
    redist_url: str | None = None
    apt_sources: str | None = None
    image: str | None = None

    @property
    def cuda(self) -> str:
        return self.toolkit.version

    @property
    def platform(self) -> str:
        """The platform as NVIDIA calls it: `linux-x86_64`; `linux-x86_64-aarch64` is on one for another.

        That for Jetson ends in `-l4t`, where CUDA for servers is another.
        """
        return "-".join(filter(None, (self.system, self.cpu, self.target, _L4T if self.l4t else None)))

    @property
    def asked(self) -> str:
        """The version as a person would say it."""
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
        """The same wherever it was installed from: hashes and names count, addresses do not."""
        parts = [[each.name, each.version, each.sha256] for each in self.archives]
        whole = [self.provider, self.cuda, self.platform, sorted(self.components), sorted(parts)]
        whole += [self.place, self.commands, "" if self.archives else self.release]
        return files.sha256_of(codec.encode(whole))

    def installed(
        self, *, folder: Path, root: str | Path, version: str, size: int, host_compiler: HostCompiler | None = None
    ) -> Installed:
        """What it is once it has been carried out."""
        return Installed(
            identity=self.identity,
            provider=self.provider,
            cuda=self.cuda,
            release=self.release,
            version=version,
            platform=self.platform,
            components=self.components,
            folder=str(folder),
            root=str(root),
            size=size,
            archives=self.archives,
            prefix=self.prefix,
            host_compiler=host_compiler,
            found_via=self.found_via,
        )


class HostCompiler(Struct, frozen=True, kw_only=True):
    """`glibc`: that of the processor that it compiles for, where that is another."""

    kind: str
    version: str
    path: str
    found_via: str
    glibc: str = ""


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

    @property
    def target(self) -> str | None:
        """The processor that it compiles for, where it is not the one that compiles."""
        return processors_of(self.platform)[1]

    @property
    def l4t(self) -> bool:
        return self.platform.endswith(f"-{_L4T}")


def processors_of(platform: str) -> tuple[str, str | None]:
    """The one that compiles, and the one that is compiled for where it is another."""
    _, cpu, target = f"{platform}--".split("-")[:3]
    return cpu, target or None


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
        if not toolchain_parts.reads_ccbin(toolkit.cuda):
            yield from (
                Setting(name=name, value=value)
                for name, value in toolchain_parts.ccbin_variable(toolkit.cuda, compiler.path).items()
            )
        if toolkit.target:
            yield from _cross_settings(compiler.path)
    if stubs := _stubs(toolkit):
        yield Setting(name="LIBRARY_PATH", value=stubs, how="prepend")


def _cross_settings(compiler: str) -> Iterator[Setting]:
    """All that makes binaries for another processor: `aarch64-linux-gnu-ar` beside `aarch64-linux-gnu-g++-12`."""
    path = Path(compiler)
    prefix, _, version = path.name.rpartition("g++" if "g++" in path.name else "clang++")
    yield Setting(name="PATH", value=str(path.parent), how="prepend")
    yield Setting(name="CXX", value=compiler)
    yield Setting(name="CC", value=str(path.with_name(f"{prefix}{'gcc' if 'g++' in path.name else 'clang'}{version}")))
    for name in ("ar", "ranlib", "strip", "nm", "objcopy"):
        yield Setting(name=name.upper(), value=str(path.with_name(f"{prefix}{name}")))


def nvcc_of(toolkit: Installed) -> str:
    """The program."""
    windows = toolkit.platform.startswith("windows")
    return f"{toolkit.root}\\bin\\nvcc.exe" if windows else f"{toolkit.root}/bin/nvcc"


def _stubs(toolkit: Installed) -> str | None:
    """The folder with a libcuda.so to link with. What is in an image cannot be looked at, and has one."""
    if toolkit.prefix and not toolkit.archives:
        return f"{toolkit.root}/lib64/stubs"
    places = (Path(toolkit.root, "lib64", "stubs"), Path(toolkit.root, "lib", "stubs"), Path(toolkit.folder, "stubs"))
    return next((str(place) for place in places if opening.is_file(place / "libcuda.so")), None)


def must_be_outside(made: Toolchain) -> None:
    """A shell's variables do not lead into a container."""
    if made.prefix:
        hint = "run inside: " + " ".join(made.prefix)
        raise UsageError(f"this CUDA {made.toolkit.cuda} is in a container", hint=hint)


def shell_lines(chosen: Iterable[Setting]) -> tuple[str, ...]:
    """Lines for the shell that cuwheel was started from to eval."""
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
    """Variables for a container, whose own PATH is kept: the compilers are named in full."""
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
        yield finding(
            "glibc-too-new",
            f"CUDA {row.version}'s headers do not compile with glibc {here}: both declare {clash.symbols[0]}",
            evidence=(f"from glibc {clash.glibc} on, up to CUDA {clash.last_broken}",),
            fix=f"cuwheel toolchain install {row.version} --provider conda,container",
            severity="warning",
        )


def _no_compiler(toolchain: Toolchain) -> Iterator[Finding]:
    if toolchain.host_compiler is None and not toolchain.prefix:
        yield finding(
            "host-compiler-missing",
            "no host compiler was chosen: nvcc uses what it finds",
            fix=f"cuwheel toolchain install {toolchain.toolkit.cuda}",
            severity="warning",
        )


NOTES: tuple[Callable[[Toolchain], Iterator[Finding]], ...] = (_glibc, _no_compiler)


# A host compiler that this nvcc takes: found on the machine, chosen by the table, asked for its version.


_WISHES = ("NVCC_CCBIN", "CUDAHOSTCXX")  # somebody chose: theirs before the newest
_NAMES = {"msvc": "MSVC"}
_BUILD_TOOLS = (
    "install the C++ build tools of Visual Studio, or one of these versions beside the others in its installer: "
    "winget install Microsoft.VisualStudio.2022.BuildTools"
)
_DOTTED = re.compile(r"\d+(?:\.\d+)*")


def choose_host_compiler(machine: World, toolkit: Toolkit, wanted: str | None = None) -> HostCompiler:
    """`wanted`: a program to use and no other. Otherwise what the variables name, else the newest gcc, else clang.

    On Windows that of Visual Studio alone.
    """
    if wanted:
        from msgspec.structs import replace  # noqa: PLC0415 - a rare wish

        machine = replace(machine, environ={**machine.environ, _WISHES[0]: wanted}, trail=machine.trail)
    found = compilers.probe_compilers(machine)
    if wanted:
        found = tuple(each for each in found if _WISHES[0] in each.found_via)
    reasons: list[str] = []
    fitting = []
    for each in found:
        if reason := _unfit(each, toolkit, machine):
            reasons.append(f"{each.path} {reason}")
        else:
            fitting.append(each)
    if not fitting:
        raise _none_fits(machine, toolkit, reasons, wanted)
    best = max(fitting, key=_preference)
    return HostCompiler(kind=best.kind, version=best.version, path=best.path, found_via=", ".join(best.found_via))


def _preference(compiler: Compiler) -> tuple[bool, bool, tuple[int, ...]]:
    wished = any(name in compiler.found_via for name in _WISHES)
    return wished, compiler.kind == "gcc", versions.key(compiler.version)


def _unfit(compiler: Compiler, toolkit: Toolkit, machine: World) -> str:
    limits = toolkit.host_compilers
    if (compiler.kind == "msvc") != (machine.platform == "win32"):
        return f"is {compiler.kind}, which nvcc does not take on this system"
    if not (accepted := limits.accepted(compiler.kind)):
        return f"is {compiler.kind}, whose supported versions are not known"
    if limits.refusal(compiler.kind, compiler.version):
        name = _NAMES.get(compiler.kind, compiler.kind)
        return f"is {name} {compiler.version}, but CUDA {toolkit.version} accepts {accepted}"
    if compiler.kind == "msvc":
        return ""  # its version was asked of the program itself
    if "++" not in Path(compiler.path).name:
        return "has no C++ compiler next to it"
    version = machine.output([compiler.path, "-dumpversion"], "host compiler") or ""
    match = _DOTTED.match(version)
    if not match or versions.major(match[0]) != versions.major(compiler.version):
        return f"reports {version.strip() or 'nothing'} when asked again"
    return ""


def _none_fits(machine: World, toolkit: Toolkit, reasons: list[str], wanted: str | None) -> NoHostCompilerError:
    listed = (f"  - {each}" for each in reasons or ["no compiler was found"])
    windows = machine.platform == "win32"
    limit = toolkit.host_compilers.gcc_max
    accepted = f"MSVC {toolkit.host_compilers.accepted('msvc')}" if windows else f"gcc up to {limit}"
    what = f"{wanted} is not a compiler that" if wanted else "no host compiler was found that"
    return NoHostCompilerError(
        (f"{what} nvcc {toolkit.version} accepts ({accepted}):", *listed),
        hint=_BUILD_TOOLS
        if windows
        else ("install one next to the others:", *(f"  {each}" for each in install_commands(limit or 0))),
    )


def install_commands(gcc: int) -> Iterator[str]:
    """How each kind of system gets a gcc of that major version."""
    yield from (command.format(gcc=gcc) for command in _COMMANDS)


_COMMANDS = (
    "apt install g++-{gcc}",
    "dnf install gcc-toolset-{gcc}-gcc-c++   and --host-compiler /opt/rh/gcc-toolset-{gcc}/root/usr/bin/g++",
    "conda install -c conda-forge gxx={gcc}",
)


# The variables that Visual Studio's own prompt sets: where cl.exe and link.exe find headers and libraries.

_SCRIPT = "VC\\Auxiliary\\Build\\vcvars64.bat"
_VARIABLE = "CUWHEEL_VCVARS"
_SCRIPT_S = 120.0  # it looks for SDKs all over the disk
_TOOLSET = re.compile(r"(14\.\d+)\.\d+(?:\.\d+)?", re.ASCII)
_LISTS = ("INCLUDE", "LIB", "LIBPATH", "EXTERNAL_INCLUDE")
# What build systems ask for beside: which toolset, which SDK.
_TOLD = re.compile(r"VC\w*|VS\w*|VisualStudio\w*|Windows(?:Sdk|SDK|Lib)\w*|UCRTVersion|UniversalCRTSdkDir", re.ASCII)
# setuptools and torch take the environment as it is, and do not set up another.
_AS_IT_IS = {"DISTUTILS_USE_SDK": "1", "MSSdk": "1"}


def msvc_settings(machine: World, compiler: HostCompiler) -> tuple[Setting, ...]:
    """Those of the installation and the toolset that the chosen cl.exe is of."""
    studio, toolset = _place(compiler.path)
    script = f"{studio}\\{_SCRIPT}"
    if not machine.exists(script):
        raise UnavailableError(
            f"{compiler.path} has no {_SCRIPT} beside it, which says where its headers are",
            hint='repair the workload "Desktop development with C++" in the Visual Studio Installer',
        )
    printed = _printed(machine, script, toolset)
    before = {name.upper(): value for name, value in machine.environ.items()}
    return tuple(_changed(printed, before))


def _place(path: str) -> tuple[str, str]:
    """`C:\\VS` and `14.44` of C:\\VS\\VC\\Tools\\MSVC\\14.44.35207\\bin\\Hostx64\\x64\\cl.exe."""
    parts = PureWindowsPath(path).parts
    for number, part in enumerate(parts):
        if (match := _TOOLSET.fullmatch(part)) and tuple(parts[number - 3 : number]) == ("VC", "Tools", "MSVC"):
            return str(PureWindowsPath(*parts[: number - 3])), match[1]
    raise UnavailableError(f"{path} is not in a folder of Visual Studio", hint="choose another: --host-compiler cl.exe")


def _printed(machine: World, script: str, toolset: str) -> str:
    """What a script prints, run from a file: cmd.exe quotes words otherwise than any other program.

    And by a variable: it takes the letters in a file for those of the console's code page.
    """
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as folder:
        batch = Path(folder, "variables.bat")
        call = f'@call "%{_VARIABLE}%" -vcvars_ver={toolset} >nul'
        lines = ("@chcp 65001 >nul", call, "@if errorlevel 1 exit /b 1", "@set", "")
        batch.write_bytes("\r\n".join(lines).encode("ascii"))
        shell = machine.environ.get("ComSpec") or machine.environ.get("COMSPEC") or "cmd.exe"
        try:
            environ = {**machine.environ, _VARIABLE: script}
            return machine.run([shell, "/d", "/c", batch], timeout=_SCRIPT_S, check=True, env=environ).stdout
        except CuwheelError as error:
            raise UnavailableError(
                f"{script} does not set up MSVC {toolset}: {error.message}", hint=f"try it: {quoting.here([script])}"
            ) from error


def _changed(printed: str, before: dict[str, str]) -> Iterator[Setting]:
    for line in printed.splitlines():
        name, _, value = line.partition("=")
        if name.upper() == "PATH":
            known = {each.upper() for each in before.get("PATH", "").split(";")}
            added = [each for each in value.split(";") if each and each.upper() not in known]
            yield Setting(name="PATH", value=";".join(added), how="prepend")
        elif name in _LISTS or (_TOLD.fullmatch(name) and before.get(name.upper()) != value):
            yield Setting(name=name, value=value)
    yield from (Setting(name=name, value=value) for name, value in _AS_IT_IS.items())
