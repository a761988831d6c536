"""What only some verbs need is not installed with cuwheel itself but with an extra; one error says with which."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence


def program(name: str, path: str | None = None) -> str | None:
    """That of cuwheel's own environment, else the one on PATH (or on `path`)."""
    folder = Path(sys.executable).parent
    places = (folder, folder / "Scripts") if os.name == "nt" else (folder,)  # an installed Python has them below it
    beside = shutil.which(name, path=os.pathsep.join(map(str, places)))
    return beside or shutil.which(name, path=path)


def needed(name: str, purpose: str, extra: str = "build") -> str:
    """The program, or an error that names the extra. `purpose`: what needs it, such as `building a wheel`."""
    found = program(name)
    if found is None:
        raise MissingExtraError([name], purpose, extra)
    return found


def require(purpose: str, *, modules: Sequence[str] = (), programs: Sequence[str] = (), extra: str = "build") -> None:
    """Raises an error that names all that is missing."""
    missing = [name for name in modules if not _is_there(name)]
    missing += [name for name in programs if program(name) is None]
    if missing:
        raise MissingExtraError(missing, purpose, extra)


def _is_there(module: str) -> bool:
    """A folder of that name, such as `build` where somebody works, is none: it has no file of its own to import."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # of `ruamel.yaml` it is `ruamel` that is imported to look into it
        return False
    return spec is not None and spec.origin is not None
