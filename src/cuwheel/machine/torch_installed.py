"""The symbols of the torch in a Python environment, for the extensions that are to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.inspection import torch_symbols
from cuwheel.machine import python_environment
from cuwheel.machine.world import World

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from cuwheel.inspection.libraries import Survey
    from cuwheel.inspection.torch_symbols import TorchExports


def taken(surveys: Iterable[Survey]) -> frozenset[str]:
    """What targets need of torch."""
    return frozenset(name for survey in surveys for name in survey.torch_symbols)


def exports(env: Path | None, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols the environment's torch has; None where it has no torch, or nothing is wanted."""
    if not wanted:
        return None
    _, folders = python_environment.locate(World.here(), env)
    for folder in folders:
        frameworks, _ = python_environment.probe_frameworks([folder])
        for torch in frameworks:
            if torch.name == "torch":
                return torch_symbols.exported(folder / "torch", torch.version, wanted)
    return None
