"""Paths and files that a stranger's folder or archive names: never outside it, never through a link out of it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from cuwheel import system_calls
from cuwheel.errors import MalformedError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from tarfile import TarFile, TarInfo

_JUNCTION = 0xA0000003  # Windows' link of a folder, which Python takes for a folder
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE | re.ASCII)


def inside(root: Path, name: str, source: Path) -> Path:
    """The file below `root` that `source` calls `name`; `root` is resolved.

    Links on the way may lead elsewhere below the root. The file itself may be a link: its user acts on the
    link, not on what it names.
    """
    path = root / name
    parts = name.split("/")
    wrong = "\0" in name or not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if wrong or (os.name == "nt" and strange_on_windows(name)):
        raise MalformedError(source, f"points outside its folder: {name!r}")
    if not leads_inside(root, path.parent):
        raise MalformedError(source, f"has a link that leads out of its folder: {name!r}")
    return path


def strange_on_windows(name: str) -> bool:
    """Whether Windows reads more into a name than others do: a drive, a stream, a device, another stroke."""
    parts = name.rstrip("/").split("/")
    return "\\" in name or ":" in name or any(_DEVICE.fullmatch(part) or part != part.rstrip(". ") for part in parts)


def leads_inside(root: Path, path: Path) -> bool:
    """Whether `path`, with all links followed, is `root` or below it; `root` is resolved."""
    try:
        found = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    return found == root or root in found.parents


def place_of_member(root: Path, name: str, archive: Path) -> Path:
    """Where a member of an archive goes, below `root`, which is resolved. Its folder is made.

    Not one behind a link: a link that the archive brought may lead anywhere.
    """
    place = root / name
    outside = ".." in PurePosixPath(name).parts or name.startswith(("/", "\\"))
    if outside or (os.name == "nt" and strange_on_windows(name)):
        raise MalformedError(archive, f"has {name!r}, which is outside the archive")
    if place.parent.resolve() != place.parent:
        raise MalformedError(archive, f"has {name!r} behind a link")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def unpack_member(
    tar: TarFile, member: TarInfo, place: Path, root: Path, write: Callable[[IO[bytes], Path], None]
) -> None:
    """A member of a tar file at `place`. `write`: what puts the contents of a file there."""
    archive = Path(str(tar.name))
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
    elif member.issym():
        end = Path(os.path.normpath(place.parent / member.linkname))
        if member.linkname.startswith("/") or root not in (end, *end.parents):
            raise MalformedError(archive, f"has a link {member.name!r} to {member.linkname!r}, outside the archive")
        place.unlink(missing_ok=True)
        place.symlink_to(member.linkname)
    elif member.isfile() or member.islnk():
        contents = tar.extractfile(member)  # of a hard link: of what it names within the archive
        if contents is None:
            raise MalformedError(archive, f"has {member.name!r} without contents")
        with contents:
            write(contents, place)
    else:
        raise MalformedError(archive, f"has {member.name!r}, which is not a file, folder or link")


def must_be_a_folder(path: Path) -> bool:
    """Whether it is there; an error where it is a link or a file, which would lead changes elsewhere."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error
    if not stat.S_ISDIR(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION:
        raise MalformedError(path, "is not a folder of its own", hint=f"look at it, then remove it: {path}")
    return True


def open_plain(path: Path, flags: int, mode: int = 0o644) -> int:
    """A descriptor of a file that has this name alone: not a link, not a pipe, not another file's second name."""
    try:
        handle = system_calls.open_file(path, flags | system_calls.NOT_A_LINK | system_calls.AT_ONCE, mode)
    except OSError as error:
        if path.is_symlink():
            raise MalformedError(path, "is a link, where a plain file is expected") from error
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        what = "has other names (hard links)" if stat.S_ISREG(status.st_mode) else "is not a plain file"
        raise MalformedError(path, what, hint=f"look at it, then remove it: {path}")
    return handle
