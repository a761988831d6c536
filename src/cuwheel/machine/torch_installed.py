"""The torch in a Python environment: its version, and its symbols for the extensions that are to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.device_code import torch_symbols
from cuwheel.machine import python_environment
from cuwheel.machine.world import World

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from cuwheel.device_code.libraries import Survey
    from cuwheel.device_code.torch_symbols import TorchExports


def taken(surveys: Iterable[Survey]) -> frozenset[str]:
    """What targets need of torch."""
    return frozenset(name for survey in surveys for name in survey.torch_symbols)


def exports(env: Path | None, wanted: Collection[str]) -> TorchExports | None:
    """Which of these symbols the environment's torch has; None where it has no torch, or nothing is wanted."""
    found = _found(env) if wanted else None
    return torch_symbols.exported(found[0] / "torch", found[1], wanted) if found else None


def version(env: Path | None) -> str | None:
    """Of the environment's torch; None where it has none."""
    found = _found(env)
    return found[1] if found else None


def _found(env: Path | None) -> tuple[Path, str] | None:
    """The folder that the environment's torch is in, and its version."""
    _, folders = python_environment.locate(World.here(), env)
    for folder in folders:
        frameworks, _ = python_environment.probe_frameworks([folder])
        for torch in frameworks:
            if torch.name == "torch":
                return folder, torch.version
    return None
