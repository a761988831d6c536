"""What is asked of `cuwheel repair`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.support.request_fields import as_paths, freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them.

    `wheels`: one or several, each a file or `name==version`. `output`: the folder for the new ones. `policy`: such as
    manylinux_2_28; without one, or with `auto`, the oldest that the libraries allow. `exclude`: sonames (globs), beside
    NVIDIA's. `requires`: write NVIDIA's packages into the metadata. `cuda`: where the libraries do not tell it.
    `libraries`: folders to look in first. `platform`: of `name==version`, the wheel for this one.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    output: Path = Path("wheelhouse")
    policy: str | None = None
    exclude: Sequence[str] = ()
    requires: bool = False
    cuda: str | int | None = None
    libraries: Sequence[Path] = ()
    platform: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        freeze(self, "exclude", "libraries")
        object.__setattr__(self, "wheels", as_paths(self.wheels))
        if not self.wheels:
            raise UsageError("no wheel to repair was given", hint="cuwheel repair WHEEL")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The wheels, however many."""
        return as_paths(self.wheels)
