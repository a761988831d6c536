"""Where the sections of one library are in another build of it."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cuwheel.device_code.sections import FATBIN_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.changes.graft.subject import Subject

_NEIGHBOURS = 8  # sections, some of them empty or tiny, that may be near a place


class Place(Protocol):
    """A loaded section, of whatever format."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class Area(NamedTuple):
    """A loaded section in both files."""

    ours: Place
    theirs: Place

    @property
    def moved(self) -> int:
        return self.theirs.address - self.ours.address


class Moves:
    """Where in the donor stands what is at an address of the base."""

    def __init__(self, base: Subject, donor: Subject, areas: Sequence[Area]) -> None:
        self._areas = sorted(areas, key=lambda each: each.ours.address)
        self._starts = [each.ours.address for each in self._areas]
        self._containers = dict(
            zip(_addresses(base), _addresses(donor), strict=False)  # as many of each: that was asked first
        )

    @property
    def all(self) -> frozenset[int]:
        return frozenset(each.moved for each in self._areas)

    def near(self, address: int, slack: int) -> Iterator[int]:
        """By how much what is around an address has moved: where sections meet there are several answers."""
        if (container := self._containers.get(address)) is not None:
            yield container - address
            return
        index = bisect.bisect_right(self._starts, address + slack) - 1
        for area in reversed(self._areas[max(index - _NEIGHBOURS, 0) : index + 1]):
            if area.ours.address - slack <= address <= area.ours.address + area.ours.size + slack:
                yield area.moved

    def explains(self, address: int, other: int, slack: int = 0) -> bool:
        """Whether `other` is in the donor what `address` is in the base."""
        return any(other - address == each for each in self.near(address, slack))


def _addresses(subject: Subject) -> list[int]:
    headers = [each for each in subject.sections if each.name in FATBIN_SECTIONS]
    found = []
    for index in subject.order:
        at = subject.walk.containers[index].offset
        home = next(each for each in headers if each.offset <= at < each.offset + each.size)
        found.append(at - home.offset + home.address)
    return found
