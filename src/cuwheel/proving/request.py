"""What is asked of `cuwheel verify`: wheels tried here, or packed for another machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.machine.fleet import Machines, machine_words
from cuwheel.network import cluster_access
from cuwheel.support.request_fields import as_paths, must_be_positive, normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wheels:
    """Wheels and their checks.

    `wheels`: one or several; `name==version` is downloaded. `config`: the file, or the folder of the project, that
    names checks; `checks`: only those with these names. `requires`: installed beside the wheel. `timeout`: of each
    check, in place of its own.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    config: Path | None = None
    checks: Sequence[str] = ()
    requires: Sequence[str] = ()
    find_links: Sequence[Path] = ()
    offline: bool = False
    timeout: float | None = None

    def __post_init__(self) -> None:
        normalise(self)
        must_be_positive(timeout=self.timeout)
        if not self.wheels:
            raise UsageError("no wheel to verify was given", hint="cuwheel verify dist/*.whl")

    @property
    def named(self) -> tuple[str | Path, ...]:
        """The wheels, however many."""
        return as_paths(self.wheels)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest(_Wheels):
    """Install each wheel into fresh environments and try it there: this runs its code and that of what it requires.

    `python`: of `name==version` the wheel for each of them. `stub`: a libcuda where there is no driver. `cuda`: that
    the wheel is to serve. `static`: nothing is installed.
    `pass_env`: variables that the code sees beside those of GPUs, language and processors. `network`: let it use the
    network. `sources`: build requirements that come as source, which runs their code with all variables. `sysroot`: a
    root file system with Python instead of Debian's, for wheels of its processor, which are tried under qemu.
    """

    python: Sequence[str] = ()
    stub: bool = False
    cuda: str | None = None
    keep: bool = False
    static: bool = False
    dry_run: bool = False
    pass_env: Sequence[str] = ()
    network: bool = False
    sources: bool = False
    sysroot: Path | None = None

    def __post_init__(self) -> None:
        _Wheels.__post_init__(self)  # `super()` does not find its class where there are slots
        if self.cuda is not None and not re.fullmatch(r"\d{1,3}(\.\d{1,3}){0,2}", self.cuda, re.ASCII):
            raise UsageError(f"{self.cuda!r} is not a CUDA version", hint="such as --cuda 12.8")
        _must_be_variables(self.pass_env)


def _must_be_variables(names: Sequence[str]) -> None:
    if wrong := [each for each in names if not (each.isascii() and each.isidentifier())]:
        raise UsageError(f"{wrong[0]!r} is not a variable name", hint="--pass-env MODEL_FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRequest(_Wheels):
    """One file `to` carry to a machine that has nothing but Python.

    `requirements`: what the wheels require is in it too, and `requires` beside it, for `python` (`3.12`) if said.
    `system`: let the wheels see the packages that the machine has.
    """

    to: Path
    requirements: bool = False
    system: bool = False
    python: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest(_Wheels):
    """The same, tried by the workers of a `cluster`: once on a GPU of each kind, and a proof comes back from each.

    `on`: GPUs, as everywhere; none: every kind that the cluster has. `output`: the folder for the proofs.
    `pass_env`: variables of the worker that the checks see too.
    """

    cluster: str
    on: Machines = ()
    output: Path = Path("proofs")
    requirements: bool = False
    system: bool = False
    python: str | None = None
    pass_env: Sequence[str] = ()

    def __post_init__(self) -> None:
        _Wheels.__post_init__(self)
        object.__setattr__(self, "on", machine_words(self.on))
        cluster_access.parse_address(self.cluster)
        _must_be_variables(self.pass_env)
