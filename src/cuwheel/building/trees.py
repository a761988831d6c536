"""Folders of files: hashed, copied, unpacked. Nothing is written outside, whatever an archive says."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cuwheel.building import repository
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel.support import files, log, system_calls
from cuwheel.support.confined import place_of_member, unpack_member
from cuwheel.toolchains import store, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.building.values import Tree

_MAX_UNPACKED = 20 * 10**9  # more is not a source, but an archive made to fill the disk


def digest(folder: Path, names: Sequence[str]) -> str:
    """Of names, contents and run bits: times and owners do not count."""
    whole = hashlib.sha256()
    try:
        for name in names:
            path = folder / name
            if path.is_symlink():
                content = f"link {path.readlink()}"
            else:
                runs = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
                content = f"{runs} {files.sha256(path)}"
            whole.update(os.fsencode(f"{name}\0{content}\n"))
    except OSError as error:
        raise UnreadableError.from_os(error) from error
    return whole.hexdigest()


def copy(tree: Tree, to: Path) -> None:
    """The files of a source in a new folder. Times stay: generated files must not look older than their sources."""
    try:
        to.mkdir(parents=True)
        for name in tree.files:
            source, target = tree.folder / name, to / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if not target.is_symlink():  # builds write into their sources, and those may be of a store or a mount
                target.chmod(target.stat().st_mode | stat.S_IWUSR)
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename2 or error.filename or to, hint=store.NO_SPACE) from error
    if tree.repository:
        _add_history(tree, to)


def _add_history(tree: Tree, to: Path) -> None:
    """Many projects take their version from git, and their list of files.

    A clone that shares the objects costs nothing, and whatever the build does to it the original stays as it is.
    """
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        clone = Path(scratch, "clone")
        try:
            repository.git(Path(scratch), "clone", "--quiet", "--shared", "--no-checkout", tree.folder, clone)
            (clone / ".git").rename(to / ".git")
            repository.git(to, "reset", "--quiet", tree.commit)
        except CuwheelError as error:
            log.debug("the copy has no history: %s", error)
            shutil.rmtree(to / ".git", ignore_errors=True)


def unpacked(archive: Path, cache: Path) -> Path:
    """The one folder that is in a source archive; unpacked once for each content."""
    try:
        place = cache / files.sha256(archive)[:16]
        if not place.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as scratch:
                made = Path(scratch, "made")
                made.mkdir()
                _unpack(archive, made)
                _only_folder(made, archive)
                system_calls.rename_over(made, place)
    except unpack.BROKEN as error:
        problem = f"cannot be unpacked: {str(error) or type(error).__name__}"
        raise MalformedError(archive, problem, hint="download it again") from error
    except OSError as error:
        raise UnreadableError.from_os(error, archive, hint=store.NO_SPACE) from error
    return _only_folder(place, archive)


def _only_folder(place: Path, archive: Path) -> Path:
    found = [each for each in place.iterdir() if each.is_dir() and not each.is_symlink()]
    if len(found) != 1:
        raise MalformedError(
            archive, f"is not a source archive: it must have one folder at its top and has {len(found)}"
        )
    return found[0]


def _unpack(archive: Path, to: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            _refuse_too_much(archive, sum(each.file_size for each in unpack.zip_members(file)))
            for info in unpack.zip_members(file):
                place = place_of_member(to, info.filename, archive)
                if info.is_dir():
                    place.mkdir(parents=True, exist_ok=True)
                    continue
                with file.open(info) as source, place.open("wb") as target:
                    shutil.copyfileobj(source, target)
                place.chmod(0o755 if (info.external_attr >> 16) & stat.S_IXUSR else 0o644)
        return
    with tarfile.open(archive, "r:*") as file:
        total = 0
        for member in file:
            total += member.size
            _refuse_too_much(archive, total)
            place = place_of_member(to, member.name, archive)
            unpack_member(file, member, place, to, partial(_write, member=member))


def _refuse_too_much(archive: Path, size: int) -> None:
    if size > _MAX_UNPACKED:
        raise MalformedError(archive, f"is not a source archive: it unpacks to more than {_MAX_UNPACKED:,} bytes")


def _write(contents: IO[bytes], place: Path, *, member: tarfile.TarInfo) -> None:
    place.unlink(missing_ok=True)
    with place.open("xb") as target:
        shutil.copyfileobj(contents, target)
    place.chmod(0o755 if member.mode & stat.S_IXUSR else 0o644)
    os.utime(place, (member.mtime, member.mtime))
