"""The seam between the probes and the machine: a root folder, an environment, and a way to run programs.

Probes ask only this, so that a test can hand them a folder made to look like a Jetson.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from cuwheel.machine.profile import Attempt
from cuwheel.support import process, quoting
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support import opening
from cuwheel_core.wheel.tags import processor_name

# A probe reads headers and one-line files; nothing it wants is larger.
_MAX_TEXT = 4 * 1024 * 1024
_VERSION_TIMEOUT_S = 5.0
_SERVER, _WINDOWS_11 = 3, 22000


class World(Struct, kw_only=True):
    environ: Mapping[str, str]
    cwd: Path
    root: Path = Path("/")
    platform: str = sys.platform
    cpu: str = ""
    libc_version: str | None = None
    system_version: str | None = None
    shell: quoting.Shell | None = None
    run: Callable[..., process.Completed] = process.run
    trail: list[Attempt] = field(default_factory=list)

    @classmethod
    def here(cls) -> World:
        return cls(
            environ=os.environ,
            cwd=Path.cwd(),
            cpu=_cpu(),
            libc_version=_libc_version(),
            system_version=_windows_version(),
            shell=quoting.shell_here(),
        )

    def note(self, fact: str, tried: str, outcome: str) -> None:
        self.trail.append(Attempt(fact=fact, tried=tried, outcome=outcome))

    def path(self, absolute: str | Path) -> Path:
        """A path of the machine as a path that can be opened. In a folder that is made to look like one, C: is that."""
        if self.root == Path("/"):
            return Path(absolute)
        text = str(absolute)
        if self.platform == "win32":
            text = text.replace("\\", "/").removeprefix("C:")
        return self.root / text.lstrip("/")

    def shown(self, path: Path) -> str:
        """The inverse of `path`."""
        if self.root == Path("/") or not path.is_relative_to(self.root):
            return str(path)
        inside = path.relative_to(self.root)
        return "C:\\" + "\\".join(inside.parts) if self.platform == "win32" else f"/{inside.as_posix()}"

    def entries(self, name: str) -> list[str]:
        """The folders that a variable lists."""
        found = self.environ.get(name, "").split(";" if self.platform == "win32" else ":")
        return [each for each in dict.fromkeys(found) if each]

    def text(self, absolute: str | Path) -> str | None:
        """The file's text, or None where there is none to be read. NULs are device-tree separators."""
        try:
            with self.path(absolute).open("rb") as file:
                return opening.read_up_to(file, _MAX_TEXT).decode(errors="replace").replace("\0", "\n").strip()
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
        yield from map(self.path, self.entries("PATH"))

    def which_all(self, name: str) -> list[Path]:
        """Every program of that name on PATH, the one that wins first."""
        suffixes = (".exe", ".cmd", ".bat", "") if self.platform == "win32" else ("",)
        found = []
        for folder in self.path_folders():
            for suffix in suffixes:
                candidate = folder / (name + suffix)
                if opening.is_file(candidate) and os.access(candidate, os.X_OK):
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


def _windows_version() -> str | None:
    """Such as `Windows 11 (10.0.26100)`: it still calls itself 10.0, and its build tells."""
    if sys.platform == "win32":
        found = sys.getwindowsversion()
        name = "Server" if found.product_type == _SERVER else "11" if found.build >= _WINDOWS_11 else str(found.major)
        return f"Windows {name} ({found.major}.{found.minor}.{found.build})"
    return None


def _cpu() -> str:
    """On Windows without `platform`, which starts a program there."""
    import platform  # noqa: PLC0415 - slow to import, needed once

    named = os.environ.get("PROCESSOR_ARCHITEW6432") or os.environ.get("PROCESSOR_ARCHITECTURE") or ""
    return processor_name(named if os.name == "nt" else platform.machine())


def _libc_version() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" else None
