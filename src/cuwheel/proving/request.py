"""What is asked of `cuwheel verify`: to try wheels here, or to pack them for another machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwheel.errors import UsageError
from cuwheel.proving import serving
from cuwheel.support.request_fields import as_paths, freeze, must_be_positive

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wheels:
    """Wheels and their checks.

    `wheels`: one or several; `name==version` is downloaded, for `platform` where that is named. `config`: the file, or
    the folder of the project, that names checks; `checks`: only those with these names. `known`: also the ready-made
    checks of known packages. `requires`: installed beside the wheel. `timeout`: of each check, in place of its own.
    """

    wheels: str | Path | Sequence[str | Path] = field(default=(), kw_only=False)
    config: Path | None = None
    checks: Sequence[str] = ()
    known: bool = True
    requires: Sequence[str] = ()
    find_links: Sequence[Path] = ()
    offline: bool = False
    timeout: float | None = None
    platform: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "wheels", as_paths(self.wheels))
        freeze(self, "checks", "requires", "find_links")
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

    `python`: of `name==version` the wheel for each of them. `requirements`: files that list what is installed too.
    `stub`: a libcuda where there is no driver. `cuda`: that the wheel is to serve. `static`: nothing is installed.
    `pass_env`: variables that the code sees beside those of GPUs, language and processors. `network`: let it use the
    network. `sources`: build requirements that come as source, which runs their code with all variables.
    """

    python: Sequence[str] = ()
    requirements: Sequence[Path] = ()
    stub: bool = False
    cuda: str | None = None
    keep: bool = False
    static: bool = False
    dry_run: bool = False
    pass_env: Sequence[str] = ()
    network: bool = False
    sources: bool = False

    def __post_init__(self) -> None:
        _Wheels.__post_init__(self)  # `super()` does not find its class where there are slots
        freeze(self, "python", "requirements", "pass_env")
        serving.version(self.cuda)
        if wrong := [each for each in self.pass_env if not _VARIABLE.fullmatch(each)]:
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
