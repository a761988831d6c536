"""Is a wheel that of the project in a folder: then its configuration is meant without being named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cuwheel import decode
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from pathlib import Path

_MOST = 1 << 23


def is_of(folder: Path, name: str) -> bool:
    """By the name in pyproject.toml; a project that says none is taken at its word where it has a cuwheel.toml."""
    path = folder / "pyproject.toml"
    try:
        with path.open("rb") as file:
            data = decode.toml(file.read(_MOST))
    except FileNotFoundError:
        return (folder / "cuwheel.toml").is_file()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    project = data.get("project")
    named = project.get("name") if isinstance(project, dict) else None
    if isinstance(named, str):
        # A build may put its CUDA behind the name: foo-cu13.
        return normalised(name) == normalised(named) or normalised(name).startswith(f"{normalised(named)}-cu")
    return (folder / "cuwheel.toml").is_file()
