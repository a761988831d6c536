"""`cuwheel inspect`: the answer. Its document is made elsewhere: JSON has no use for it, and takes half the time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.device_code.contents import Bitcode, Survey
from cuwheel.device_code.coverage import KernelMatrix
from cuwheel.device_code.description import Description
from cuwheel.support.answer import Answer
from cuwheel.verdicts import library_rules
from cuwheel.wheel.variant import Variant
from cuwheel_core.device_code.libraries import Library
from cuwheel_core.support.finding import Finding
from cuwheel_core.verdicts import predict
from cuwheel_core.verdicts.predict import Coverage
from cuwheel_core.wheel.metadata import Distribution


class LibraryCoverage(Struct, frozen=True, kw_only=True):
    path: str
    coverage: Coverage
    words: str


class Inspect(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.inspect/1"] = "cuwheel.inspect/1"
    target: str
    kind: str
    size: int
    distribution: Distribution | None
    libraries: tuple[Library, ...]
    coverage: tuple[LibraryCoverage, ...]
    findings: tuple[Finding, ...]
    description: Description | None = None  # what cuwheel wrote into a wheel that it built
    variant: Variant | None = None  # what it says it is a variant for
    bitcode: tuple[Bitcode, ...] = ()
    kernel_matrix: KernelMatrix | None = None  # kernels × GPUs, where that was asked for

    @property
    def succeeded(self) -> bool:
        """False where something in the target could not be read."""
        everything = (*self.findings, *(each for library in self.libraries for each in library.findings))
        return all(finding.severity != "error" for finding in everything)


def answer_of(found: Survey, *, entries: bool) -> Inspect:
    """`entries`: with every container."""
    reaches = [(library, predict.coverage_of(library)) for library in found.libraries]
    return Inspect(
        target=found.target,
        kind=found.kind,
        size=found.size,
        distribution=found.distribution,
        libraries=tuple(
            replace(
                library,
                findings=(*library.findings, *library_rules.examine(library)),
                containers=library.containers if entries else (),
            )
            for library in found.libraries
        ),
        coverage=tuple(
            LibraryCoverage(
                path=library.path,
                coverage=reach,
                words=predict.coverage_in_words(reach, once_linked=library.type == "relocatable"),
            )
            for library, reach in reaches
            if reach
        ),
        findings=found.findings,
        description=found.description,
        variant=found.variant,
        bitcode=found.bitcode,
    )
