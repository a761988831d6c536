"""A source as one file with one hash, for machines that do not have it: its files, and as much history as it needs."""

from __future__ import annotations

import re
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.building import repository, trees
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel.support import log
from cuwheel.toolchains.store import NO_SPACE, Store

if TYPE_CHECKING:
    from cuwheel.building.values import Tree

_TOP = "source"
_SINCE_TAG = re.compile(r"-(\d+)-g[0-9a-f]+$")
_OF_GIT = ("HEAD", "config", "packed-refs", "shallow", "objects", "refs")


def pack(tree: Tree, to: Path) -> Path:
    """The same bytes for the same source."""
    try:
        with tempfile.TemporaryDirectory() as scratch, tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as file:
            for name in tree.files:
                _add(file, tree.folder / name, f"{_TOP}/{name}")
            for path, name in _history(tree, Path(scratch)):
                _add(file, path, f"{_TOP}/.git/{name}")
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename or to, hint=NO_SPACE) from error
    return to


def folder(top: Path, to: Path, name: str) -> Path:
    """A folder of results as one file, for the way back. `name`: of the folder inside it."""
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as file:
        for path in sorted(top.rglob("*")):
            if path.is_file() and not path.is_symlink():
                _add(file, path, f"{name}/{path.relative_to(top).as_posix()}")
    return to


def unpack(archive: Path, tree: Tree, store: Store) -> Tree:
    """The source on this machine, unpacked once and held against its hash."""
    with store.locked("sources"):
        place = trees.unpacked(archive, store.folder / "sources")
    if trees.digest(place, tree.files) != tree.sha256:
        raise MalformedError(archive.name, "its files are not those that were sent")
    return replace(tree, folder=place)


def _add(file: tarfile.TarFile, path: Path, name: str) -> None:
    info = file.gettarinfo(path, name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(info.mtime)
    if info.islnk():  # two names of one file: each gets its contents
        info.type, info.size = tarfile.REGTYPE, path.stat().st_size
    if info.isreg():
        with path.open("rb") as content:
            file.addfile(info, content)
    else:
        file.addfile(info)


def _history(tree: Tree, scratch: Path) -> list[tuple[Path, str]]:
    """Back to the tag by which the version is named, and no further."""
    if not tree.repository:
        return []
    since = _SINCE_TAG.search(tree.described)
    depth = int(since[1]) + 1 if since else 1
    clone = scratch / "clone"
    try:
        repository.git(
            scratch,
            *("-c", "pack.threads=1", "clone", "--quiet", "--bare", f"--depth={depth}"),
            tree.folder.resolve().as_uri(),
            clone,
        )
    except CuwheelError as error:
        log.debug("the source is sent without its history: %s", error)
        return []
    found = [path for top in _OF_GIT for path in (clone / top, *sorted((clone / top).rglob("*"))) if path.is_file()]
    return [(path, path.relative_to(clone).as_posix()) for path in found]
