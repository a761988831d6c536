"""Variant wheels as a table, for the verbs that write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cuwheel.report.document import Amount, Block, Column, Facts, Heading, Row, Table
from cuwheel.support.wording import file_name, size

if TYPE_CHECKING:
    from cuwheel.delivery.variants import PublishedVariant
    from cuwheel.wheel.variant import VariantSet, VariantWheel


def blocks(sets: Sequence[VariantSet]) -> Iterator[Block]:
    """What each release has, and what an installer takes where none fits."""
    columns = (Column("label", wrap=False), Column("a machine must have"), Column("size", numeric=True))
    for each in sets:
        yield Heading(f"Variants: {file_name(each.document)}")
        yield Table(
            columns, tuple((wheel.label, _words(wheel), Amount(size(wheel.size), wheel.size)) for wheel in each.wheels)
        )
        yield Facts(tuple(Row("otherwise", file_name(plain)) for plain in each.plain))


def published(made: Sequence[PublishedVariant]) -> Iterator[Block]:
    """Those of an index."""
    if made:
        yield Heading("Variants")
        columns = (Column("of"), Column("label", wrap=False), Column("a machine must have"))
        yield Table(columns, tuple((each.made_from, each.label, _words(each)) for each in made))


def _words(wheel: VariantWheel | PublishedVariant) -> str:
    return "; ".join(f"{each.feature} {' or '.join(each.values)}" for each in wheel.properties)
