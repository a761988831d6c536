"""libraries.toml against the zip directory of every release of every package."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel_core.facts import versions
from cuwheel_core.facts.rows.cuda_libraries import Only
from cuwheel_core.facts.tables import tables
from facts import index
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.facts.rows.cuda_libraries import Package
    from facts.index import Wheel

_LIBRARY = re.compile(r"lib[^/]+\.so(?:\.[^/]*)?|[^/]+\.dll", re.ASCII | re.IGNORECASE)
# What a library opens by itself, carries from others, or is for 32 bits: see the head of libraries.toml.
_LEFT_OUT = ("libucc*", f"*-{8 * '[0-9a-f]'}.so*", "cudart32_*")
_PLUGINS = ("/extensions", "/ucc")


def check() -> Iterator[Difference]:
    rows = [row for row in tables().libraries.package if row.cuda is not None]
    names = dict.fromkeys(row.name for row in rows)
    found = [wheel for wheels in index.at_once(index.wheels, names, "index pages") for wheel in wheels]
    for wheel, files in zip(found, index.at_once(index.directory, found, "directories of wheels"), strict=True):
        yield from differences(wheel, _libraries(files), [row for row in rows if row.name == wheel.name])


def _libraries(files: tuple[str, ...]) -> set[tuple[str, str]]:
    """The folder and the name of each."""
    split = (each.rpartition("/")[::2] for each in files)
    return {
        (folder, name)
        for folder, name in split
        if _LIBRARY.fullmatch(name)
        and not folder.endswith(_PLUGINS)
        and not any(fnmatchcase(name, pattern) for pattern in _LEFT_OUT)
    }


def differences(wheel: Wheel, libraries: set[tuple[str, str]], rows: list[Package]) -> Iterator[Difference]:
    """What a release has and the table does not, and the reverse."""
    release = str(wheel.version)
    row = next((each for each in rows if each.covers(release)), None)
    expected = _expected(row, release, wheel) if row else set()
    for folder, name in sorted(libraries):
        if not any(folder == place and fnmatchcase(name, pattern) for place, pattern in expected):
            yield Difference("libraries.toml", f"{wheel}: {name}", "nothing", f"it is in {folder}")
    for place, pattern in sorted(expected):
        if libraries and not any(folder == place and fnmatchcase(name, pattern) for folder, name in libraries):
            yield Difference("libraries.toml", f"{wheel}: {pattern}", f"it is in {place}", "it is not there")


def _expected(row: Package, release: str, wheel: Wheel) -> set[tuple[str, str]]:
    dlls = (wheel.cpu == "aarch64" and row.dll_folder_arm64) or row.dll_folder
    folder = dlls if wheel.windows else row.folder
    names = row.dlls if wheel.windows else row.sonames
    return {(folder, name) for name in names if _is_there(row.only.get(name, Only()), release, wheel.cpu)}


def _is_there(only: Only, release: str, cpu: str) -> bool:
    since = only.since is None or versions.at_least(release, only.since)
    below = only.below is None or not versions.at_least(release, only.below)
    return since and below and release not in only.but and only.cpu in (None, cpu)
