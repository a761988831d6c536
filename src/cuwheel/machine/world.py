"""The seam between the probes and the machine: a root folder, an environment, and a way to run programs.

Probes ask only this, so that a test can hand them a folder made to look like a Jetson.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel import process
from cuwheel.errors import CuwheelError
from cuwheel.machine.profile import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A probe reads headers and one-line files; nothing it wants is larger.
_MAX_TEXT = 4 * 1024 * 1024
_VERSION_TIMEOUT_S = 5.0


class World(Struct, kw_only=True):
    environ: Mapping[str, str]
    cwd: Path
    root: Path = Path("/")
    platform: str = sys.platform
    cpu: str = ""
    libc_version: str | None = None
    run: Callable[..., process.Completed] = process.run
    trail: list[Attempt] = field(default_factory=list)

    @classmethod
    def here(cls) -> World:
        import platform  # noqa: PLC0415 - slow to import, needed once

        return cls(
            environ=os.environ,
            cwd=Path.cwd(),
            cpu=platform.machine().lower().replace("amd64", "x86_64"),
            libc_version=_libc_version(),
        )

    def note(self, fact: str, tried: str, outcome: str) -> None:
        self.trail.append(Attempt(fact=fact, tried=tried, outcome=outcome))

    def path(self, absolute: str | Path) -> Path:
        """A path of the machine as a path that can be opened."""
        return self.root / str(absolute).lstrip("/") if self.root != Path("/") else Path(absolute)

    def shown(self, path: Path) -> str:
        """The inverse of `path`."""
        if self.root != Path("/") and path.is_relative_to(self.root):
            return "/" + str(path.relative_to(self.root))
        return str(path)

    def text(self, absolute: str | Path) -> str | None:
        """The file's text, or None where there is none to be read. NULs are device-tree separators."""
        try:
            with self.path(absolute).open("rb") as file:
                return file.read(_MAX_TEXT).decode(errors="replace").replace("\0", "\n").strip()
        except OSError:
            return None

    def exists(self, absolute: str | Path) -> bool:
        try:
            return self.path(absolute).exists()
        except OSError:
            return False

    def glob(self, folder: str | Path, pattern: str) -> list[Path]:
        """Sorted; a folder that cannot be read is empty."""
        try:
            return sorted(self.path(folder).glob(pattern))
        except OSError:
            return []

    def path_folders(self) -> Iterator[Path]:
        for entry in dict.fromkeys(self.environ.get("PATH", "").split(os.pathsep)):
            if entry:
                yield self.path(entry)

    def which_all(self, name: str) -> list[Path]:
        """Every program of that name on PATH, the one that wins first."""
        suffixes = (".exe", "") if self.platform == "win32" else ("",)
        found = []
        for folder in self.path_folders():
            for suffix in suffixes:
                candidate = folder / (name + suffix)
                if candidate.is_file() and os.access(candidate, os.X_OK):
                    found.append(candidate)
        return found

    def output(self, command: Sequence[str | Path], fact: str) -> str | None:
        """What a program prints about itself, or None, with the reason in the trail."""
        try:
            completed = self.run(command, timeout=_VERSION_TIMEOUT_S, check=True)
        except CuwheelError as error:
            self.note(fact, " ".join(map(str, command)), error.message)
            return None
        return completed.stdout + completed.stderr


def _libc_version() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" else None
