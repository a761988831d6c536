"""What was done to a library, in rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.rewrite.values import Dropped, Recompressed

if TYPE_CHECKING:
    from cuwheel.inspection.values import Compression, Kind
    from cuwheel.rewrite.draft import Draft
    from cuwheel.rewrite.values import LibraryPlan


def dropped(plan: LibraryPlan) -> tuple[Dropped, ...]:
    """Rows of what a plan drops, in the order of the file."""
    sums: dict[tuple[Kind, str, str], tuple[int, int]] = {}
    for each in plan.entries:
        if not each.keep:
            key = (each.kind, each.arch, each.section)
            count, size = sums.get(key, (0, 0))
            sums[key] = count + 1, size + each.bytes
    return tuple(
        Dropped(kind=kind, arch=arch, section=section, count=count, bytes=size)
        for (kind, arch, section), (count, size) in sums.items()
    )


def recompressed(plan: LibraryPlan, made: Draft) -> tuple[Recompressed, ...]:
    """Rows of what was compressed anew: entries that it would not have made smaller are left as they were."""
    sums: dict[tuple[Kind, str, str, Compression, Compression], tuple[int, int, int]] = {}
    for each in plan.entries:
        new = made.replacements.get(each.offset)
        if new and each.recompress_to:
            key = (each.kind, each.arch, each.section, each.compression, each.recompress_to)
            count, before, after = sums.get(key, (0, 0, 0))
            sums[key] = count + 1, before + each.bytes, after + len(new.header) + new.size
    return tuple(
        Recompressed(
            kind=kind,
            arch=arch,
            section=section,
            before=old,
            after=new_kind,
            count=count,
            bytes_before=before,
            bytes_after=after,
        )
        for (kind, arch, section, old, new_kind), (count, before, after) in sums.items()
    )
