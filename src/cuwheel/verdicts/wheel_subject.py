"""What the rules look at, and words that they share."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.device_code.libraries import Survey
from cuwheel.wheel.file import WheelFile


class Subject(Struct, frozen=True, kw_only=True):
    wheel: WheelFile
    survey: Survey

    @property
    def file(self) -> str:
        return self.wheel.path.name


def counted(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"
