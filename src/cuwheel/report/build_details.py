"""What the page of a build tells of each job, and a dry run of what is to come: settings, sizes, times, hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.report.document import Amount, Column, Facts, HeatMap, Paragraph, Row, Table, Verbatim
from cuwheel.report.inspect_document import arch_order
from cuwheel.support.wording import duration, file_name, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.report.build import Job, Tools, Wheel
    from cuwheel.report.document import Block

_SLOWEST = 10


def settings(job: Job) -> Iterator[Block]:
    if job.commands:
        yield Paragraph("Commands:")
        yield Verbatim(tuple(f"  {each}" for each in job.commands))
    if job.settings:
        yield Paragraph("Every setting:")
        shown = (
            Row(each.name, each.value, origin="prepended to the existing value" if each.how == "prepend" else "")
            for each in job.settings
        )
        yield Facts(tuple(shown))
        if job.tools and job.tools.provider != "container":  # in an image nothing is recorded
            yield Paragraph("plus LD_PRELOAD and CUWHEEL_RECORD, which record the compiler calls")


def sizes(wheel: Wheel) -> Iterator[Block]:
    with_code = [library for library in wheel.libraries if library.archs]
    if not with_code:
        return
    columns = tuple(sorted({each.arch for library in with_code for each in library.archs}, key=arch_order))
    largest = max(each.bytes for library in with_code for each in library.archs) or 1
    unplanned = sorted(
        {each.arch for library in with_code for each in library.archs if not each.planned}, key=arch_order
    )
    stored = [{each.arch: each.bytes for each in library.archs} for library in with_code]
    yield HeatMap(
        caption="Bytes of device code for each architecture"
        + (f"; not planned: {' '.join(unplanned)}" if unplanned else ""),
        columns=columns,
        rows=tuple(library.path for library in with_code),
        cells=tuple(
            tuple(
                Amount(size(each[arch]) if arch in each else "", each.get(arch, 0), each.get(arch, 0) / largest)
                for arch in columns
            )
            for each in stored
        ),
    )


def slowest(job: Job) -> Table:
    ended = [span for span in job.calls.spans if span.ended is not None]
    slowest = sorted(ended, key=lambda span: (span.began - (span.ended or 0), span.number))[:_SLOWEST]
    longest = max(((span.ended or 0) - span.began for span in slowest), default=0.0) or 1.0
    columns = (
        Column("slowest calls", numeric=True),
        Column("tool", wrap=False),
        Column("file"),
        Column("seconds", numeric=True),
    )
    return Table(
        columns,
        tuple(
            (
                Amount(f"{span.number}", span.number),
                span.name + (" (cached)" if span.cache_hit else ""),
                file_name(span.file),
                Amount(duration(took := (span.ended or 0) - span.began), took, took / longest),
            )
            for span in slowest
        ),
    )


def archives(tools: Tools) -> Table:
    columns = (Column("toolkit"), Column("version", wrap=False), Column("sha256"))
    return Table(columns, tuple((each.name, each.version, each.sha256) for each in tools.archives))
