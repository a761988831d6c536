"""A catalogue in the page of an index: of each package the newest release that runs on each kind of GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.delivery import catalogue_reach, layout, page, page_verdicts
from cuwheel.delivery.steps import Remove, Write
from cuwheel.facts import architectures
from cuwheel.machine.fleet import Machine
from cuwheel.support import log
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.delivery.steps import Generator

_LOOKS = {"native": "good", "compatible": "good", "jit": "fair", "partial": "poor", "unknown": "none", "fails": "bad"}
_WORDS = {"jit": " jit", "partial": " partly", "unknown": " no code"}


def generator(place: str) -> Generator:
    """Of the page for a catalogue; of its removal for `none`."""
    return lambda _index, _wanted: _generate(place)


def _generate(place: str) -> Iterator[Write | Remove]:
    if place == layout.NO_CATALOGUE:
        yield Remove(layout.CATALOGUE_PAGE)
        return
    with log.progress("judging what the catalogue holds"):
        yield Write(layout.CATALOGUE_PAGE, _page(place))


def _page(place: str) -> bytes:
    """For a usual computer: the catalogue's wheels are for one platform, and a Jetson is another."""
    capabilities = page_verdicts.capabilities(page_verdicts.PLACES[0])
    machines = [Machine(name=str(each), capability=each) for each in capabilities]
    found = catalogue_reach.listed(None if place == layout.SHIPPED_CATALOGUE else place, machines)
    columns = [(str(each), architectures.find_architecture(each).generation) for each in capabilities]
    return page.render(
        "catalogue.html.j2",
        projects=found.projects,
        wheels=found.wheels,
        date=found.date,
        columns=columns,
        looks=_LOOKS,
        words=_WORDS,
        version=__version__,
    )
