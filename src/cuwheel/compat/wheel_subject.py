"""What the rules look at, and words that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuwheel.inspection.libraries import Survey
from cuwheel.wheel.file import WheelFile

if TYPE_CHECKING:
    from collections.abc import Iterable


_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    wheel: WheelFile
    survey: Survey

    @property
    def file(self) -> str:
        return self.wheel.path.name


def some(names: Iterable[str]) -> tuple[str, ...]:
    """Enough of a list to see what it is about."""
    listed = sorted(names)
    rest = len(listed) - _SHOWN
    return (*listed[:_SHOWN], *([f"and {rest} more"] if rest > 0 else []))


def counted(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"
