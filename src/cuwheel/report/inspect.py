"""`cuwheel inspect`: the answer. Its document is made elsewhere: JSON has no use for it, and takes half the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cuwheel.compat.coverage import Coverage
from cuwheel.finding import Finding
from cuwheel.inspection.description import Description
from cuwheel.inspection.libraries import Library
from cuwheel.wheel.metadata import Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCoverage:
    path: str
    coverage: Coverage
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspect:
    schema: Literal["cuwheel.inspect/1"] = "cuwheel.inspect/1"
    target: str
    kind: str
    size: int
    distribution: Distribution | None
    libraries: tuple[Library, ...]
    coverage: tuple[LibraryCoverage, ...]
    findings: tuple[Finding, ...]
    description: Description | None = None  # what cuwheel wrote into a wheel that it built

    @property
    def succeeded(self) -> bool:
        """False where something in the target could not be read."""
        everything = (*self.findings, *(each for library in self.libraries for each in library.findings))
        return all(finding.severity != "error" for finding in everything)
