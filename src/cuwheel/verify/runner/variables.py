"""The variables that a check sees: the caller's own, led into its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# What would lead a check out of its environment, or change what Python does in it: -O takes its asserts away.
_LED_ASTRAY = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONOPTIMIZE",
    "PYTHONINSPECT",
    "__PYVENV_LAUNCHER__",
)


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _LED_ASTRAY}


def inside(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`folder`: of the environment. LD_LIBRARY_PATH is kept: the driver may lie there."""
    # An empty entry of PATH would mean the current folder.
    path = [str(folder / "bin"), *filter(None, [environ.get("PATH", os.defpath)])]
    return {**plain(environ), "PATH": os.pathsep.join(path), "VIRTUAL_ENV": str(folder), "PYTHONNOUSERSITE": "1"}
