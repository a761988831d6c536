"""What repairing wheels came to, or would come to: the answer that JSON shows."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.support.answer import Answer
from cuwheel_core.support.finding import Finding

Outcome: TypeAlias = Literal["repaired", "unchanged", "refused"]
# kept-out: NVIDIA's, a framework's, or asked for. grafted: copied into the wheel. removed: libpython, which every
# interpreter has already. missing: nobody has it.
Fate: TypeAlias = Literal["kept-out", "grafted", "inside", "system", "removed", "missing"]


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


class RepairedWheel(Struct, frozen=True, kw_only=True):
    """One wheel. `tags`: its platforms afterwards; `because`: what keeps them from being lower.

    `bundled`: what NVIDIA's libraries that were found would have added, unpacked. `output`: null where nothing is
    written. `grafted`: the files that are new in it.
    """

    wheel: str
    outcome: Outcome
    machine: str | None
    policy: str | None
    because: tuple[str, ...]
    tags: tuple[str, ...]
    output: str | None
    bytes_before: int
    bytes_after: int | None
    bundled: int
    changes: tuple[str, ...]
    grafted: tuple[str, ...]
    requires: tuple[str, ...]
    libraries: tuple[Fact, ...]
    paths: tuple[SearchPath, ...]
    findings: tuple[Finding, ...]


class Repair(Answer, frozen=True, kw_only=True):
    """With `dry_run` nothing was written, and the outcomes are those that would be."""

    schema: Literal["cuwheel.repair/1"] = "cuwheel.repair/1"
    dry_run: bool
    wheels: tuple[RepairedWheel, ...]

    @property
    def succeeded(self) -> bool:
        return all(each.outcome != "refused" for each in self.wheels)
