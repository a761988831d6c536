"""The operating system and what it runs in, the variables that affect CUDA, and how much may run at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from cuwheel.facts import spellings
from cuwheel.machine import compilers, python_environment
from cuwheel.machine.profile import Fact, LibraryFolder, System, Variable
from cuwheel.support import codec
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.cuda_libraries import is_cuda_library
from cuwheel_core.support import bounded, opening, wording

if TYPE_CHECKING:
    from cuwheel.machine.world import World


_LIBRARY_FOLDERS = (
    "/usr/lib/{cpu}-linux-gnu",
    "/usr/lib64",
    "/lib/{cpu}-linux-gnu",
    "/lib64",
    "/usr/lib",
    "/lib",
)
_WINDOWS = "C:\\Windows"
_GLIBCXX = re.compile(rb"GLIBCXX_(3(?:\.\d+){1,3})\0")
TEGRA_RELEASE = "/etc/nv_tegra_release"  # of a Jetson
_L4T = re.compile(r"R(\d+) \(release\), REVISION: ([\d.]+)")
_JETPACK = re.compile(r"^Package: nvidia-jetpack\n(?:.+\n)*?Version: ([\d.]+)", re.MULTILINE)
_OS_NAMES = {"win32": "Windows", "darwin": "macOS", "linux": "Linux"}
_CGROUP_ENGINES = ("docker", "kubepods", "containerd", "lxc", "podman")


def probe_system(world: World) -> System:
    return System(
        os=Fact(value=_OS_NAMES.get(world.platform, world.platform), found_via="the interpreter"),
        cpu=Fact(value=world.cpu, found_via="uname"),
        distribution=_distribution(world),
        glibc=_glibc(world),
        glibcxx=_glibcxx(world),
        l4t=_l4t(world),
        jetpack=_jetpack(world),
        wsl=_wsl(world),
        container=_container(world),
        shell=Fact(value=world.shell, found_via="the programs that started cuwheel")
        if world.shell and world.platform == "win32"
        else None,
    )


def library_folders(world: World) -> tuple[str, ...]:
    if world.platform == "win32":
        return (f"{world.environ.get('SystemRoot', _WINDOWS)}\\System32",)
    return tuple(folder.format(cpu=world.cpu) for folder in _LIBRARY_FOLDERS)


def _distribution(world: World) -> Fact | None:
    if world.platform == "win32":
        return Fact(value=world.system_version, found_via="the system") if world.system_version else None
    text = world.text("/etc/os-release") or ""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = (fields.get("PRETTY_NAME") or fields.get("NAME") or "").strip("\"'")
    return Fact(value=name, found_via="/etc/os-release") if name else None


def _glibc(world: World) -> Fact | None:
    if world.platform == "win32":
        return None
    if not world.libc_version:
        world.note("glibc", "confstr CS_GNU_LIBC_VERSION", "not a glibc system")
        return None
    return Fact(value=world.libc_version, found_via="confstr CS_GNU_LIBC_VERSION")


def _glibcxx(world: World) -> Fact | None:
    """The highest symbol version that the system's libstdc++ defines: what a wheel may ask for."""
    if world.platform == "win32":
        return None
    for folder in library_folders(world):
        path = world.path(folder) / "libstdc++.so.6"
        if found := _highest_glibcxx(path):
            return Fact(value=found, found_via=world.shown(path))
    world.note("glibcxx", ", ".join(library_folders(world)), "no libstdc++.so.6")
    return None


def _highest_glibcxx(path: Path) -> str | None:
    try:
        found = {match.decode() for match in _GLIBCXX.findall(path.read_bytes())}
    except OSError:
        return None
    return max(found, key=versions.key, default=None)


def _l4t(world: World) -> Fact | None:
    text = world.text(TEGRA_RELEASE) or ""
    if match := _L4T.search(text):
        return Fact(value=f"{match[1]}.{match[2]}", found_via=TEGRA_RELEASE)
    return None


def _jetpack(world: World) -> Fact | None:
    """The JetPack that is installed; the board's own system has no such package, and its L4T tells."""
    where = "/var/lib/dpkg/status"
    if match := _JETPACK.search(world.text(where) or ""):
        return Fact(value=match[1], found_via=where)
    l4t = _l4t(world)
    row = toolkits.jetson_release(l4t.value) if l4t else None
    return Fact(value=row.jetpack, found_via=f"L4T {row.l4t}") if row else None


def _wsl(world: World) -> Fact | None:
    where = "/proc/sys/kernel/osrelease"
    release = (world.text(where) or "").lower()
    if "microsoft" not in release:
        return None
    return Fact(value="2" if "wsl2" in release or "standard" in release else "1", found_via=where)


def _container(world: World) -> Fact | None:
    for marker, engine in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        if world.exists(marker):
            return Fact(value=engine, found_via=marker)
    if named := world.environ.get("container"):
        return Fact(value=named, found_via="the variable 'container'")
    groups = world.text("/proc/1/cgroup") or ""
    for engine in _CGROUP_ENGINES:
        if engine in groups:
            return Fact(value=engine, found_via="/proc/1/cgroup")
    return None


# The environment variables that affect CUDA, where each is set, and the folders the loader searches.


VARIABLE_NAMES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDAToolkit_ROOT",
    "CUDACXX",
    "CC",
    "CXX",
    "CUDAHOSTCXX",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CUDNN_PATH",
    "LD_LIBRARY_PATH",
    *spellings.VARIABLES,
    "BNB_CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_MODULE_LOADING",
    "MAX_JOBS",
)
# Where NVIDIA's packages put libraries, and torch those that it brings for Windows.
_PACKAGE_FOLDERS = ("nvidia/*/lib", "nvidia/*/bin", "nvidia/*/bin/x86_64", "torch/lib")


def probe_variables(world: World, prefix: Path | None = None) -> tuple[Variable, ...]:
    """The process's own win over a project's, as cargo has it, unless the project forces its own.

    `prefix`: the environment that was asked for; what activating it sets wins over both.
    """
    found = {
        name: Variable(name=name, value=value, found_via="environment")
        for name in (*VARIABLE_NAMES, *compilers.versioned_variables(world))
        if (value := world.environ.get(name)) is not None
    }
    for variable, forced in cargo_variables(world):
        if variable.name in VARIABLE_NAMES and (forced or variable.name not in found):
            found[variable.name] = variable
    if prefix:
        activated = python_environment.activation_variables(world, prefix, VARIABLE_NAMES)
        found |= {each.name: each for each in activated}
    known = [found[name] for name in VARIABLE_NAMES if name in found]
    return (*known, *(each for name, each in found.items() if name not in VARIABLE_NAMES))


def cargo_variables(world: World) -> Iterator[tuple[Variable, bool]]:
    """`[env]` of .cargo/config.toml here and above, then cargo's own, the nearest winning; and whether it is forced."""
    seen: set[str] = set()
    for home in _cargo_homes(world):
        for name in ("config.toml", "config"):
            for key, entry in _cargo_env(world, home / name).items():
                value, forced = _cargo_value(entry, home.parent)
                if key not in seen and value is not None:
                    seen.add(key)
                    yield Variable(name=key, value=value, found_via=world.shown(home / name)), forced


def _cargo_homes(world: World) -> Iterator[Path]:
    yield from (folder / ".cargo" for folder in (world.cwd, *world.cwd.parents))
    home = world.environ.get("HOME") or world.environ.get("USERPROFILE")
    if own := world.environ.get("CARGO_HOME") or (f"{home}/.cargo" if home else ""):
        yield world.path(own)


def _cargo_env(world: World, where: Path) -> dict[str, Any]:
    if not opening.is_file(where):
        return {}
    try:
        env = codec.read_toml(where).get("env", {})
    except (OSError, msgspec.DecodeError) as error:
        world.note("variables", world.shown(where), f"cannot be read: {error}")
        return {}
    return env if isinstance(env, dict) else {}


def _cargo_value(entry: object, folder: Path) -> tuple[str | None, bool]:
    if isinstance(entry, str):
        return entry, False
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), str):
        return None, False
    value = entry["value"]
    return str(folder / value) if entry.get("relative") is True else value, entry.get("force") is True


def probe_library_folders(world: World, site_packages: Sequence[Path]) -> tuple[LibraryFolder, ...]:
    """In the loader's order: LD_LIBRARY_PATH before what the environment's packages bring, the system last.

    On Windows packages add their own folders, then comes the system's, then PATH.
    """
    on_windows = world.platform == "win32"
    folders = (
        [] if on_windows else [(each, "LD_LIBRARY_PATH") for each in map(world.path, world.entries("LD_LIBRARY_PATH"))]
    )
    for packages in site_packages:
        for pattern in _PACKAGE_FOLDERS:
            folders += [(folder, "site-packages") for folder in sorted(packages.glob(pattern))]
    found = [
        LibraryFolder(path=world.shown(folder), libraries=_cuda_libraries(folder), found_via=found_via)
        for folder, found_via in folders
    ]
    return (*found, *_system_folders(world))


def _system_folders(world: World) -> Iterator[LibraryFolder]:
    """Those of the system, and of conda, that hold CUDA's libraries; links to one folder are one."""
    prefix = world.environ.get("CONDA_PREFIX")
    on_windows = world.platform == "win32"
    places = [(f"{prefix}/{'Library/bin' if on_windows else 'lib'}", "conda")] if prefix else []
    places += [(each, "system") for each in library_folders(world)]
    places += [(each, "PATH") for each in world.entries("PATH")] if on_windows else []
    seen: set[Path] = set()
    for place, found_via in places:
        folder = world.path(place)
        names = _cuda_libraries(folder) if folder.resolve() not in seen else ()
        seen.add(folder.resolve())
        if names:
            yield LibraryFolder(path=world.shown(folder), libraries=names, found_via=found_via)


def _cuda_libraries(folder: Path) -> tuple[str, ...]:
    """CUDA's libraries in a folder, by soname: development links and full versions of the same library are one."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return ()
    return tuple(name for name in names if is_cuda_library(name))


# How much may run at once: by the cores and the memory that this process may use.

MEMORY_A_COMPILER = 2 * 10**9  # what a call of nvcc on templates takes at its worst, for one architecture
_MOST_THREADS = 4
_CORES_A_THREAD = 4
_GROUP = Path("/sys/fs/cgroup")


class Share(Struct, frozen=True, kw_only=True):
    """`jobs`: compilers at once. `threads`: architectures that one call of nvcc compiles at once."""

    jobs: int
    threads: int
    why: str


def compile_share(architectures: int, *, jobs: int | None = None) -> Share:
    """`jobs`: what the user said."""
    cores, memory = available_resources()
    return divide_machine(cores, memory, architectures, jobs=jobs)


def divide_machine(cores: int, memory: int | None, architectures: int, *, jobs: int | None = None) -> Share:
    """Files before architectures: a build has more of them. With many cores nvcc's own threads use what is left."""
    slots = jobs or (cores if memory is None else max(1, min(cores, memory // MEMORY_A_COMPILER)))
    why = f"{jobs} by --jobs" if jobs else f"{cores} cores"
    why += f", {wording.size(memory)} of memory" if memory is not None and not jobs else ""
    threads = max(1, min(architectures, slots // _CORES_A_THREAD, _MOST_THREADS))
    return Share(jobs=max(1, slots // threads), threads=threads, why=why)


def compilers_at_once(cores: int) -> int:
    """How many may run at once on so many cores of this machine, by its memory."""
    memory = available_resources()[1]
    return cores if memory is None else max(1, min(cores, memory // MEMORY_A_COMPILER))


def available_resources() -> tuple[int, int | None]:
    """Cores and bytes: of the machine, less what a container or a service manager withholds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = (*_words_of_file(_GROUP / "cpu.max"), "", "")[:2]
    if quota.isdecimal() and period.isdecimal() and bounded.digits(period):
        cores = max(1, min(cores, round(bounded.digits(quota) / bounded.digits(period))))
    limit = next(iter(_words_of_file(_GROUP / "memory.max")), "")
    used = next(iter(_words_of_file(_GROUP / "memory.current")), "")
    free = _free_memory()
    if limit.isdecimal():
        allowed = bounded.digits(limit) - (bounded.whole(used) or 0)
        free = allowed if free is None else min(free, allowed)
    return cores, None if free is None else max(free, 0)


def _words_of_file(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []


def _free_memory() -> int | None:
    words = _words_of_file(Path("/proc/meminfo"))
    if "MemAvailable:" not in words:
        return None
    kilobytes = words[words.index("MemAvailable:") + 1]
    return bounded.digits(kilobytes) * 1024 if kilobytes.isdecimal() else None
