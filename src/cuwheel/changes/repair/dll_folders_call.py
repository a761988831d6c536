"""The DLLs that this package needs are in folders of this environment's packages. Written by `cuwheel repair`.

https://docs.python.org/3/library/os.html#os.add_dll_directory
"""

from __future__ import annotations

import os
from pathlib import Path

# As seen from this file.
FOLDERS: tuple[str, ...] = ()


def add() -> None:
    """Tell Windows where to look; a folder that is not there belongs to a package that is not installed."""
    add_folder = getattr(os, "add_dll_directory", None)
    here = Path(__file__).resolve().parent
    for folder in FOLDERS if add_folder else ():
        path = here.joinpath(folder).resolve()
        if add_folder and path.is_dir():
            add_folder(str(path))
