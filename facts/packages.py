"""packages.toml against wheels: torch's own libraries by release, and the distributions that bring a module."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cuwheel.facts import packages
from cuwheel.facts.tables import tables
from facts import index
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.facts.rows.packages import ImportedAs
    from facts.index import Wheel

_FROM_WHEELS = "import-names"


def check() -> Iterator[Difference]:
    fitting = (each for each in index.wheels("torch") if "linux" in each.platform and each.cpu == "x86_64")
    torch = list({each.version: each for each in fitting if not each.version.local}.values())
    for wheel, names in zip(torch, index.at_once(index.directory, torch, "torch releases"), strict=True):
        yield from libraries_of_torch(wheel, names)
    for row in tables().packages.imported:
        if _FROM_WHEELS in row.source:
            yield from distribution_of_module(row)


def libraries_of_torch(wheel: Wheel, names: Sequence[str]) -> Iterator[Difference]:
    """What some row of torch says is not always needed, the row of each release that has it must say too."""
    rows = [row for row in tables().packages.profile if row.names == ("torch",)]
    profile = packages.find_profile("torch", str(wheel.version))
    named = (*profile.optional, *profile.linked) if profile else ()
    for pattern in sorted({each for row in rows for each in (*row.optional, *row.linked)} - {*named}):
        for name in names:
            if fnmatchcase(name, pattern):
                yield Difference("packages.toml", f"{wheel}: {name}", "nothing of it", "it is there")


def distribution_of_module(row: ImportedAs) -> Iterator[Difference]:
    """Whether the newest wheel has the module, or one that it requires has (cuda-python: cuda-bindings)."""
    wheels = index.wheels(row.distribution.partition("<")[0])
    newest = [each for each in wheels if each.version == wheels[-1].version]
    if not any(has_module(index.directory(each), row.module) for each in newest[:1]):
        name = newest[0].name if newest else row.distribution
        yield Difference("packages.toml", f"imported {row.module}", f"{name} brings it", "its newest wheel does not")


def has_module(names: Sequence[str], module: str) -> bool:
    """At the top of site-packages, or in a folder that the package puts on the path (win32 of pywin32)."""
    for name in names:
        *folders, last = name.partition(".data/")[2].split("/")[1:] if ".data/" in name else name.split("/")
        if module in folders[:1] or (len(folders) <= 1 and last.partition(".")[0] == module and last != module):
            return True
    return False
