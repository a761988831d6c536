"""What device code is in a file, and what a GPU with a driver makes of it.

A name is imported when it is first used. What is listed here is kept as it is; everything else may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwheel_core.api import (
        Contents,
        coverage,
        device,
        kernels,
        outcome,
        read,
        read_package,
    )
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.errors import CuwheelError
    from cuwheel_core.verdicts.condition import Condition
    from cuwheel_core.verdicts.coverage import CoverageMatrix
    from cuwheel_core.verdicts.device import Device

__version__ = "0.9.0rc1"
__all__ = [
    "Condition",
    "Contents",
    "CoverageMatrix",
    "CuwheelError",
    "Device",
    "Library",
    "coverage",
    "device",
    "kernels",
    "outcome",
    "read",
    "read_package",
]
_ELSEWHERE = {
    "Condition": "verdicts.condition",
    "CoverageMatrix": "verdicts.coverage",
    "CuwheelError": "errors",
    "Device": "verdicts.device",
    "Library": "device_code.libraries",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - who imports one module of the core pays for no other

    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
