"""Shims where a build looks for compilers, for machines on which programs cannot be made to load our library.

A folder of shims stands before PATH, with one for each compiler that is really there. A toolkit gets a shadow: a folder
with a shim for nvcc, and links to all the rest. Both stay in the cache, since build folders remember what they found;
without a record under way the shims only step aside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import words
from cuwheel.support import files, system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    Fill: TypeAlias = Callable[[Path], None]

SHIMS_MARK = ".cuwheel-shims"  # these three as in shim/surroundings.h
TOOLKIT_LINK = ".cuwheel-toolkit"
PROGRAM_LINK = ".cuwheel-program"

_ROOTS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR")
_PROGRAMS = ("CUDACXX", "CC", "CXX", "FC", "CUDA_NVCC_EXECUTABLE", "NVCC")


def led(home: Path, shim: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with shims in place of compilers."""
    made = _Made(home, shim)
    result = dict(environ)
    for name in _ROOTS:
        if (root := environ.get(name)) and _is_toolkit(Path(root)):
            result[name] = str(made.toolkit(Path(root)))
    for name in _PROGRAMS:
        if value := environ.get(name):
            result[name] = made.program(value)
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    names = sorted(_tools(folders))
    result["PATH"] = os.pathsep.join([str(made.shims(names)), *_path(folders, made)])
    return result


def _path(folders: list[str], made: _Made) -> Iterator[str]:
    for folder in folders:
        if folder and Path(folder).name == "bin" and _is_toolkit(Path(folder).parent):
            yield str(made.toolkit(Path(folder).parent) / "bin")
        yield folder


def _tools(folders: list[str]) -> set[str]:
    """The compilers that are really there: one that is not must not be found. Toolkits are led to by themselves."""
    found: dict[str, bool] = {}
    for folder in filter(None, folders):
        shadowed = Path(folder).name == "bin" and _is_toolkit(Path(folder).parent)
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if words.tool(entry.name) and os.access(entry, os.X_OK):
                    found.setdefault(entry.name, shadowed and entry.name == "nvcc")
    return {name for name, led_to in found.items() if not led_to}


def _is_toolkit(root: Path) -> bool:
    return root.is_absolute() and (root / "bin" / "nvcc").is_file() and (root / "bin" / "nvcc.profile").is_file()


class _Made:
    """Folders below the cache."""

    def __init__(self, home: Path, shim: Path) -> None:
        self._home, self._shim = home / "record", shim

    def shims(self, names: list[str]) -> Path:
        def fill(folder: Path) -> None:
            (folder / SHIMS_MARK).touch()
            for name in names:
                (folder / name).symlink_to(self._shim)

        return self._folder("shims", "\0".join(names), fill)

    def toolkit(self, root: Path) -> Path:
        real = root.resolve()

        def fill(folder: Path) -> None:
            (folder / TOOLKIT_LINK).symlink_to(real)
            for entry in real.iterdir():
                if entry.name != "bin":
                    (folder / entry.name).symlink_to(entry)
            (folder / "bin").mkdir()
            (folder / "bin" / SHIMS_MARK).touch()
            for entry in (real / "bin").iterdir():
                if entry.name not in ("nvcc", "nvcc.profile"):
                    (folder / "bin" / entry.name).symlink_to(entry)
            # Scripts look beside nvcc for it, and follow links to somewhere else.
            shutil.copyfile(real / "bin" / "nvcc.profile", folder / "bin" / "nvcc.profile")
            (folder / "bin" / "nvcc").symlink_to(self._shim)

        return self._folder("toolkits", f"{real}\0{real.stat().st_mtime_ns}", fill)

    def program(self, value: str) -> str:
        """A compiler by its path. Words behind it (`ccache g++`) and bare names are for PATH to find."""
        path = Path(value)
        if not path.is_absolute() or not words.tool(path.name) or not path.is_file():
            return value
        if path.name == "nvcc" and path.parent.name == "bin" and _is_toolkit(path.parent.parent):
            return str(self.toolkit(path.parent.parent) / "bin" / "nvcc")

        def fill(folder: Path) -> None:
            (folder / SHIMS_MARK).touch()
            (folder / PROGRAM_LINK).symlink_to(path)
            (folder / path.name).symlink_to(self._shim)

        return str(self._folder("programs", value, fill) / path.name)

    def _folder(self, kind: str, key: str, fill: Fill) -> Path:
        return made_folder(self._home / kind, self._shim, key, fill)


def made_folder(place: Path, shim: Path, key: str, fill: Fill) -> Path:
    """Made whole beside and then renamed; the same again is the same folder. Another shim makes another."""
    digest = files.sha256_of(f"{shim}\0{key}".encode(errors="surrogateescape"))[:16]
    target = place / digest
    if not target.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".", dir=place))
        try:
            beside.chmod(0o755)
            fill(beside)
            with contextlib.suppress(OSError):  # another cuwheel was first
                # Scanners of Windows look at new programs for a while, and pathlib's would replace it elsewhere.
                (system_calls.rename_over if os.name == "nt" else os.rename)(beside, target)
            if not target.is_dir():
                raise OSError(errno.EACCES, "cannot be made", str(target))
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return target
