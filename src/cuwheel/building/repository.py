"""git, asked about the repository of a folder and of no other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuwheel.support import process

if TYPE_CHECKING:
    from pathlib import Path

_LIMIT_S = 300.0


def git(folder: Path, *words: str | Path) -> str:
    """Its output. In a hook, git's own variables name the caller's repository: `reset` would then move its branch."""
    # Settings stay: by them a user says which folders are safe.
    kept = ("GIT_CONFIG", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
    around = {name: text for name, text in os.environ.items() if not name.startswith("GIT_") or name.startswith(kept)}
    return process.run(["git", "-C", folder, *words], timeout=_LIMIT_S, env=around).stdout
