"""With `--variants`: variant wheels of the plain ones, made beside the index and published with them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.changes.stamp import variants
from cuwheel.delivery import arrivals, layout
from cuwheel.delivery.arrivals import Arrival
from cuwheel.errors import UnreadableError
from cuwheel.support import locking
from cuwheel.support.finding import Finding
from cuwheel.support.wording import file_name
from cuwheel.wheel.metadata import WheelName
from cuwheel.wheel.variant import Property

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.stamp.variants import VariantSet
    from cuwheel.delivery.index_folder import IndexFolder


class PublishedVariant(Struct, frozen=True, kw_only=True):
    """A variant wheel: its name, what it says, and the plain wheel whose files it has."""

    file: str
    label: str
    properties: tuple[Property, ...]
    made_from: str
    document: str


class Made(Struct, frozen=True, kw_only=True):
    """`arrivals`: the variants, and plain wheels without a label that were not given."""

    arrivals: tuple[Arrival, ...]
    variants: tuple[PublishedVariant, ...]
    findings: tuple[Finding, ...]


@contextlib.contextmanager
def of(given: Sequence[Arrival], index: IndexFolder) -> Iterator[Made]:
    """The files are there as long as the block lasts, on the file system of the index."""
    beside = index.root.parent
    plain = [each.path for each in given if (name := WheelName.parse(each.name)) and not name.variant]
    try:
        beside.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, beside) from error
    with locking.scratch(beside) as folder:
        sets, findings = variants.write_all(plain, folder)
        known = {each.name for each in given} | _plain_in(index, sets)
        paths = [Path(path) for each in sets for path in (*(wheel.path for wheel in each.wheels), *each.plain)]
        new = [each for each in paths if each.parent == folder and each.name not in known]
        yield Made(
            arrivals=tuple(arrivals.read_all(new)),
            variants=tuple(_rows(sets)),
            findings=findings,
        )


def _plain_in(index: IndexFolder, sets: Sequence[VariantSet]) -> set[str]:
    """A plain wheel that is published stays the one, whichever serves more machines now."""
    named = [name for each in sets for path in each.plain if (name := WheelName.parse(file_name(path)))]
    projects = {layout.project(each) for each in named}
    return {
        each.filename
        for project in projects
        for each in index.project(project).files
        if each.wheel and not each.wheel.variant
    }


def _rows(sets: Sequence[VariantSet]) -> Iterator[PublishedVariant]:
    for each in sets:
        for wheel in each.wheels:
            yield PublishedVariant(
                file=file_name(wheel.path),
                label=wheel.label,
                properties=wheel.properties,
                made_from=file_name(wheel.made_from),
                document=file_name(each.document),
            )
