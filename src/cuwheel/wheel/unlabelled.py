"""A variant wheel for tools that take no label in its name: pip, auditwheel, and uv where a path is given."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cuwheel.wheel.name import plain_name

if TYPE_CHECKING:
    from pathlib import Path


def unlabelled(wheel: Path, folder: Path) -> Path:
    """The same file under its plain name in `folder`, which is made for it; a plain wheel itself."""
    name = plain_name(wheel.name)
    if name == wheel.name:
        return wheel
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    try:
        place.symlink_to(wheel.absolute())
    except OSError:  # not every system lets everybody
        shutil.copyfile(wheel, place)
    return place
