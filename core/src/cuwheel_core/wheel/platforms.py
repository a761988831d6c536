"""Platform tags of wheels: the system, the processor and the C library that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from cuwheel_core.support.patterns import lazy_pattern

# Do a wheel's tags allow it on a machine: Python, ABI, operating system, processor, C library.


# The glibc that the old names of manylinux stand for (PEP 600). packaging has the same, for its own use alone.
LEGACY_MANYLINUX = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_OLDEST_MANYLINUX = 5  # minor of glibc 2
_MANYLINUX = lazy_pattern(r"manylinux_(\d+)_(\d+)_(.+)", re.ASCII)
_OTHER_SYSTEMS = {"macosx": "macOS", "ios": "iOS", "android": "Android", "musllinux": "Linux with musl"}  # without CUDA
WINDOWS_CPUS = {"win_amd64": "x86_64", "win_arm64": "aarch64", "win32": "i686"}


def linux_platforms(cpu: str, newest: int) -> Iterator[str]:
    """What an installer takes where glibc is 2.`newest`, the best first; also by their old names."""
    for minor in range(newest, _OLDEST_MANYLINUX - 1, -1):
        yield f"manylinux_2_{minor}_{cpu}"
        yield from (f"{name}_{cpu}" for name, glibc in LEGACY_MANYLINUX.items() if glibc == f"2.{minor}")
    yield f"linux_{cpu}"


class Platform(Struct, frozen=True, kw_only=True):
    os: str | None = None
    cpu: str | None = None
    glibc: str | None = None


def platform_of(platform: str) -> Platform:
    if platform in WINDOWS_CPUS:
        return Platform(os="windows", cpu=WINDOWS_CPUS[platform])
    if match := _MANYLINUX.fullmatch(platform):
        return Platform(os="linux", cpu=match[3], glibc=f"{match[1]}.{match[2]}")
    name, _, cpu = platform.partition("_")
    if name in LEGACY_MANYLINUX:
        return Platform(os="linux", cpu=cpu, glibc=LEGACY_MANYLINUX[name])
    if name in _OTHER_SYSTEMS:
        return Platform(os=_OTHER_SYSTEMS[name])
    return Platform(os="linux", cpu=cpu) if name == "linux" else Platform()
