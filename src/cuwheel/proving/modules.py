"""The modules that a wheel brings, as far as a person would import them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.device_code import limits
from cuwheel.wheel.file import installed_names
from cuwheel.wheel.metadata import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.wheel.file import WheelFile

# What lies at the top of wheels by mistake, and is not meant to be imported.
_NOT_MEANT = frozenset(
    {"tests", "test", "testing", "docs", "doc", "examples", "benchmarks", "scripts", "setup", "conftest"}
)
_EXTENSION = re.compile(r"(?:\.cpython-[^./]+|\.abi3|\.cp\d[^./]*)?\.(?:so|pyd)$", re.ASCII)
_MOST = 20
_DEEPEST = 3


def top_level(wheel: WheelFile) -> tuple[str, ...]:
    """The packages and modules at its top; inside a folder that is shared with others (nvidia/…), those below it."""
    own = wheel.info.removesuffix(".dist-info/").partition("-")[0]
    return of_files(installed_names(wheel.sizes).values(), own, wheel.top_level or "")


def of_files(places: Iterable[str], distribution: str, listed: str = "") -> tuple[str, ...]:
    """The same of files below site-packages. `listed`: what top_level.txt says."""
    found = _found(places)
    named = [line.strip() for line in listed.splitlines() if line.strip()]
    if named and set(named) <= set(found):
        found = [name for name in found if name in named]
    own = normalised(distribution)
    found = [name for name in found if name not in _NOT_MEANT]
    # The one that is called like the distribution first; the private ones, which it imports itself, last.
    found.sort(key=lambda name: (normalised(name) != own, name.startswith("_"), name))
    return tuple(limits.first(found, _MOST, "modules were imported", "the rest were not tried"))


def _found(places: Iterable[str]) -> list[str]:
    packages: set[str] = set()
    modules: set[str] = set()
    for place in places:
        folder, _, name = place.rpartition("/")
        if name in ("__init__.py", "__init__.pyc"):
            packages.add(folder)
        elif module := _module(name):
            modules.add(f"{folder}/{module}".lstrip("/"))
    tops = [each for each in packages if not _inside(each, packages)]
    tops += [each for each in modules if "/" not in each and each not in packages]
    # A folder without __init__.py holds modules too, if something of ours is right in it.
    if not tops:
        tops = [each for each in modules if not _inside(each, packages)]
    shallow = min((each.count("/") for each in tops), default=0)
    names = {
        each.replace("/", ".") for each in tops if each.count("/") <= max(shallow, 1) and each.count("/") < _DEEPEST
    }
    return sorted(name for name in names if all(part.isidentifier() for part in name.split(".")))


def _module(name: str) -> str:
    if name.endswith(".py"):
        return name.removesuffix(".py")
    match = _EXTENSION.search(name)
    # libfoo.so is for the linker or for ctypes; a module is never called so.
    return name[: match.start()] if match and not name.startswith("lib") else ""


def _inside(path: str, packages: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:count]) in packages for count in range(1, len(parts)))
