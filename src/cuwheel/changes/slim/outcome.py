"""What slimming a wheel, a folder or an environment came to, or would come to."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel.changes.binaries.decisions import Dropped, Recompressed
from cuwheel.changes.slim.use import Kept
from cuwheel.support.finding import Finding

Fate: TypeAlias = Literal["slimmed", "removed", "restored", "unchanged"]


class Size(Struct, frozen=True, kw_only=True):
    bytes_before: int
    bytes_after: int


class FileChange(Struct, frozen=True, kw_only=True):
    """One library with device code. In a dry run `bytes_after` and `recompressed` are estimates."""

    path: str
    fate: Fate
    bytes_before: int
    bytes_after: int
    dropped: tuple[Dropped, ...] = ()
    recompressed: tuple[Recompressed, ...] = ()


class Remaining(Struct, frozen=True, kw_only=True):
    """What the libraries still consist of: `host code`, `device code` and so on."""

    name: str
    bytes: int


class Heavy(Struct, frozen=True, kw_only=True):
    """A library that slim left as it is, or nearly, and what most of it is."""

    path: str
    bytes: int
    mostly: str


class Outcome(Struct, frozen=True, kw_only=True):
    """`output`: what was written. `wheel`: the sizes of the zip files; null where there is none.

    `refused`: nothing was written, because a target would have lost code. `undo`: how to take it back, while
    that is possible. `kept`: of cutting by use, what is left of each library.
    """

    files: tuple[FileChange, ...]
    remaining: tuple[Remaining, ...]
    heavy: tuple[Heavy, ...]
    findings: tuple[Finding, ...]
    written: bool
    refused: bool = False
    output: str | None = None
    wheel: Size | None = None
    undo: str | None = None
    kept: tuple[Kept, ...] = ()

    @property
    def total(self) -> Size:
        return Size(
            bytes_before=sum(each.bytes_before for each in self.files),
            bytes_after=sum(each.bytes_after for each in self.files),
        )
