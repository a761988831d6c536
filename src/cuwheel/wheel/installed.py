"""Distributions that are installed: where an environment keeps them, and what their folders are called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.support import files
from cuwheel.wheel import metadata
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_BYTES = 1 << 28
_INFO = re.compile(r"(.+)-([^-]+)\.dist-info")
_SITE_PACKAGES = (
    *("lib/python3*/site-packages", "lib64/python3*/site-packages", "Lib/site-packages"),
    # Debian's Python, with what the system installs and what pip does.
    *("lib/python3*/dist-packages", "local/lib/python3*/dist-packages", "lib/python3/dist-packages"),
)


class Installed(NamedTuple):
    """`name` is normalised; `info`: its dist-info folder."""

    name: str
    version: str
    info: Path


def site_packages(prefix: Path) -> tuple[Path, ...]:
    """The folders where an environment, or a prefix such as /usr, has its packages."""
    found = (folder for pattern in _SITE_PACKAGES for folder in sorted(prefix.glob(pattern)))
    return tuple(dict.fromkeys(folder.resolve() for folder in found))


def of(info: Path) -> Installed | None:
    """By the name of the folder alone; None where that is not one of a distribution."""
    match = _INFO.fullmatch(info.name)
    return Installed(normalised(match[1]), match[2], info) if match else None


def distributions(folder: Path) -> Iterator[Installed]:
    """All in a site-packages folder, in the order of their names."""
    return (found for path in sorted(folder.glob("*.dist-info"), key=lambda path: path.name) if (found := of(path)))


def text(info: Path, name: str) -> str:
    """A file of the dist-info folder; empty where it cannot be read."""
    return files.head(info / name, _MOST_BYTES)


def recorded_files(info: Path) -> Iterator[str]:
    """The paths of RECORD, as written: relative to the folder that holds the dist-info."""
    return metadata.recorded_files(text(info, "RECORD"))


def owner(file: Path) -> Installed | None:
    """The distribution whose RECORD lists a file: that of the nearest folder above it with distributions."""
    for folder in file.parents:
        found = list(distributions(folder))
        if not found:
            continue
        row = f"{file.relative_to(folder).as_posix()},"
        return next((each for each in found if _lists(each.info / "RECORD", row)), None)
    return None


def _lists(record: Path, row: str) -> bool:
    try:
        with record.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(row) for line in file)
    except OSError:
        return False
