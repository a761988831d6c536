"""cuwheel gets CUDA wheels to run. The verbs of the command line are the functions of this module."""

from __future__ import annotations

import sys
import types

__version__ = "0.1.0"

_VERBS = (
    "build",
    "check",
    "compare",
    "doctor",
    "explain",
    "gpus",
    "inspect",
    "kernels",
    "plan",
    "repair",
    "record",
    "replay",
    "slim",
    "toolchain",
    "toolkits",
    "verify",
)

__all__ = ["__version__", *_VERBS]  # noqa: PLE0604 - the verbs are names, one list serves both uses


class _Package(types.ModuleType):
    """`cuwheel.plan` is the verb, also once the room of that name was imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _VERBS and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    """Import the API on first use: `cuwheel --version` must not pay for it."""
    if name in _VERBS:
        from cuwheel import api  # noqa: PLC0415

        return getattr(api, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
