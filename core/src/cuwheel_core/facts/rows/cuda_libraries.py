"""CUDA libraries and the packages that bring them."""

from __future__ import annotations

from msgspec import Struct, field

from cuwheel_core.facts import versions
from cuwheel_core.facts.rows.common import Source


class Only(Struct, frozen=True, kw_only=True):
    """The releases, and the processor, on which a package has one of its files. `but`: releases without it."""

    since: str | None = None
    below: str | None = None
    but: tuple[str, ...] = ()
    cpu: str | None = None


class Package(Struct, frozen=True, kw_only=True):
    """An index package (or the driver), and the libraries it puts into `folder` of site-packages.

    `since`, `below`: the releases that have these libraries, where others of the same CUDA have not; `only`: of single
    files. `glibc`: for each machine, what the measured release asks for. `numbered_as_cuda`: its releases have the
    major and minor of the toolkit that they belong to.
    """

    name: str
    sonames: tuple[str, ...]
    source: tuple[str, ...]
    cuda: int | None = None
    numbered_as_cuda: bool = False
    folder: str = ""
    dlls: tuple[str, ...] = ()
    dll_folder: str = ""
    dll_folder_arm64: str = ""
    since: str | None = None
    below: str | None = None
    measured_release: str | None = None
    glibc: dict[str, str] = field(default_factory=dict)
    only: dict[str, Only] = field(default_factory=dict)
    note: str = ""

    def covers(self, release: str) -> bool:
        """Whether the row is of this release of the package."""
        above = self.since is None or versions.at_least(release, self.since)
        return above and not (self.below and versions.at_least(release, self.below))

    def bounds(self, name: str) -> tuple[str | None, str | None]:
        """From which release on it has a file of the row, and from which on no longer."""
        only = self.only.get(name, Only())
        return only.since or self.since, only.below or self.below


class Libraries(Struct, frozen=True, kw_only=True):
    """libraries.toml. `chooses_kernels_itself`: patterns of the components that do; `only_for_tools`: of those that a
    profiler runs. `everyones`: not CUDA's alone.
    """

    sources: dict[str, Source]
    checked: str
    everyones: tuple[str, ...]
    chooses_kernels_itself: tuple[str, ...]
    only_for_tools: tuple[str, ...]
    package: tuple[Package, ...]
