"""Questions about CUDA toolkits and the drivers that go with them."""

from __future__ import annotations

import difflib
import re
from functools import cache
from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import versions
from cuwheel.facts.arch import Arch, Capability
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.facts.rows.common import OperatingSystem
    from cuwheel.facts.rows.toolkits import GlibcClash, JetsonRelease, Joined, Toolkit

# `cu128` as package indexes write it, `CUDA 12.8`, `v12.8.1`, `12.8`, `13`.
_TAG = re.compile(r"cu(\d{2})(\d*)", re.ASCII)
_VERSION = re.compile(r"(?:cuda)?[\s_-]*v?(\d+)(?:\.(\d+)(?:\.\d+)*)?", re.ASCII)


def all_toolkits() -> tuple[Toolkit, ...]:
    """Oldest first."""
    return tables().toolkits.toolkit


def oldest_toolkit() -> Toolkit:
    return all_toolkits()[0]


def newest_toolkit(major: int | None = None) -> Toolkit:
    """Of all, or of one major version."""
    rows = [row for row in all_toolkits() if major in (None, row.major)]
    if not rows:
        raise UnknownNameError("CUDA toolkit", str(major), [newest_toolkit().version])
    return rows[-1]


def find_toolkit(text: str) -> Toolkit:
    """`12.8`, `12.8.1`, `cu128`; a major version alone means its newest minor."""
    cleaned = text.strip().lower()
    match = _TAG.fullmatch(cleaned) or _VERSION.fullmatch(cleaned)
    if match and not match[2]:
        rows = [row for row in all_toolkits() if row.major == int(match[1])]
    elif match:
        wanted = f"{int(match[1])}.{int(match[2])}"
        rows = [row for row in all_toolkits() if row.version == wanted]
    else:
        rows = []
    if rows:
        return rows[-1]
    known = [row.version for row in all_toolkits()]
    spelled = f"{match[1]}.{match[2] or 0}" if match else cleaned
    near = difflib.get_close_matches(spelled, known, n=3) or [known[-1]]
    raise UnknownNameError("CUDA toolkit", text, near)


def span(rows: Iterable[Toolkit]) -> str:
    """`CUDA 11.8 to 12.9, 13.4`: a run has no known toolkit missing in between."""
    known = all_toolkits()
    runs: list[list[Toolkit]] = []
    for row in rows:
        if runs and known.index(row) == known.index(runs[-1][-1]) + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    named = (run[0].version if len(run) == 1 else f"{run[0].version} to {run[-1].version}" for run in runs)
    return "CUDA " + ", ".join(named)


def toolkits_supporting(arch: Arch) -> tuple[Toolkit, ...]:
    """Oldest first; the first and the last are the ends of its support as far as the table goes."""
    return tuple(row for row in all_toolkits() if row.supports(arch))


@cache
def first_specific() -> Capability:
    """The oldest capability that has an architecture-specific variant (`a`)."""
    archs = (Arch.parse(each) for row in all_toolkits() for each in row.architectures)
    return min(arch.capability for arch in archs if arch.suffix == "a")


def driver_cuda(driver: str, system: OperatingSystem = "linux") -> Toolkit | None:
    """The newest toolkit all of whose features a driver knows; None for a driver older than the table.

    Where the table does not know the drivers of newer toolkits (Windows), the answer is a lower bound.
    """
    fitting = [row for row in all_toolkits() if _reaches(driver, row.driver.on(system))]
    return fitting[-1] if fitting else None


def minor_compat_floor(major: int, system: OperatingSystem = "linux") -> str | None:
    """The driver from which on machine code of every minor release of a major runs; None: not known."""
    for row in tables().toolkits.minor_compatibility:
        if row.major == major:
            return row.on(system)
    return None


def zstd_floor(system: OperatingSystem = "linux") -> str | None:
    """The driver from which on fat binaries compressed with ZSTD can be read; None: not known."""
    return tables().toolkits.zstd_fat_binaries.on(system)


def forward_compatible(product: str) -> bool:
    """Whether the forward-compatibility package is for this line of products."""
    return product in tables().toolkits.forward_compatibility.products


def one_arm64(toolkit: Toolkit) -> bool:
    """Whether servers and Jetson share one distribution of this toolkit."""
    return versions.at_least(toolkit.version, tables().toolkits.arm64.one_distribution_since)


def joined_arm64(capability: str) -> Joined | None:
    """From when on a Tegra is served by the one distribution; None: nobody has said so."""
    return next((row for row in tables().toolkits.arm64.joined if row.capability == capability), None)


def jetson_release(l4t: str) -> JetsonRelease | None:
    """The JetPack and the CUDA of a release of L4T; None where it is not known."""
    same = [
        row for row in tables().toolkits.jetson if l4t[:1].isdigit() and versions.major(row.l4t) == versions.major(l4t)
    ]
    reached = [row for row in same if versions.at_least(l4t, row.l4t)]
    return reached[-1] if reached else None


def glibc_clash(toolkit: Toolkit, glibc: str) -> GlibcClash | None:
    """Why this toolkit's headers do not compile on a machine with this glibc; None if they do."""
    for row in tables().toolkits.glibc_clash:
        if versions.at_least(glibc, row.glibc) and versions.at_least(row.last_broken, toolkit.version):
            return row
    return None


def _reaches(driver: str, floor: str | None) -> bool:
    return floor is not None and versions.at_least(driver, floor)
