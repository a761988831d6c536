"""Files and folders as options name them: looked at before any work, so that a slip costs nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cuwheel.errors import UsageError

_LONGEST_NAME = 255  # bytes, of one part of a path
_SHOWN = 60
_SCHEMES = ("http", "https", "file")


def shortened(text: str) -> str:
    """As much as a message can hold of a text that somebody gave."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _mode(text: str) -> int | None:
    """What is there; None where nothing is."""
    try:
        return Path(text).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if any(len(part) > _LONGEST_NAME for part in Path(text).parts):  # of which Windows says no more than that
            raise UsageError(f"{shortened(text)}: file name too long") from None
        return None
    except OSError as error:
        raise UsageError(f"{shortened(text)}: {error.strerror or error}") from None


def exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or in a folder that cannot be read (permission denied)
        return False


def is_folder(text: str) -> bool:
    return exists(text) and Path(text).is_dir()


def file(text: str) -> Path:
    """A file to read."""
    mode = _mode(text)
    if mode is None:
        raise UsageError(f"{shortened(text)}: no such file")
    if stat.S_ISDIR(mode):
        raise UsageError(f"{text} is a folder, not a file")
    if not stat.S_ISREG(mode):  # a pipe would make us wait for ever
        raise UsageError(f"{text} is not a regular file")
    if not os.access(text, os.R_OK):
        raise UsageError(f"{text} cannot be read (permission denied)")
    return Path(text)


def file_or_folder(text: str) -> Path:
    """To read, or to read in."""
    return Path(text) if is_folder(text) else file(text)


def file_of(text: str, hint: str) -> Path:
    """The same, for what is told apart only when the verb runs; `hint`: what to give."""
    try:
        return file(text)
    except UsageError as error:
        raise UsageError(error.lines, error.hint_parts or hint) from None


def file_name(text: str) -> str:
    return str(file(text))


def folder(text: str) -> Path:
    """A folder that is there."""
    mode = _mode(text)
    if mode is None:
        raise UsageError(f"{shortened(text)}: no such folder")
    if not stat.S_ISDIR(mode):
        raise UsageError(f"{text} is not a folder")
    if not os.access(text, os.R_OK | os.X_OK):
        raise UsageError(f"{text} cannot be read (permission denied)")
    return Path(text)


def new_file(text: str) -> Path:
    """A file to write, in a folder that is there."""
    mode = _mode(text)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{text} is a folder, not a file")
    parent = Path(text).parent
    if not parent.is_dir():
        raise UsageError(f"{shortened(text)}: no such folder: {shortened(str(parent))}")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{text}: the folder {parent} is not writable")
    return Path(text)


def lock_file(text: str) -> Path:
    """A file to write, whose folder is made where it is not there."""
    mode = _mode(text)
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{text} is a folder, not a file")
    new_folder(str(Path(text).parent))
    return Path(text)


def new_folder(text: str) -> Path:
    """A folder to write into, which may not be there yet."""
    path = Path(text)
    for place in (path, *path.parents):
        mode = _mode(str(place))
        if mode is None:
            continue
        if not stat.S_ISDIR(mode):
            raise UsageError(f"{shortened(str(place))} is not a folder")
        if not os.access(place, os.W_OK):
            raise UsageError(f"{shortened(text)}: the folder {place} is not writable")
        break
    return path


def new_file_or_folder(text: str) -> Path:
    mode = _mode(text)
    return Path(text) if mode is not None and stat.S_ISREG(mode) else new_folder(text)


def environment(text: str) -> Path:
    """A Python environment."""
    from cuwheel.machine import python_environment as environments
    from cuwheel.machine import world
    from cuwheel.support import quoting
    from cuwheel_core.errors import UnreadableError

    if _mode(text) is None:
        raise UsageError(
            f"{shortened(text)}: no such folder", hint=f"{quoting.here(['python3', '-m', 'venv', text])} makes one"
        )
    path = folder(text)
    try:
        environments.locate(world.World.here(), path)
    except UnreadableError as error:
        raise UsageError(error.lines, error.hint_parts) from None
    return path


def packages(text: str) -> Path:
    """A Python environment, or the folder of its packages itself."""
    path = folder(text)
    if any(path.glob("*.dist-info")):
        return path
    return environment(text)


def place(text: str) -> str:
    """A folder, or the address of one on a server."""
    from urllib.parse import urlsplit

    parsed = urlsplit(text)
    if parsed.scheme in _SCHEMES and (parsed.netloc or parsed.scheme == "file"):
        return text
    if parsed.scheme and "//" in text:
        raise UsageError(f"{shortened(text)!r} is not a URL: it must begin with https:// or http://")
    folder(text)
    return text


def catalogue(text: str) -> str:
    """Reads the place of a catalogue as `place` does, or `none`."""
    return text if text == "none" else place(text)


def copy_place(text: str) -> str:
    """A folder to copy into, or HOST:FOLDER for rsync."""
    if "://" in text or not text.strip():
        raise UsageError(f"{shortened(text)!r} is neither a folder nor HOST:FOLDER", hint="--copy-to host:/srv/wheels")
    if ":" not in text or Path(text).drive:
        new_folder(text)
    return text


def links(text: str) -> str:
    """A folder of files, or a page that links to them, here or on a server."""
    if "://" in text or is_folder(text):
        return place(text)
    file(text)
    return text


def program(text: str) -> str:
    """Reads the path of a program, or a name on PATH."""
    import shutil

    if shutil.which(text) is None:
        raise UsageError(f"program not found: {shortened(text)!r}", hint="cuwheel doctor shows the compilers here")
    return text
