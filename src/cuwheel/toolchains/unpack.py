"""Archives into one toolkit folder. Nothing is written outside it, whatever the archive says."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import zstandard

from cuwheel.errors import MalformedError
from cuwheel.support import confined, log
from cuwheel.support.confined import place_of_member
from cuwheel.toolchains import debian_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.toolchains.toolchain import Archive, ArchiveKind

# Folders at the top of a toolkit. Packages put them below `nvidia/cu13`, `nvidia/cudnn`, `cutensor` and so on.
_TOPS = ("bin", "include", "lib", "lib64", "nvvm", "cccl", "extras", "share", "compute-sanitizer", "targets")
_LEAST = 64 * 10**6
_GROWTH = 50
_MOST_FILES = 200_000
# What Python's modules say of damage. KeyError: a hard link to what is not in the archive. RuntimeError: a password, or
# an unknown method. ValueError: a name or a number that nothing can have. MemoryError: a dictionary of 4 GB.
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, tarfile.TarError, lzma.LZMAError, gzip.BadGzipFile, zstandard.ZstdError),
    *(EOFError, KeyError, RuntimeError, ValueError, OverflowError, MemoryError),
)


def unpack(archive: Archive, path: Path, root: Path) -> None:
    """Add the contents of an archive, whose hash was checked, to the toolkit at `root`."""
    log.debug("unpacking %s", path.name)
    try:
        _UNPACKERS[archive.kind](path, root, _Room(path))
    except BROKEN as error:
        raise MalformedError(path, f"cannot be unpacked: {str(error) or type(error).__name__}") from error


def zip_members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Python looks for one that begins before the file, and the system refuses that."""
    found = archive.infolist()
    if wrong := next((each.filename for each in found if each.header_offset < 0), None):
        raise zipfile.BadZipFile(f"{wrong!r} begins before the file")
    return found


class _Room:
    """What an archive may become: real ones grow to ten times their size at most, and bombs a thousandfold."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = _LEAST + _GROWTH * path.stat().st_size
        self._files = _MOST_FILES

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0:
            raise MalformedError(
                self._path, f"unpacks to more than {_GROWTH} times its size: it is not an archive of a toolkit"
            )

    def take_file(self) -> None:
        self._files -= 1
        if self._files < 0:
            raise MalformedError(self._path, f"has more than {_MOST_FILES:,} files: it is not an archive of a toolkit")


def _unpack_wheel(path: Path, root: Path, room: _Room) -> None:
    with (
        zipfile.ZipFile(path) as wheel,
        log.progress(path.name, sum(each.file_size for each in zip_members(wheel))) as bar,
    ):
        for info in zip_members(wheel):
            place = _place_in_wheel(info.filename)
            if place is None or info.is_dir():
                continue
            with wheel.open(info) as source:
                _write(source, place_of_member(root, place, path), room, mode=info.external_attr >> 16)
            bar.advance(info.file_size)


def _place_in_wheel(name: str) -> str | None:
    """`nvidia/cu13/bin/nvcc` → `bin/nvcc`; licences are kept, Python files are not."""
    parts = PurePosixPath(name).parts
    if parts and parts[0].endswith(".dist-info"):
        licence = "license" in parts[-1].lower()
        return f"licenses/{parts[0].removesuffix('.dist-info')}/{parts[-1]}" if licence else None
    top = next((index for index, part in enumerate(parts[:-1]) if index and part in _TOPS), None)
    return None if top is None else "/".join(parts[top:])


def _unpack_tar(path: Path, root: Path, room: _Room) -> None:
    """NVIDIA's archives: one folder at the top, which is left out."""
    with tarfile.open(path, "r:*") as archive, log.progress(path.name, None) as bar:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if ".." in parts or member.name.startswith("/"):
                raise MalformedError(path, f"has {member.name!r}, which is outside the archive")
            if len(parts) > 1:
                room.take_file()
                place = place_of_member(root, "/".join(parts[1:]), path)
                confined.unpack_member(archive, member, place, root, partial(_write, room=room, mode=member.mode))
            bar.advance(member.size)


def _unpack_deb(path: Path, root: Path, room: _Room) -> None:
    """Debian's own program unpacks without a limit; an archive of its kind is a tar file in an ar file."""
    with tempfile.TemporaryDirectory(prefix=".deb-", dir=root) as name, _deb_data(path) as data:
        staged = Path(name).resolve()
        with tarfile.open(fileobj=data, mode="r|") as archive, log.progress(path.name, None) as bar:
            for member in archive:
                room.take_file()
                _unpack_deb_member(archive, member, staged, room)
                bar.advance(member.size)
        debian_layout.arrange(staged, root)


def _unpack_deb_member(archive: tarfile.TarFile, member: tarfile.TarInfo, staged: Path, room: _Room) -> None:
    """Links are kept as they are: Debian's lead to other packages. Nothing is written through one."""
    path = Path(str(archive.name or "data.tar"))
    name = member.name.removeprefix("./").strip("/")
    if name in ("", "."):
        return
    place = place_of_member(staged, name, path)
    if member.isdir():
        place.mkdir(exist_ok=True)
    elif member.issym():
        place.unlink(missing_ok=True)
        place.symlink_to(member.linkname)
    elif member.islnk():
        first = place_of_member(staged, member.linkname.removeprefix("./"), path)
        with first.open("rb") as source:
            _write(source, place, room, mode=first.stat().st_mode)
    elif contents := archive.extractfile(member):
        _write(contents, place, room, mode=member.mode)
    else:
        raise MalformedError(path, f"has {name!r}, which is not a file, folder or link")


@contextlib.contextmanager
def _deb_data(path: Path) -> Iterator[IO[bytes]]:
    """The files of a package, as the stream of a tar file."""
    with path.open("rb") as file:
        if file.read(len(_AR)) != _AR:
            raise MalformedError(path, "is not a Debian package")
        while header := file.read(_AR_HEADER):
            name, size = header[:16].rstrip(b" /"), header[48:58].strip()
            if len(header) < _AR_HEADER or not size.isdigit():
                break
            if name.startswith(b"data.tar"):
                opener = _OPENERS.get(name.rpartition(b".")[2])
                with opener(file) if opener else contextlib.nullcontext(file) as opened:
                    yield opened
                return
            file.seek(int(size) + int(size) % 2, os.SEEK_CUR)
    raise MalformedError(path, "is a Debian package without files")


def _zstd(source: IO[bytes]) -> IO[bytes]:
    return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source)


_AR, _AR_HEADER = b"!<arch>\n", 60
_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"xz": lzma.open, b"gz": gzip.open, b"zst": _zstd}


def _write(source: IO[bytes], place: Path, room: _Room, *, mode: int) -> None:
    place.unlink(missing_ok=True)  # never through a link that an archive before this one made
    with place.open("xb") as target:
        while chunk := source.read(1 << 20):
            room.take(len(chunk))
            target.write(chunk)
    place.chmod(0o755 if mode & stat.S_IXUSR else 0o644)


_UNPACKERS: dict[ArchiveKind, Callable[[Path, Path, _Room], None]] = {
    "wheel": _unpack_wheel,
    "tar": _unpack_tar,
    "deb": _unpack_deb,
}
