"""The Python environments that are measured: those that are there, and those made for the wheels of an axis."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import UnreadableError
from cuwheel.network import venvs
from cuwheel.proving.measuring.journal import Package
from cuwheel.support import codec, files
from cuwheel.wheel import metadata
from cuwheel.wheel.metadata import WheelName, normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_READY = "ready.json"
_LED_ASTRAY = ("PYTHONHOME", "PYTHONPATH")


class Environment(Struct, frozen=True, kw_only=True):
    """`folder`: None for whatever Python is on PATH."""

    folder: str | None
    packages: tuple[Package, ...] = ()

    @property
    def python(self) -> str:
        if self.folder:
            return str(venvs.interpreter(Path(self.folder)))
        return shutil.which("python3") or sys.executable

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """As `activate` would set the variables."""
        if not self.folder:
            return dict(environ)
        kept = {name: value for name, value in environ.items() if name not in _LED_ASTRAY}
        path = os.pathsep.join(filter(None, [str(Path(self.python).parent), environ.get("PATH", os.defpath)]))
        return {**kept, "VIRTUAL_ENV": self.folder, "PATH": path}


def prepared(env: str | None, install: Sequence[str], source: Path, to: Path) -> Environment:
    """The environment with these wheels and requirements; `source`: from where files are named.

    Where there is a base it is not touched: the wheels lie in an environment of their own before it, without what they
    require, which the base has. Made once: a campaign that is resumed finds it again.
    """
    if not install:
        return Environment(folder=env, packages=_packages(Path(env), {}) if env else ())
    wanted = [str(source / each) if _is_file(source / each) else each for each in install]
    hashes = {each: files.sha256(Path(each)) for each in wanted if _is_file(Path(each))}
    key = hashlib.sha256(repr((env, wanted, sorted(hashes.items()))).encode()).hexdigest()[:16]
    folder = to / key
    if not (folder / _READY).is_file():
        _make(folder, env, wanted)
        files.write(folder / _READY, codec.encode_any(wanted), durable=True)
    return Environment(folder=str(folder), packages=_packages(folder, hashes))


def _make(folder: Path, env: str | None, wanted: Sequence[str]) -> None:
    base = venvs.interpreter(Path(env)) if env else None
    version = venvs.version_of(base) if base else None
    if base and version is None:
        raise UnreadableError(base, "does not run", hint="check the environment: bin/python --version")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        interpreter = venvs.make(folder, venvs.find_python(version))
        if env:
            below = [str(site) for site in metadata.site_packages(Path(env))]
            for site in metadata.site_packages(folder):
                (site / "cuwheel-base.pth").write_text("".join(f"{each}\n" for each in below), encoding="utf-8")
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    venvs.install(interpreter, list(wanted), dependencies=env is None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a requirement is not a path
        return False


def _packages(folder: Path, hashes: Mapping[str, str]) -> tuple[Package, ...]:
    """`hashes`: of the wheels that were installed as files."""
    named = {
        (normalised(name.name), name.version): digest
        for path, digest in hashes.items()
        if (name := WheelName.parse(Path(path).name))
    }
    return tuple(
        Package(
            name=each.name,
            version=each.version,
            sha256=named.get((each.name, each.version)),
            record=_record(each.info / "RECORD"),
        )
        for site in metadata.site_packages(folder)
        for each in metadata.distributions(site)
    )


def _record(path: Path) -> str | None:
    return files.sha256(path) if path.is_file() else None
