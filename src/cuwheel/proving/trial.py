"""What one wheel is put to."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from cuwheel.building.tables import VerifyTable
from cuwheel.device_code.libraries import Survey
from cuwheel.proving.outcomes import Check
from cuwheel.proving.request import VerifyRequest
from cuwheel.support import masking


class Trial(Struct, frozen=True, kw_only=True):
    """A wheel, what was asked of it, what its configuration says, and its checks."""

    request: VerifyRequest
    wheel: Path
    survey: Survey
    table: VerifyTable
    checks: tuple[Check, ...]

    @property
    def requires(self) -> tuple[str, ...]:
        return (*self.table.requires, *self.request.requires)

    @property
    def stub(self) -> bool:
        return self.request.stub or self.table.stub

    @property
    def listed(self) -> tuple[str, ...]:
        """What is installed, as it is kept: a requirement may be an address with a password in it."""
        files = (f"-r {path}" for path in self.request.requirements)
        return (str(self.wheel), *map(masking.text, self.requires), *files)
