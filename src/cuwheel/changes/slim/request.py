"""What is asked of `cuwheel slim`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machine
from cuwheel.support.request_fields import as_paths, freeze, resolve_environment

_LEVELS = range(10)  # zlib's


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimRequest:
    """A wheel, libraries, a folder or the environment `env` without what `machines` never load.

    `targets`: one or several; with `env`, names of distributions in it. `machines`: as for `check`; also `this`, and
    `all` to keep every architecture. `cuda`: of packages with a library per CUDA version, keep the one loaded with
    this. `used`: traces; of each library only what they show to be loaded is kept, in an environment or a folder.
    `drop_signature`: also change signed Windows binaries. `level`: deflate everything anew. `platform`: of
    `name==version`, the wheel for this one. `commit`: keep no originals.
    """

    targets: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    machines: Sequence[str | Path | Machine] = ()
    env: Path | None = None
    output: Path | None = None
    future: bool = False
    cuda: str | None = None
    recompress: bool = False
    drop_relocatable: bool = False
    strip_debug: bool = False
    force: bool = False
    drop_signature: bool = False
    version: str | None = None
    level: int | None = None
    platform: str | None = None
    used: Sequence[Path] = ()
    dry_run: bool = False
    commit: bool = False

    def __post_init__(self) -> None:
        freeze(self, "machines", "used")
        resolve_environment(self)
        object.__setattr__(self, "targets", as_paths(self.targets))
        if self.level is not None and self.level not in _LEVELS:
            raise UsageError(f"level must be a number from 0 to 9, not {self.level}")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The targets, however many."""
        return as_paths(self.targets)
