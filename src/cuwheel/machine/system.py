"""The operating system and what it runs in: distribution, C library, Jetson, WSL, container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.facts import toolkits, versions
from cuwheel.machine.profile import Fact, System

if TYPE_CHECKING:
    from pathlib import Path

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
    text = world.text("/etc/nv_tegra_release") or ""
    if match := _L4T.search(text):
        return Fact(value=f"{match[1]}.{match[2]}", found_via="/etc/nv_tegra_release")
    return None


def _jetpack(world: World) -> Fact | None:
    """As installed; the board's own system has no such package, and its L4T tells."""
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
