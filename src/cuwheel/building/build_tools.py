"""CMake and ninja for a job: the system's where they will do, else from the index into its environment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError
from cuwheel.facts import toolkits, versions
from cuwheel.support import process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.facts.arch import Arch

_ASK_S = 20.0
_VERSION = re.compile(r"(\d+(?:\.\d+)+)")
_MINIMUM = re.compile(r"^\s*cmake_minimum_required\s*\(\s*VERSION\s+(\d+(?:\.\d+)*)", re.IGNORECASE | re.MULTILINE)
_WITH_CMAKE = ("cmake", "scikit-build-core")
_WITH_NINJA = (*_WITH_CMAKE, "torch")


def requirements(
    backend: str, before: Sequence[str], archs: Iterable[Arch], minimum: str, there: Mapping[str, str]
) -> Iterator[str]:
    """`there`: the versions of these programs that the job finds anyway. `minimum`: of CMake, by its sources."""
    uses_cmake = backend in _WITH_CMAKE or any(re.search(r"\bcmake\b", each) for each in before)
    if uses_cmake:
        found = there.get("cmake")
        least = _least(archs, minimum, found)
        if found is None:
            yield f"cmake>={least}" if least else "cmake"
        elif least:
            yield f"cmake>={least}"
    if (uses_cmake or backend in _WITH_NINJA) and "ninja" not in there:
        yield "ninja"


def _least(archs: Iterable[Arch], minimum: str, found: str | None) -> str:
    """The version that is asked for; empty where what was found will do."""
    kinds = {each.suffix or "plain" for each in archs}
    wanted = [
        toolkits.find_cmake_spelling(kind).since
        for kind in kinds
        if found is None or not toolkits.cmake_takes(found, kind)
    ]
    if minimum and not (found and versions.at_least(found, minimum)):
        wanted.append(minimum)
    return max(wanted, key=versions.key, default="")


def minimum(folder: Path, files: Iterable[str]) -> str:
    """The newest CMake that a CMakeLists.txt at the top or one folder below it asks for."""
    found = []
    for name in files:
        if name.rpartition("/")[2] == "CMakeLists.txt" and name.count("/") <= 1:
            try:
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            found += _MINIMUM.findall(text)
    return max(found, key=versions.key, default="")


def there(folders: Sequence[str], links: Mapping[str, str]) -> dict[str, str]:
    """The versions of cmake and ninja on the path of a job."""
    from pathlib import Path  # noqa: PLC0415 - annotations alone need it above

    found = {}
    for name in ("cmake", "ninja"):
        places = [links[name]] if name in links else [str(Path(each, name)) for each in folders]
        for place in places:
            if version := _asked(place) if Path(place).is_file() else None:
                found[name] = version
                break
    return found


def _asked(program: str) -> str | None:
    try:
        match = _VERSION.search(process.run([program, "--version"], timeout=_ASK_S).stdout)
    except CuwheelError:
        return None
    return match[1] if match else None
