"""What is asked of `cuwheel repair`, its words looked up when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.support.request_fields import as_paths, normalise
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.support import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """Wheels without NVIDIA's libraries inside, which find them where the environment has them.

    `wheels`: one or several, each a file or `name==version`. `output`: the folder for the new ones. `policy`: such as
    manylinux_2_28; without one, or with `auto`, the oldest that the libraries allow. `exclude`: sonames (globs), beside
    NVIDIA's. `requires`: write NVIDIA's packages into the metadata. `cuda`: where the libraries do not tell it.
    `libraries`: folders to look in first.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    output: Path = Path("wheelhouse")
    policy: str | None = None
    exclude: Sequence[str] = ()
    requires: bool = False
    cuda: str | int | None = None
    libraries: Sequence[Path] = ()
    dry_run: bool = False
    # `cuda` as the tables have it: its major, and the release where more than that was said.
    cuda_major: int | None = field(init=False, default=None)
    cuda_release: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        normalise(self)
        if not self.wheels:
            raise UsageError("no wheel to repair was given", hint="cuwheel repair WHEEL")
        if self.policy == "auto":
            object.__setattr__(self, "policy", None)
        if self.cuda is None:
            return
        text = str(self.cuda).strip().lower()
        if text.isdecimal() and bounded.digits(text) in {
            versions.major(row.version) for row in toolkits.all_toolkits()
        }:
            object.__setattr__(self, "cuda_major", bounded.digits(text))
            return
        found = toolkits.find_toolkit(text).version  # `13.0`, `12.8.1` or `cu128`
        object.__setattr__(self, "cuda_major", versions.major(found))
        if not text.isdecimal():
            object.__setattr__(self, "cuda_release", versions.minor(found))

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The wheels, however many."""
        return as_paths(self.wheels)
