"""Paths that a record or a log names: of the machine where it was made, which may be Windows while this is Linux."""

from __future__ import annotations

import ntpath
import posixpath
import re

_OF_WINDOWS = re.compile(r"[A-Za-z]:(?:[\\/]|$)|\\\\[^\\]|//[?.]/|~\\")


def is_of_windows(path: str) -> bool:
    """Whether it begins as only paths of Windows do: `C:\\`, `C:/`, `\\\\server\\share`, `\\\\?\\`, `~\\`."""
    return bool(_OF_WINDOWS.match(path))


def joined(folder: str, path: str) -> str:
    """`path` as seen from `folder`, both of one machine, by its rules."""
    if is_of_windows(path) or not path:
        return path or folder
    return ntpath.join(folder, path) if is_of_windows(folder) else posixpath.join(folder, path)
