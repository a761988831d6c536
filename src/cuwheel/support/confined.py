"""Paths and files that a stranger's folder or archive names: never outside it, never through a link out of it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

_JUNCTION = 0xA0000003  # Windows' link of a folder, which Python takes for a folder
_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd
_A_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | opening.NOT_A_LINK
_MOST_OPEN = 128
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE | re.ASCII)


def inside(root: Path, name: str, source: Path) -> Path:
    """The file below `root` that `source` calls `name`; `root` is resolved.

    Links on the way may lead elsewhere below the root. The file itself may be a link: its user acts on the
    link, not on what it names.
    """
    path = root / name
    must_be_below(name, source)
    if not leads_inside(root, path.parent):
        raise MalformedError(source, f"has a link that leads out of its folder: {name!r}")
    return path


def must_be_below(name: str, source: Path) -> None:
    """Refuses a name that leads out, by the name alone, whatever links there are: for who follows none."""
    parts = name.split("/")
    wrong = "\0" in name or not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts)
    if wrong or (os.name == "nt" and strange_on_windows(name)):
        raise MalformedError(source, f"points outside its folder: {name!r}")


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


def make_folders(root: Path, name: str | PurePosixPath) -> Path:
    """The folder `name` below `root`, made where it is not there. None on the way is a link: what is written below
    would go elsewhere. The root itself was named by a person, and may be one.
    """
    root.mkdir(parents=True, exist_ok=True)
    for part in PurePosixPath(name).parts:
        root /= part
        if not must_be_a_folder(root):
            root.mkdir(exist_ok=True)
    return root


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of a file that has this name alone: not a link, not a pipe, not another file's second name."""
    try:
        handle = opening.open_file(path, flags | opening.NOT_A_LINK | opening.AT_ONCE, 0o644)
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


class Tree:
    """The files below a folder, each reached from the folder's descriptor, part by part.

    No link on the way is followed, not even one that somebody put there a moment ago: that is an error. Names have
    strokes between their parts and were checked by `inside`. Windows has no such calls: there each part is looked at.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[str, int] = {}  # folders

    def __enter__(self) -> Tree:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        for handle in self._open.values():
            os.close(handle)
        self._open.clear()

    def _folder(self, name: str) -> int:
        handle = self._open.get(name)
        if handle is None:
            above, _, last = name.rpartition("/")
            handle = self._opened(last, self._folder(above), name) if name else opening.open_file(self.root, _A_FOLDER)
            self._open[name] = handle
        return handle

    def _opened(self, last: str, above: int, name: str) -> int:
        try:
            return opening.open_file(last, _A_FOLDER, at=above)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            with contextlib.suppress(OSError):
                if stat.S_ISLNK(os.stat(last, dir_fd=above, follow_symlinks=False).st_mode):
                    raise MalformedError(self.root / name, "is a link, where a folder is expected") from error
            raise

    def _at(self, name: str) -> tuple[str, int | None]:
        """What a call of the system is given: a name, and the descriptor of the folder it is in."""
        above, _, last = name.rpartition("/")
        if _BY_DESCRIPTOR:
            return last, self._folder(above)
        folder = self.root
        for part in above.split("/") if above else ():
            folder /= part
            if _is_link(folder):
                raise MalformedError(folder, "is a link, where a folder is expected")
        return str(folder / last), None

    def status(self, name: str) -> os.stat_result | None:
        """The status of a file; None where nothing is; what is behind a link is not there."""
        if len(self._open) > _MOST_OPEN:
            self._close()
        try:
            last, at = self._at(name)
            return os.stat(last, dir_fd=at, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, MalformedError):
            return None

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        last, at = self._at(name)
        return opening.open_file(last, flags | opening.NOT_A_LINK | opening.AT_ONCE, mode, at=at)

    def target(self, name: str) -> str:
        last, at = self._at(name)
        return os.readlink(last, dir_fd=at)

    def replace(self, made: str, name: str) -> None:
        """`made` gets the name `name`."""
        (old, source), (new, to) = self._at(made), self._at(name)
        os.replace(old, new, src_dir_fd=source, dst_dir_fd=to)

    def link(self, name: str, other: str) -> None:
        (old, source), (new, to) = self._at(name), self._at(other)
        os.link(old, new, src_dir_fd=source, dst_dir_fd=to, follow_symlinks=False)

    def symlink(self, target: str, name: str) -> None:
        last, at = self._at(name)
        os.symlink(target, last, dir_fd=at)

    def unlink(self, name: str) -> None:
        last, at = self._at(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(last, dir_fd=at)

    def make_folders(self, name: str) -> None:
        """And those above it."""
        if not name or ((there := self.status(name)) and stat.S_ISDIR(there.st_mode)):
            return
        self.make_folders(name.rpartition("/")[0])
        last, at = self._at(name)
        os.mkdir(last, dir_fd=at)

    def remove_folder(self, name: str) -> None:
        """One that is empty."""
        last, at = self._at(name)
        for each in [each for each in self._open if each == name or each.startswith(f"{name}/")]:
            os.close(self._open.pop(each))
        os.rmdir(last, dir_fd=at)

    def entries(self, name: str) -> Iterator[tuple[str, os.stat_result]]:
        """All that is below a folder, folders before what is in them."""
        folder = self._folder(name) if _BY_DESCRIPTOR else self.root / name
        for each in sorted(os.listdir(folder)):  # noqa: PTH208 - of a descriptor
            path = f"{name}/{each}" if name else each
            status = self.status(path)
            if status is None:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode) and not (os.name == "nt" and _is_link(self.root / path)):
                yield from self.entries(path)

    def set_times(self, name: str, mtime_ns: int) -> None:
        last, at = self._at(name)
        extra = {"dir_fd": at, "follow_symlinks": False} if _BY_DESCRIPTOR else {}
        os.utime(last, ns=(mtime_ns, mtime_ns), **extra)  # type: ignore[arg-type]

    def set_mode(self, name: str, mode: int) -> None:
        """Sets the mode of a file or folder. Some file systems refuse that, so none is asked for what is so already."""
        status = self.status(name)
        if status and stat.S_IMODE(status.st_mode) == mode:
            return
        if os.name == "nt":
            os.chmod(self._at(name)[0], mode)  # noqa: PTH101 - as the others
            return
        handle = self.open(name, os.O_RDONLY)
        try:
            os.fchmod(handle, mode)
        finally:
            os.close(handle)


def _is_link(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION
