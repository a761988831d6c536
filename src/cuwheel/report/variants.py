"""Variant wheels as a table, for the verbs that write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.report.document import Block, Heading
from cuwheel.report.tables import Amount, Facts, Row, figure, short, table
from cuwheel_core.support.wording import file_name, size

if TYPE_CHECKING:
    from cuwheel.delivery.variants import PublishedVariant
    from cuwheel.wheel.variant import VariantSet, VariantWheel


def blocks(sets: Sequence[VariantSet]) -> Iterator[Block]:
    """What each release has, and what an installer takes where none fits."""
    columns = (short("label"), "a machine must have", figure("size"))
    for each in sets:
        yield Heading(f"Variants: {file_name(each.document)}")
        rows = ((wheel.label, _words(wheel), Amount(size(wheel.size), wheel.size)) for wheel in each.wheels)
        yield table(columns, rows)
        yield Facts(tuple(Row("otherwise", file_name(plain)) for plain in each.plain))


def published(made: Sequence[PublishedVariant]) -> Iterator[Block]:
    """Those of an index."""
    if made:
        yield Heading("Variants")
        rows = ((each.made_from, each.label, _words(each)) for each in made)
        yield table(("of", short("label"), "a machine must have"), rows)


def _words(wheel: VariantWheel | PublishedVariant) -> str:
    return "; ".join(f"{each.feature} {' or '.join(each.values)}" for each in wheel.properties)
