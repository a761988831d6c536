"""Our own C: as it ships, compiled before cuwheel was packed; else compiled once here with the compiler at hand."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from cuwheel.errors import ToolError, ToolTimeoutError
from cuwheel.support import log, process

_COMPILERS = ("cc", "gcc", "clang", "c++", "g++")
_COMPILE_S = 120
# Beside the sources, made by `./run prebuild`: nothing in it is committed, all of it is in the wheel.
PREBUILT = "prebuilt"
ORIGIN = "built-from.txt"


def home(cache: Path) -> Path:
    """The cache, unless the loader could not take its name: LD_PRELOAD is a list, with blanks and colons between."""
    if not any(letter in str(cache) for letter in " :"):
        return cache
    home = Path(f"/tmp/cuwheel-{os.getuid()}")  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
    found = home.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return home if ours else cache


def digest(sources: Path, *generated: str) -> str:
    """A hash over the sources, and what decides whether what was made elsewhere runs here: processor and libc."""
    libc = ""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    parts = (platform.machine(), libc, source_digest(sources, *generated))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def source_digest(sources: Path, *generated: str) -> str:
    """A hash over the C in a folder and what is generated beside it, wherever it was checked out."""
    found = hashlib.sha256()
    for source in sorted(sources.glob("*.[ch]")):
        found.update(source.name.encode() + b"\0" + source.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    for text in generated:
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def prebuilt(place: Path, digest: str) -> dict[str, Path]:
    """What ships in a folder, by its name; nothing where it was made from other sources than the digest's."""
    try:
        fresh = (place / ORIGIN).read_text(encoding="ascii").strip() == digest
    except OSError:
        return {}
    return {each.name: each for each in sorted(place.iterdir()) if each.name != ORIGIN} if fresh else {}


def compilers(environ: Mapping[str, str]) -> Iterator[str]:
    path = environ.get("PATH", os.defpath)
    wished = environ.get("CC", "").split()
    for name in (*wished[:1], *_COMPILERS):
        if found := shutil.which(name, path=path):
            yield found


def compiled(command: list[str | Path], environ: Mapping[str, str]) -> bool:
    try:
        done = process.run(command, timeout=_COMPILE_S, check=False, env=environ)
    except (ToolError, ToolTimeoutError) as error:
        log.debug("%s", error.message)
        return False
    if done.status:
        log.debug("%s failed: %s", command[0], done.stderr)
    return done.status == 0
