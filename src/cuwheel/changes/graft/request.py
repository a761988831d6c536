"""What is asked of `cuwheel graft`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machines, machine_words
from cuwheel.support.request_fields import as_paths, normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class GraftRequest:
    """The wheel or library `base` with the device code of `donors` too; or, with `split`, a wheel per architecture.

    `output`: a folder, or the file itself. `force`: where nothing proves that they fit. `version`: of the new wheel.
    `add`: architectures to build from `source` as the donor,
    beside one of the base's as the witness, for its libraries of `cuda` (one version or several; the newest of the
    base's). `compile`: GPUs, as `check` takes machines, for which machine code is made of the PTX that the base holds,
    by ptxas of `cuda` (one that fits). The base may then be a folder, too, or with `env` left out: all of that
    environment, in place; or names of its distributions. `drop_signature`: also change signed Windows binaries.
    """

    base: str | Path = field(default="", kw_only=False)
    donors: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    output: Path | None = None
    split: bool = False
    force: bool = False
    version: str | None = None
    dry_run: bool = False
    add: Sequence[str] = ()
    source: str | Path | None = None
    cuda: str | Sequence[str] | None = None
    compile: Machines = ()
    env: Path | None = None
    drop_signature: bool = False

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "compile", machine_words(self.compile))
        object.__setattr__(self, "base", self.base or "")
        object.__setattr__(self, "cuda", (self.cuda,) if isinstance(self.cuda, str) else tuple(self.cuda or ()))
        if bool(self.add) != (self.source is not None) or (self.cuda and not (self.add or self.compile)):
            raise UsageError("--add and --source belong together, and --cuda to them or to --compile")
        if self.env and not self.compile:
            raise UsageError("--env is for --compile", hint="cuwheel graft --env .venv --compile this")
        if self.env and (self.output or self.version):
            raise UsageError(
                "--env is changed in place: without -o and --version", hint="cuwheel slim --undo takes it back"
            )
        if self.compile and (self.add or self.split or self.force or (self.donors and not self.env)):
            raise UsageError("--compile takes one wheel, library or folder, without donors, --add, --split or --force")
        if self.compile and len(self.cuda or ()) > 1:
            raise UsageError("--compile takes one CUDA version")
        if self.add and (self.donors or self.split):
            raise UsageError("--add takes neither donors nor --split")
        if self.split and (self.donors or self.force or self.version):
            raise UsageError("--split takes one wheel, without donors, --force or --version")
        if not self.base and not self.env:
            raise UsageError("nothing to graft was given", hint="cuwheel graft BASE DONOR -o OUT")
        if not (self.split or self.donors or self.add or self.compile):
            raise UsageError("no donor was given", hint="cuwheel graft BASE DONOR -o OUT   (or --split BASE)")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The donors, however many."""
        return as_paths(self.donors)
