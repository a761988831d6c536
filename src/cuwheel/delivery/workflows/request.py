"""What is asked of `cuwheel ci`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from cuwheel.errors import UsageError

Service: TypeAlias = Literal["github", "gitlab", "cibuildwheel"]
SERVICES: tuple[Service, ...] = ("github", "gitlab", "cibuildwheel")


@dataclass(frozen=True, slots=True, kw_only=True)
class CiRequest:
    """The workflow of a project for a service, from its configuration.

    `source`: the folder of the repository. `file`: where the workflow is, if not where the service looks for it.
    `cuda`: for cibuildwheel, whose tables are for one CUDA version: another than the first of the configuration.
    `write`: make or renew it; without, nothing is changed.
    """

    service: Service = field(kw_only=False)
    source: Path = Path()
    file: Path | None = None
    config: Path | None = None
    cuda: str | None = None
    write: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Path(self.source))
        if self.service not in SERVICES:
            raise UsageError(
                f"{str(self.service)[:40]!r} is not one of {', '.join(SERVICES)}", hint="cuwheel ci github"
            )
        if self.cuda is not None and self.service != "cibuildwheel":
            raise UsageError("--cuda belongs to cibuildwheel", hint="cuwheel ci cibuildwheel --cuda 13.0")
