"""CUDA toolkits: the drivers that go with them, their parts and where these are, CMake, CUDA's errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeVar

from cuwheel_core.errors import UnknownNameError
from cuwheel_core.facts import versions
from cuwheel_core.facts.tables import tables
from cuwheel_core.support import bounded, wording
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.support.wording import runs

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch, Capability
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.toolkits import GlibcClash, JetPack, JetsonRelease, Joined, Release, Toolkit


AnyRelease = TypeVar("AnyRelease", bound="Release")

# `cu128` as package indexes write it, `CUDA 12.8`, `v12.8.1`, `12.8`, `13`.
_TAG = lazy_pattern(r"cu(\d{2})(\d*)", re.ASCII)
_VERSION = lazy_pattern(r"(?:cuda)?[\s_-]*v?(\d+)(?:\.(\d+)(?:\.\d+)*)?", re.ASCII)


def all_toolkits() -> tuple[Toolkit, ...]:
    """Those that cuwheel builds with, oldest first."""
    return tables().toolkits.toolkit


def all_releases() -> tuple[Release, ...]:
    """All releases, oldest first, with the earlier ones, which drivers came for and wheels were built with."""
    return (*tables().toolkits.earlier, *tables().toolkits.toolkit)


def newest_toolkit() -> Toolkit:
    return all_toolkits()[-1]


def find_toolkit(text: str) -> Toolkit:
    """`12.8`, `12.8.1`, `cu128`; a major version alone means its newest minor."""
    return _find(text, all_toolkits())


def find_release(text: str) -> Release:
    """Finds a release as `find_toolkit` does, also those that nobody builds with any more."""
    return _find(text, all_releases())


def _find(text: str, among: tuple[AnyRelease, ...]) -> AnyRelease:
    cleaned = text.strip().lower()
    match = _TAG.fullmatch(cleaned) or _VERSION.fullmatch(cleaned)
    if match and not match[2]:
        rows = [row for row in among if row.major == bounded.digits(match[1])]
    elif match:
        wanted = f"{bounded.digits(match[1])}.{bounded.digits(match[2])}"
        rows = [row for row in among if row.version == wanted]
    else:
        rows = []
    if rows:
        return rows[-1]
    known = [row.version for row in among]
    if not match:
        raise UnknownNameError("CUDA toolkit", text, wording.similar_names(cleaned, known) or [known[-1]])
    number = [bounded.digits(match[1]), bounded.digits(match[2] or "0")]
    older = [each for each in known if [bounded.digits(part) for part in each.split(".")] < number]
    near = [*older[-1:], *known[len(older) : len(older) + 1]]  # those on both sides of it
    hint = f"the nearest {'are' if near[1:] else 'is'} {' and '.join(near)}"
    raise UnknownNameError("CUDA toolkit", text, near, hint=hint)


def span(rows: Iterable[Release]) -> str:
    """`CUDA 11.8 to 12.9, 13.4`: a run has no known release missing in between."""
    found = runs(rows, all_releases())
    named = (run[0].version if len(run) == 1 else f"{run[0].version} to {run[-1].version}" for run in found)
    return "CUDA " + ", ".join(named)


def toolkits_supporting(arch: Arch) -> tuple[Toolkit, ...]:
    """Oldest first; the first and the last are the ends of its support as far as the table goes."""
    return tuple(row for row in all_toolkits() if row.supports(arch))


@cache
def first_specific() -> Capability:
    """The oldest capability that has an architecture-specific variant (`a`)."""
    return min(arch.capability for row in all_toolkits() for arch in row.archs if arch.suffix == "a")


@lru_cache(maxsize=1024)
def driver_cuda(driver: str, system: OperatingSystem = "linux") -> Release | None:
    """The newest release all of whose features a driver knows; None for a driver older than the table.

    A branch alone (`570`) is what all of its drivers came for. Where the table does not know the drivers of newer
    toolkits (Windows), the answer is a lower bound.
    """
    fitting = [row for row in all_releases() if reaches(driver, row.driver.on(system))]
    return fitting[-1] if fitting else None


def minor_compat_floor(major: int, system: OperatingSystem = "linux") -> str | None:
    """The driver from which on machine code of every minor release of a major runs; None: not known."""
    for row in tables().toolkits.minor_compatibility:
        if row.major == major:
            return row.on(system)
    return None


def has_minor_compatibility(major: int) -> bool:
    """Whether the releases of a major run on each other's drivers: of later majors than the table's, too."""
    return major >= min(row.major for row in tables().toolkits.minor_compatibility)


def oldest_running(cuda: str) -> str:
    """The CUDA of the oldest driver that runs what a release made: `12` for 12.4, but `10.1` itself."""
    return str(versions.major(cuda)) if has_minor_compatibility(versions.major(cuda)) else versions.minor(cuda)


def runtime_floor(cuda: str, system: OperatingSystem = "linux") -> str | None:
    """The driver from which on the CUDA runtime of a release works; None: not known.

    `cuda`: a major alone is enough where there is minor-version compatibility; before, it means its first release.
    """
    if has_minor_compatibility(versions.major(cuda)):
        return minor_compat_floor(versions.major(cuda), system)
    row = next((row for row in all_releases() if versions.at_least(row.version, versions.minor(cuda))), None)
    return row.driver.on(system) if row else None


def zstd_floor(system: OperatingSystem = "linux") -> str | None:
    """The driver from which on fat binaries compressed with ZSTD can be read; None: not known."""
    return tables().toolkits.zstd_fat_binaries.on(system)


def forward_compatible(product: str) -> bool:
    """Whether the forward-compatibility package is for this line of products."""
    return product in tables().toolkits.forward_compatibility.products


def one_arm64_since() -> str:
    """The first CUDA of which servers and Jetson share one distribution."""
    return tables().toolkits.arm64.one_distribution_since


def one_arm64(toolkit: Toolkit) -> bool:
    """Whether servers and Jetson share one distribution of this toolkit."""
    return versions.at_least(toolkit.version, one_arm64_since())


def joined_arm64(capability: Capability | None) -> Joined | None:
    """Since when a Tegra is served by the single distribution; None if that is not known."""
    return next((row for row in tables().toolkits.arm64.joined if row.capability == capability), None)


def last_joined() -> str:
    """The CUDA from which on every Jetson that is known to share one distribution does."""
    return max((row.cuda for row in tables().toolkits.arm64.joined), key=versions.key)


def jetson_release(l4t: str) -> JetsonRelease | None:
    """The JetPack and the CUDA of a release of L4T; None where it is not known."""
    same = [
        row for row in tables().toolkits.jetson if l4t[:1].isdigit() and versions.major(row.l4t) == versions.major(l4t)
    ]
    reached = [row for row in same if versions.at_least(l4t, row.l4t)]
    return reached[-1] if reached else None


def jetpack_of(l4t: str) -> JetPack | None:
    """What all releases of that JetPack have; None where it is not known."""
    known = versions.major(l4t) if l4t[:1].isdigit() else None
    return next((row for row in tables().toolkits.jetpack if known in row.l4t), None)


def glibc_clash(toolkit: Toolkit, glibc: str) -> GlibcClash | None:
    """Why this toolkit's headers do not compile on a machine with this glibc; None if they do."""
    for row in tables().toolkits.glibc_clash:
        if versions.at_least(glibc, row.glibc) and versions.at_least(row.last_broken, toolkit.version):
            return row
    return None


def reaches(driver: str, floor: str | None) -> bool:
    """Whether a driver is at least this new; a branch alone (`570`) stands for its drivers. False: not known."""
    if floor is None:
        return False
    return versions.at_least(driver, floor if "." in driver else str(versions.major(floor)))


# Questions about what a toolkit is made of, and where it can be had.


# From which CMake on a spelling of CMAKE_CUDA_ARCHITECTURES is understood.


# CUDA's errors by number: their names, and what they mean.
