"""Requirements as packages state them, with their conditions (PEP 508)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement

from cuwheel.support import limited
from cuwheel_core.wheel import metadata
from cuwheel_core.wheel.tags import machine_name, normalised

# What conditions ask for, of the systems that CUDA is made for.
SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


@functools.lru_cache(maxsize=2 * metadata.MOST_REQUIREMENTS)  # rule after rule asks for those of one wheel
def parse(text: str) -> Requirement | None:
    """Parses a requirement; None where it is none: strangers wrote it.

    All callers get the same value: change a copy of it.
    """
    try:
        return limited.requirement(text)
    except InvalidRequirement:
        return None


@functools.lru_cache(maxsize=16)  # a wheel is judged on hundreds of machines, and may have thousands of requirements
def brought(
    requires: tuple[str, ...], *, system: str = "linux", cpu: str = "x86_64", python: str | None = None
) -> dict[str, str | None]:
    """What an installer brings along on such a machine, without an extra: normalised name → the pinned release."""
    environment = {**_here(), **SYSTEMS[system], "platform_machine": machine_name(system, cpu), "extra": ""}
    if python:
        environment |= {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    found = (each for each in map(parse, requires) if each and _holds(each, environment))
    return {normalised(each.name): _pinned(each) for each in found}


@functools.cache
def _here() -> Mapping[str, str]:
    return {name: str(value) for name, value in default_environment().items()}


def holds(requirement: Requirement, extras: Collection[str] = ()) -> bool:
    """On this machine, without an extra or with one of these."""
    return any(_holds(requirement, {**_here(), "extra": each}) for each in ("", *extras))


def _holds(requirement: Requirement, environment: Mapping[str, str]) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate(dict(environment))
    except (UndefinedEnvironmentName, ValueError):  # a version that is none, compared as one
        return True


def _pinned(requirement: Requirement) -> str | None:
    return next((each.version for each in requirement.specifier if each.operator in ("==", "===")), None)
