"""The symbols of the torch in a Python environment, for the extensions that are to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.inspection import torch_symbols
from cuwheel.machine import python_environment
from cuwheel.machine.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cuwheel.inspection.libraries import Survey
    from cuwheel.inspection.torch_symbols import TorchExports


def exports(env: Path | None, surveys: Iterable[Survey]) -> TorchExports | None:
    """Of what these targets take from torch, that which the environment's has; None where it has no torch."""
    wanted = {name for survey in surveys for library in survey.libraries for name in library.torch_symbols}
    if not wanted:
        return None
    _, folders = python_environment.locate(World.here(), env)
    for folder in folders:
        frameworks, _ = python_environment.probe_frameworks([folder])
        for torch in frameworks:
            if torch.name == "torch":
                return torch_symbols.exported(folder / "torch", torch.version, wanted)
    return None
