"""Facts of whole indexes: which release of which package has code for which GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.api import verb
from cuwheel.delivery.request import CatalogueRequest
from cuwheel.report import catalogue as report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.machine.fleet import Machine, Refinement
    from cuwheel.report.catalogue import Catalogue


@verb.of(CatalogueRequest)
def catalogue(request: CatalogueRequest) -> Catalogue:
    """Add the facts of packages' releases to a catalogue: each wheel is streamed once, and nothing of it is kept."""
    from cuwheel.delivery import cataloguing

    return report.of_filled(str(request.to), cataloguing.fill(request))


def catalogue_list(
    place: str | Path | None = None,
    *,
    on: Sequence[str | Path | Machine] = (),
    refine: Refinement | None = None,
) -> Catalogue:
    """The newest release of each package that runs on machines; without `on`, on the first GPUs of each generation.

    `place`: a folder or URL; without one, the catalogue that ships.
    """
    from cuwheel.delivery import catalogue as catalogues
    from cuwheel.delivery import catalogue_reach
    from cuwheel.machine import named
    from cuwheel.network import client

    machines = named.machines(on, refine) if on else catalogue_reach.generations()
    with client.Session() as session:
        found = catalogues.Catalogue(place or catalogues.SHIPPED, session)
        contents = found.contents
        reached = tuple(catalogue_reach.newest(found, machines))
    return report.of_listed(str(place or "cuwheel"), contents.date, len(contents.wheels), reached)
