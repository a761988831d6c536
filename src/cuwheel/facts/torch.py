"""What PyTorch's build helpers take as TORCH_CUDA_ARCH_LIST. `release`: of PyTorch, else the newest."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cuwheel.facts import versions
from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from cuwheel.facts.arch import Arch

_MINORS, _PATCHES = 99, 9  # of a major release, as far as a requirement is tried


@cache
def architectures(release: str | None = None) -> tuple[str, ...]:
    """As it writes them, `9.0a`. A release older than the table is taken for its first."""
    found: list[str] = []
    for row in tables().torch.change:
        if found and release and not versions.at_least(release, row.since):
            break
        found = [each for each in found if each not in row.drops] + list(row.adds)
    return tuple(found)


def takes(arch: Arch, release: str | None = None) -> bool:
    """Whether an architecture is in its list; it refuses all others."""
    return spelled(arch) in architectures(release)


def taken_by(arch: Arch) -> str:
    """The releases that take it, in words; empty where none does."""
    text = spelled(arch)
    since = next((row.since for row in tables().torch.change if text in row.adds), "")
    below = next((row.since for row in tables().torch.change if text in row.drops), "")
    return f"{since} or later, before {below}" if below else f"{since} or later" if since else ""


def spelled(arch: Arch) -> str:
    """`sm_90a` as it writes it: `9.0a`."""
    return f"{arch.capability}{arch.suffix}"


def named(name: str, release: str | None = None) -> str | None:
    """`Ampere` as the list that it stands for; None for a name that it does not know."""
    for row in reversed(tables().torch.name):  # the newest meaning last
        fits = release is None or (
            (row.since is None or versions.at_least(release, row.since))
            and (row.below is None or not versions.at_least(release, row.below))
        )
        if fits and row.name.lower() == name.lower():
            return row.means
    return None


def newest_within(limits: SpecifierSet) -> str | None:
    """The release that a requirement pins, else the newest that it allows; None where it allows all to come."""
    from packaging.version import Version  # noqa: PLC0415 - few requirements name it

    for each in limits:
        if each.operator == "==" and not each.version.endswith(".*"):
            return Version(each.version).public
    major = versions.major(tables().torch.change[0].since)
    if limits.contains(f"{major}.{_MINORS}.0") or limits.contains(f"{major + 1}.0.0"):
        return None
    tried = (f"{major}.{minor}.{patch}" for minor in range(_MINORS, -1, -1) for patch in range(_PATCHES, -1, -1))
    return next(filter(limits.contains, tried), None)
