"""What has to be set for what is installed: by the torch that is there, or the one that comes with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.facts import versions
from cuwheel.support.finding import Finding
from cuwheel.verdicts import alternatives, matrix
from cuwheel.verdicts.alternatives import Pin
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cuwheel.delivery.choosing import Choice
    from cuwheel.machine.fleet import Machine
    from cuwheel.network.resolver import Release

_LOCAL = re.compile(r"\+cu(\d{2})(\d)\b", re.ASCII)
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit", re.ASCII)


class Settings(Struct, frozen=True, kw_only=True):
    """`variables`: every one that decides what these packages load; None for one that need not be set.

    `problems`: by package, why it does not go with the torch that would be installed.
    """

    pins: tuple[Pin, ...] = ()
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}

    @property
    def needed(self) -> dict[str, str]:
        return {each.variable: each.value for each in self.pins}


def decided(choices: Sequence[Choice], releases: Sequence[Release]) -> Settings:
    """What to set for each package that is going to be installed, and what does not run even so."""
    found: list[Pin] = []
    variables: dict[str, str | None] = {}
    problems: dict[str, str] = {}
    for choice in choices:
        if choice.ruling is None or choice.ruling.survey is None:
            continue
        survey = choice.ruling.survey
        machines = with_torch(choice.found.machines, releases)
        pin = alternatives.needed_pin(survey, machines)
        if variable := alternatives.loading_variable(survey):
            variables[variable] = pin.value if pin else None
        found += [pin] if pin else []
        for machine in machines:
            verdict = matrix.judge(survey, pin.on(machine) if pin else machine)
            if verdict.outcome == "fails":
                error = next((each for each in verdict.findings if each.severity == "error"), None)
                problems[choice.name] = f"{error.message}; {error.fix}" if error else "it does not run here"
    return Settings(pins=tuple(found), variables=variables, problems=problems)


def with_torch(machines: Sequence[Machine], releases: Sequence[Release]) -> tuple[Machine, ...]:
    """As they are once these are installed."""
    torch = next((each for each in releases if normalised(each.name) == "torch"), None)
    if torch is None:
        return tuple(machines)
    cuda = torch_cuda(torch.version, {normalised(each.name): each.version for each in releases})
    return tuple(replace(each, torch=torch.version, torch_cuda=cuda) for each in machines)


def torch_cuda(version: str, others: Mapping[str, str]) -> str | None:
    """By its local version, else by the CUDA runtime that comes with it. `others`: name → version."""
    if match := _LOCAL.search(version):
        return f"{match[1]}.{match[2]}"
    runtime = next((each for name, each in others.items() if _RUNTIME.fullmatch(name)), None)
    return versions.minor(runtime) if runtime and "+" not in version else None


def findings(settings: Settings, *, written: bool) -> tuple[Finding, ...]:
    """Of each setting: why, whether a link would do too, and where it was written."""
    return tuple(
        Finding(
            rule="library-pinned",
            severity="note" if written else "warning",
            message=f"with {each.setting} {each.package} loads its library for CUDA {each.cuda}, which runs here",
            evidence=tuple(_evidence(each)),
            fix="" if written else "set it wherever the package is used, or have it written: --pin activate",
        )
        for each in settings.pins
    )


def _evidence(pin: Pin) -> list[str]:
    link = f"a link would do too, until the package is next installed, and pip does not know it: {pin.link}"
    return [pin.why, *([link] if pin.link else [])]
