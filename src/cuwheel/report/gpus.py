"""`cuwheel lookup gpu`: the answer and its document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from cuwheel.report.document import Document
from cuwheel.report.tables import Facts, Row, table
from cuwheel.support.answer import Answer
from cuwheel_core.facts.arch import Arch, Capability
from cuwheel_core.facts.gpus import Gpu, driver_support, find_architecture
from cuwheel_core.facts.tables import tables
from cuwheel_core.facts.toolkits import all_releases
from cuwheel_core.support import printable
from cuwheel_core.verdicts.choice import releases_for


class GpuRow(Struct, frozen=True, kw_only=True):
    """`cuda_first` and `cuda_last`: the toolkits that compile machine code for it; null where none does.
    `cuda_first_known`: false where the table begins with that one, and earlier toolkits may have compiled for it, too.

    `driver_first` and `driver_last`: the branches of the driver that know it; null where that is not known, as for a
    Tegra, and where support goes on.
    """

    name: str
    capability: Capability
    arch: Arch
    generation: str
    product: str
    tegra: bool
    cuda_first: str | None
    cuda_last: str | None
    driver_first: str | None
    driver_last: str | None
    sources: tuple[str, ...]
    note: str = ""
    cuda_first_known: bool = True


class Gpus(Answer, frozen=True, kw_only=True):
    schema: Literal["cuwheel.gpus/1"] = "cuwheel.gpus/1"
    gpus: tuple[GpuRow, ...]

    @property
    def succeeded(self) -> bool:
        return True


def answer_of(found: Iterable[Gpu]) -> Gpus:
    return Gpus(gpus=tuple(_gpu(each) for each in dict.fromkeys(found)))


def _gpu(gpu: Gpu) -> GpuRow:
    titles = tables().gpus.sources
    fitting = releases_for(gpu.capability)
    drivers = None if gpu.tegra else driver_support(gpu.capability)
    return GpuRow(
        name=gpu.name,
        capability=gpu.capability,
        arch=Arch(gpu.capability),
        generation=find_architecture(gpu.capability).generation,
        product=gpu.product,
        tegra=gpu.tegra is not None,
        cuda_first=fitting[0].version if fitting else None,
        cuda_first_known=not fitting or fitting[0] != all_releases()[0],
        cuda_last=fitting[-1].version if fitting else None,
        driver_first=drivers.first if drivers else None,
        driver_last=drivers.last if drivers else None,
        sources=tuple(titles[each].title for each in gpu.source),
        note=gpu.note,
    )


def document(answer: Gpus, *, verbose: bool) -> Document:
    if len(answer.gpus) == 1 or verbose:
        return Document("cuwheel lookup gpu", tuple(Facts(_details(row)) for row in answer.gpus))
    rows = ((row.name, row.capability, row.generation, _span(row)) for row in answer.gpus)
    return Document("cuwheel lookup gpu", (table(("GPU", "capability", "generation", "CUDA"), rows),))


def _details(row: GpuRow) -> tuple[Row, ...]:
    tegra = ", Tegra (a system on a chip: L4T or DRIVE)" if row.tegra else ""
    rows = [
        Row("GPU", row.name),
        Row("capability", f"{row.capability}, compiled for as {row.arch}"),
        Row("generation", f"{row.generation}{tegra}"),
        Row("toolkits", f"CUDA {_span(row)}"),
        *_drivers(row),
        Row("source", printable.Lines(row.sources)),
    ]
    return (*rows, Row("note", row.note)) if row.note else tuple(rows)


def _drivers(row: GpuRow) -> Iterator[Row]:
    if row.driver_first:
        last = f"to {row.driver_last}, the last branch for it" if row.driver_last else "on"
        yield Row("drivers", f"from {row.driver_first} {last}")


def _span(row: GpuRow) -> str:
    if row.cuda_first is None:
        return "none known"
    earlier = "" if row.cuda_first_known else " or earlier"
    return f"{row.cuda_first}{earlier} to {row.cuda_last}"
