"""What the rules look at, and words that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.inspection.libraries import Survey
from cuwheel.units import first_few
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Iterable


class Subject(Struct, frozen=True, kw_only=True):
    wheel: WheelFile
    survey: Survey

    @property
    def file(self) -> str:
        return self.wheel.path.name


def some(names: Iterable[str]) -> tuple[str, ...]:
    """Enough of a list to see what it is about."""
    return first_few(sorted(names))


def counted(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"
