"""cuwheel gets CUDA wheels to run. The verbs of the command line are the functions of this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.version import __version__

if TYPE_CHECKING:
    from cuwheel.api import (
        build,
        check,
        compare,
        doctor,
        explain,
        gpus,
        inspect,
        kernels,
        plan,
        record,
        repair,
        replay,
        slim,
        toolchain,
        toolkits,
        verify,
    )

__all__ = [
    "__version__",
    "build",
    "check",
    "compare",
    "doctor",
    "explain",
    "gpus",
    "inspect",
    "kernels",
    "plan",
    "record",
    "repair",
    "replay",
    "slim",
    "toolchain",
    "toolkits",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import the API on first use: `cuwheel --version` must not pay for it."""
    if name in __all__:
        from cuwheel import api  # noqa: PLC0415

        return getattr(api, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
