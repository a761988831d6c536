"""What a catalogue tells: for each project and machine the newest release that runs there."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from cuwheel.delivery import index_folder, judging, page, page_verdicts
from cuwheel.delivery.catalogue import SHIPPED, Catalogue
from cuwheel.delivery.transaction import Remove, Write
from cuwheel.device_code import wheel_facts
from cuwheel.facts import architectures
from cuwheel.machine.fleet import Machine
from cuwheel.network import client
from cuwheel.support import log
from cuwheel.verdicts import matrix
from cuwheel.verdicts.predict import Outcome
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cuwheel.delivery.catalogue import Listed
    from cuwheel.delivery.transaction import Generator


_MAY_BE_TAKEN = (0, 2)  # ranks: it runs, or nothing speaks against it
_IN_PART = 1


class Newest(Struct, frozen=True, kw_only=True):
    """`version` None: none of those that are held runs there. `outcome`: `unknown` where it has no code to judge."""

    machine: str
    version: str | None
    outcome: Outcome


class ProjectReach(Struct, frozen=True, kw_only=True):
    """`versions`: those that are held, the newest first. `uploaded`: the newest one, where its index says it.

    `device_code`: whether any of them has some.
    """

    name: str
    versions: tuple[str, ...]
    uploaded: str | None
    device_code: bool
    newest: tuple[Newest, ...]


class Reached(Struct, frozen=True, kw_only=True):
    """`wheels`: how many the catalogue holds."""

    place: str
    date: str
    wheels: int
    projects: tuple[ProjectReach, ...]


def reach_of_catalogue(place: str | Path | None, machines: Sequence[Machine]) -> Reached:
    """Of the catalogue in a folder or at a URL, or of the one that ships; without machines, on every generation."""
    with client.Session() as session:
        found = Catalogue(place or SHIPPED, session)
        return Reached(
            place=str(place or "cuwheel"),
            date=found.contents.date,
            wheels=len(found.contents.wheels),
            projects=tuple(newest(found, machines or generations())),
        )


def generations() -> tuple[Machine, ...]:
    """The first GPUs of each generation, and of each major capability in it: where support begins and ends."""
    first = {
        (architectures.find_architecture(each).generation, each.major): each
        for each in reversed(architectures.current_capabilities())
    }
    return tuple(Machine(name=str(each), capability=each) for each in sorted(first.values()))


def newest(catalogue: Catalogue, machines: Sequence[Machine]) -> Iterator[ProjectReach]:
    wheels = sorted(catalogue.contents.wheels, key=lambda each: each.name)
    for name, group in groupby(wheels, key=lambda each: each.name):
        found = sorted(group, key=_version, reverse=True)
        yield ProjectReach(
            name=name,
            versions=tuple(dict.fromkeys(each.version for each in found)),
            uploaded=found[0].uploaded,
            device_code=any(_has_code(catalogue, each) for each in found),
            newest=tuple(_newest(catalogue, found, machines)),
        )


def _has_code(catalogue: Catalogue, listed: Listed) -> bool:
    facts = catalogue.facts(listed.sha256)
    return facts is not None and any(each.device_code for each in facts.libraries)


def _version(listed: Listed) -> Version:
    try:
        return Version(listed.version)
    except InvalidVersion:
        return Version("0")


def _newest(catalogue: Catalogue, wheels: Sequence[Listed], machines: Sequence[Machine]) -> Iterator[Newest]:
    """A release is judged once for all machines that no newer one serves. One that serves in part comes last."""
    waiting = {each.name: each for each in machines}
    answers: dict[str, Newest] = {}
    for listed in wheels:
        facts = catalogue.facts(listed.sha256) if waiting else None
        if facts is None:
            continue
        asked = tuple(waiting.values())
        for machine, verdict in zip(asked, matrix.judge_all(wheel_facts.survey(facts), asked), strict=True):
            found = Newest(machine=machine.name, version=listed.version, outcome=verdict.outcome)
            rank = judging.rank_of_verdict(verdict)
            if rank in _MAY_BE_TAKEN:
                answers[machine.name] = found
                del waiting[machine.name]
            elif rank == _IN_PART:
                answers.setdefault(machine.name, found)
    for machine in machines:
        yield answers.get(machine.name, Newest(machine=machine.name, version=None, outcome="fails"))


# A catalogue in the page of an index: of each package the newest release that runs on each kind of GPU.

_LOOKS = {"native": "good", "compatible": "good", "jit": "fair", "partial": "poor", "unknown": "none", "fails": "bad"}
_WORDS = {"jit": " jit", "partial": " partly", "unknown": " no code"}


def catalogue_page_generator(place: str) -> Generator:
    """Of the page for a catalogue; of its removal for `none`."""
    return lambda _index, _wanted: _page_steps(place)


def _page_steps(place: str) -> Iterator[Write | Remove]:
    if place == index_folder.NO_CATALOGUE:
        yield Remove(index_folder.CATALOGUE_PAGE)
        return
    with log.progress("judging what the catalogue holds"):
        yield Write(index_folder.CATALOGUE_PAGE, _render_page(place))


def _render_page(place: str) -> bytes:
    """For a usual computer: the catalogue's wheels are for one platform, and a Jetson is another."""
    capabilities = page_verdicts.capabilities(page_verdicts.PLACES[0])
    machines = [Machine(name=str(each), capability=each) for each in capabilities]
    found = reach_of_catalogue(None if place == index_folder.SHIPPED_CATALOGUE else place, machines)
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
