"""Stand-ins where a build on Windows looks for nvcc, for builds that cannot be watched.

A toolkit gets a shadow: a folder whose `bin` has our stand-in under each program's name, and links to all the rest.
Host compilers get none: nvcc complains where the cl.exe on PATH is another than its own.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import shadow
from cuwheel.support import log, system_calls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOTS = re.compile(r"CUDA_HOME|CUDA_PATH(?:_V\d+_\d+)?|CUDA_ROOT|CUDATOOLKIT_ROOT|CUDA_TOOLKIT_ROOT_DIR|CUDA_BIN_PATH")
_PROGRAMS = ("CUDACXX", "CUDA_NVCC_EXECUTABLE", "NVCC")


def led(home: Path, stand_in: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with stand-ins in place of nvcc. Names of variables in capitals, as Python has them there."""
    made = _Made(home, stand_in)
    result = dict(environ)
    for name, value in environ.items():
        if _ROOTS.fullmatch(name) and is_toolkit(Path(value)):
            result[name] = str(made.toolkit(Path(value)) or value)
    for name in _PROGRAMS:
        if name in environ:
            result[name] = made.program(environ[name])
    result["PATH"] = ";".join(_path(environ.get("PATH", "").split(";"), made))
    return result


def is_toolkit(root: Path) -> bool:
    return root.is_absolute() and (root / "bin" / "nvcc.exe").is_file() and (root / "bin" / "nvcc.profile").is_file()


def _path(folders: list[str], made: _Made) -> Iterator[str]:
    """The real folder stays behind the shadow's: its libraries are found there."""
    for folder in folders:
        root = Path(folder.strip('"')).parent
        if folder and Path(folder.strip('"')).name.lower() == "bin" and is_toolkit(root):
            yield str(made.programs(root))
        yield folder


class _Made:
    def __init__(self, home: Path, stand_in: Path) -> None:
        self._home, self._stand_in = home / "record", stand_in

    def toolkit(self, root: Path) -> Path | None:
        """The whole; None where this disk has no links to folders, and a variable that leads here stays as it is."""

        def fill(folder: Path) -> None:
            self._fill(folder, root)
            for entry in root.iterdir():
                if entry.is_dir() and entry.name.lower() != "bin":
                    system_calls.link_folder(entry, folder / entry.name)
                elif entry.is_file():
                    shutil.copyfile(entry, folder / entry.name)
            for entry in (root / "bin").iterdir():
                if entry.is_dir():
                    system_calls.link_folder(entry, folder / "bin" / entry.name)

        try:
            return self._folder("toolkits", root, fill)
        except OSError as error:
            log.debug("%s: no shadow of it can be made: %s", root, error)
            return None

    def programs(self, root: Path) -> Path:
        """Its `bin` alone, which PATH leads to."""
        whole = self.toolkit(root)
        return (whole or self._folder("programs", root, lambda folder: self._fill(folder, root))) / "bin"

    def program(self, value: str) -> str:
        """nvcc by its path; bare names are for PATH to find."""
        path = Path(value)
        root = path.parent.parent
        if path.name.lower() in ("nvcc", "nvcc.exe") and path.parent.name.lower() == "bin" and is_toolkit(root):
            return str(self.programs(root) / "nvcc.exe")
        return value

    def _fill(self, folder: Path, root: Path) -> None:
        (folder / shadow.TOOLKIT_LINK).write_text(str(root), encoding="utf-8")
        (folder / "bin").mkdir()
        (folder / "bin" / shadow.SHIMS_MARK).touch()
        for entry in (root / "bin").iterdir():
            if entry.suffix.lower() == ".exe":
                shutil.copyfile(self._stand_in, folder / "bin" / entry.name)
        shutil.copyfile(root / "bin" / "nvcc.profile", folder / "bin" / "nvcc.profile")

    def _folder(self, kind: str, root: Path, fill: shadow.Fill) -> Path:
        key = f"{root}\0{(root / 'bin').stat().st_mtime_ns}"
        return shadow.made_folder(self._home / kind, self._stand_in, key, fill)
