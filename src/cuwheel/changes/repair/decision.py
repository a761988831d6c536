"""What repairing a wheel was asked for, what was decided, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.support.finding import Finding

# kept-out: NVIDIA's, a framework's, or asked for. grafted: copied into the wheel. removed: libpython, which every
# interpreter has already. missing: nobody has it.
Fate: TypeAlias = Literal["kept-out", "grafted", "inside", "system", "removed", "missing"]


class Wish(Struct, frozen=True, kw_only=True):
    """`policy`: manylinux_2_28, None for the lowest that fits. `exclude`: sonames (globs), beside NVIDIA's.

    `requires`: write NVIDIA's packages into the metadata. `cuda_major`: where the libraries do not tell it;
    `cuda`: the release, where that is known. `libraries`: folders to look in first.
    """

    policy: str | None = None
    exclude: tuple[str, ...] = ()
    requires: bool = False
    cuda_major: int | None = None
    cuda: str | None = None
    libraries: tuple[Path, ...] = ()


class Looked(Struct, frozen=True, kw_only=True):
    """A folder where a library was looked for: whose word led there, and what was found."""

    folder: str
    via: str
    found: str

    @property
    def odd(self) -> bool:
        """Whether something of that name is there, and is not it."""
        return self.found not in ("not there", "found")


class Fact(Struct, frozen=True, kw_only=True):
    """A library that the wheel, or something that is grafted into it, needs.

    `place`: the file that was found. `packages`: those that bring it; `version`: of what was found; `toolkit`: the
    release of CUDA that it lies with, such as 12.4, where that shows. `glibc`: what it needs itself. `indirect`:
    nothing in the wheel asks for it, only NVIDIA's own libraries do.
    """

    soname: str
    fate: Fate
    reason: str
    needed_by: tuple[str, ...]
    place: str | None = None
    via: str = ""
    bytes: int = 0
    packages: tuple[str, ...] = ()
    version: str | None = None
    toolkit: str | None = None
    cuda: tuple[int, ...] = ()
    glibc: str | None = None
    indirect: bool = False
    trail: tuple[Looked, ...] = ()


class SearchPath(Struct, frozen=True, kw_only=True):
    """Where the loader looks for what a library of the wheel needs, before and after.

    On Windows the path is that of an `__init__.py`, and the folders those that it adds, below site-packages.
    """

    path: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    cuda: int | None = None

    @property
    def changes(self) -> bool:
        return self.before != self.after


class Decision(Struct, frozen=True, kw_only=True):
    """What `execute` does. Nothing to do: `changes` is empty and `refused` false.

    `policy`: such as manylinux_2_28. `because`: what keeps it from being lower. `tags`: of the file name, expanded by
    platform only. `bundled`: what NVIDIA's libraries that were found would have added, unpacked. `excluded`: what
    auditwheel is told to leave out. `folders`: where it looks.
    """

    wheel: Path
    wish: Wish
    file_name: str
    machine: str | None
    policy: str | None
    because: tuple[str, ...]
    platforms: tuple[str, ...]
    libraries: tuple[Fact, ...]
    paths: tuple[SearchPath, ...]
    requires: tuple[str, ...]
    excluded: tuple[str, ...]
    folders: tuple[Path, ...]
    changes: tuple[str, ...]
    bytes_before: int
    bundled: int
    findings: tuple[Finding, ...]
    windows: bool = False

    @property
    def refused(self) -> bool:
        return any(each.severity == "error" for each in self.findings)

    def of(self, fate: Fate) -> tuple[Fact, ...]:
        return tuple(each for each in self.libraries if each.fate == fate)


class Repaired(Struct, frozen=True, kw_only=True):
    """The wheel that was written. `tag`: its platform, such as manylinux_2_28_x86_64."""

    path: Path
    tag: str
    bytes_before: int
    bytes_after: int
    grafted: tuple[str, ...]
    changed: bool
    findings: tuple[Finding, ...] = ()
