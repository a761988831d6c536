"""CUDA libraries and the packages that bring them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An index package (or the driver), and the libraries it puts into `folder` of site-packages.

    `since`, `below`: the releases that have these libraries, where others of the same CUDA have not. `glibc`: for each
    machine, what the measured release asks for.
    """

    name: str
    sonames: tuple[str, ...]
    source: tuple[str, ...]
    cuda: int | None = None
    folder: str = ""
    dlls: tuple[str, ...] = ()
    dll_folder: str = ""
    since: str | None = None
    below: str | None = None
    measured_release: str | None = None
    glibc: dict[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """libraries.toml. `chooses_kernels_itself`: patterns of the components that do."""

    sources: dict[str, Source]
    chooses_kernels_itself: tuple[str, ...]
    package: tuple[Package, ...]
