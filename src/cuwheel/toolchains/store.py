"""The cache that projects share, one folder a toolkit; and all else that cuwheel keeps on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cuwheel.support import codec, files, log, system_calls
from cuwheel.toolchains.toolchain import Installed
from cuwheel.wheel import journal_file
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import bounded, opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cuwheel.toolchains.request import CacheRequest
    from cuwheel.toolchains.toolchain import Recipe


_MARKER = "cuwheel-toolchain.json"
_SCRATCH = ".making-"
_LOCKS = ".locks"
DOWNLOADS = "downloads"
NO_SPACE = "free some space, or move the cache: CUWHEEL_CACHE=FOLDER"


class Store:
    """A folder of `toolchains`, each complete, and of `downloads`, each checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.toolchains = folder / "toolchains"
        self.downloads = folder / "downloads"

    def all(self) -> tuple[Installed, ...]:
        """What is complete, still there and readable, by version and provider. Folders without the marker are not."""
        found = (codec.noted(path, Installed) for path in sorted(self.toolchains.glob(f"*/{_MARKER}")))
        usable = [each for each in found if each and (each.prefix or _is_there(each))]
        return tuple(
            sorted(usable, key=lambda each: ([bounded.digits(part) for part in each.cuda.split(".")], each.provider))
        )

    def find(self, identity: str) -> Installed | None:
        return next((each for each in self.all() if each.identity == identity), None)

    def touch(self, installed: Installed) -> None:
        """Note that it was used now."""
        with contextlib.suppress(OSError):  # a store that others fill and we only read
            os.utime(Path(installed.folder, _MARKER))

    def last_used(self, installed: Installed) -> int:
        try:
            return Path(installed.folder, _MARKER).stat().st_mtime_ns
        except OSError:
            return 0

    def make(self, recipe: Recipe, fill: Callable[[Path, Path], Installed]) -> Installed:
        """The toolkit of a recipe: there already, or made by `fill(scratch, final)`. One process at a time makes one.

        `final` is where the folder is going to be, for what writes its own place into files.
        """
        final = self.place(recipe)
        with self.locked(recipe.identity[:16]):
            if installed := self.find(recipe.identity):
                return installed
            with _filled(final) as scratch:
                installed = fill(scratch, final)
                # On the disk before the folder gets its name.
                files.write(scratch / _MARKER, codec.indented(installed), durable=True)
        return installed

    def place(self, recipe: Recipe) -> Path:
        """Where the toolkit of a recipe is, or is going to be."""
        return self.toolchains / f"{recipe.cuda}-{recipe.provider}-{recipe.identity[:12]}"

    def remove(self, installed: Installed) -> None:
        folder = Path(installed.folder)
        if folder.resolve().parent != self.toolchains.resolve():  # the marker in a folder is anybody's word
            raise MalformedError(folder, f"is not in {self.toolchains}, so cuwheel does not remove it")
        with self.locked(installed.identity[:16]):
            try:
                remove_folder(folder)
                if installed.provider == "conda":  # which lives apart: see providers/conda.py
                    shutil.rmtree(self.folder / "conda" / folder.name)
            except FileNotFoundError:
                return
            except OSError as error:
                raise UnreadableError.from_os(error, installed.folder) from error

    def make_root(self, name: str, fill: Callable[[Path], None]) -> Path:
        """A root file system of that name: there already, or filled, whole or not at all."""
        final = self.folder / "roots" / name
        with self.locked(f"root-{name}"):
            if not final.is_dir():
                with _filled(final) as scratch:
                    fill(scratch)
        return final

    def remove_downloads(self) -> int:
        """Bytes freed."""
        with self.locked(DOWNLOADS):  # an install that is under way uses them
            freed = size_of(self.downloads)
            shutil.rmtree(self.downloads, ignore_errors=True)
        return freed

    @contextlib.contextmanager
    def locked(self, name: str, *, shared: bool = False) -> Iterator[None]:
        """Held while the process lives: the system releases it at any death, so there are no stale locks.

        `shared`: beside others who share it, and while nobody has it alone.
        """
        path = self.folder / _LOCKS / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = opening.open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnreadableError.from_os(error, path, hint=NO_SPACE) from error
        try:
            files.wait_for_lock(handle, shared=shared)
            yield
        finally:
            os.close(handle)


@contextlib.contextmanager
def _filled(final: Path) -> Iterator[Path]:
    """A folder to fill, which is `final` once it is whole. The caller holds the lock of that."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        for old in final.parent.glob(f"{_SCRATCH}{final.name}-*"):
            shutil.rmtree(old, ignore_errors=True)  # we hold the lock, so the process that made it was killed
        scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{final.name}-", dir=final.parent))
        try:
            yield scratch
            if final.exists():  # incomplete or of another time: nothing that can be used
                remove_folder(final)
            scratch.chmod(0o755)
            system_calls.rename_over(scratch, final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename or final, hint=NO_SPACE) from error


def _is_there(installed: Installed) -> bool:
    """A part of a toolkit, as compiling PTX needs, has no nvcc."""
    root = Path(installed.root)
    return os.access(root / "bin" / "nvcc", os.R_OK) or ("nvcc" not in installed.components and root.is_dir())


def open_store(folder: Path | None = None) -> Store:
    return Store(files.cache_folder(folder))


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, links not counted."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def remove_folder(folder: Path) -> None:
    """Out of sight first: a removal that is interrupted must not leave half a toolkit."""
    doomed = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{folder.name}-", dir=folder.parent))
    try:
        folder.rename(doomed / "old")
    finally:
        shutil.rmtree(doomed, ignore_errors=True)


# What cuwheel keeps on this machine: how much of each kind, what may go, and removing it.
#
# Everything in the cache can be had again, at the price of time or of a network. What cannot is never touched: journals
# and originals that an undo needs, the states of signed indexes, and what this cuwheel does not know. While a build, a
# download or a task of a cluster runs, all that one could be using stays.


_EVERY_FILE = 99
_OF_WORKERS = ("dask", "arriving")  # below cluster/: used by workers and clients without a lock


class _Place(NamedTuple):
    """A folder of the cache. `depth`: of the things in it that are used, and go, as a whole.

    `shared`: a running build may be using what is there without a lock on it.
    """

    folder: str
    kind: str
    depth: int = 1
    shared: bool = True


# The kinds in the order of the answer, and what it takes to have them again; "" where they never go.
AGAIN = {
    "toolkits": "installed again by toolchain and build",
    "downloads": "fetched again; builds with --offline need them",
    "builds": "built again; logs and records of builds go with them",
    "shares": "compiled again",
    "compiled code": "compiled again",
    "facts": "read again from your indexes",
    "cluster": "sent again to the workers",
    "helpers": "",  # small, and a record or trace that runs would miss them
    "undo": "",
    "state": "",
    "unknown": "",
}
PLACES = (
    _Place("toolchains", "toolkits"),
    _Place("conda", "toolkits"),
    _Place("apt", "toolkits"),
    _Place("roots", "toolkits"),
    _Place("downloads", "downloads"),
    _Place("sdists", "downloads"),
    _Place("sources", "downloads"),
    _Place("wheels", "downloads"),
    _Place("builds", "builds"),
    _Place("installed-builds", "builds"),
    _Place("shares", "shares"),
    _Place("sccache", "compiled code", _EVERY_FILE),
    _Place("machine-code", "compiled code", _EVERY_FILE),
    _Place("facts-files", "facts", _EVERY_FILE, shared=False),
    _Place("pages", "facts", _EVERY_FILE, shared=False),
    _Place("cluster", "cluster", 2),
    _Place("editable", "helpers"),
    _Place("record", "helpers"),
    _Place("trace", "helpers"),
    # install --signers knows by these that an older state of an index is shown.
    _Place("signed-indexes", "state"),
    _Place("locks", "state"),
    _Place(".locks", "state"),
)


class Thing(Struct, frozen=True, kw_only=True):
    """What is kept, and goes, as a whole. `used`: seconds since 1970, of its newest file or its folder."""

    kind: str
    path: str
    size: int
    used: float


class Held(Struct, frozen=True, kw_only=True):
    """A thing that would have gone, and why it stays."""

    path: str
    size: int
    why: str


class Pruning(Struct, frozen=True, kw_only=True):
    """`removed`: oldest first; with `dry_run` those that would be."""

    removed: tuple[Thing, ...]
    held: tuple[Held, ...]
    dry_run: bool


class _Measured(NamedTuple):
    size: int
    newest: float
    undo: bool  # an environment that was slimmed or installed into is in it, with what undoes that


def things(cache: Path, env: Path | None = None) -> list[Thing]:
    """All that is kept in the cache, and what the journals of an environment keep to undo."""
    known = {each.folder: each for each in PLACES}
    found = []
    for folder in _children(cache):
        place = known.get(folder.name, _Place(folder.name, "unknown", 0))
        for path in _at_depth(folder, place.depth):
            measured = _measured(path)
            if folder.name == "conda":  # the toolkit of that name is noted as used, not its files
                used = _measured(cache / "toolchains" / path.name).newest
                measured = measured._replace(newest=max(measured.newest, used))
            kind = place.kind
            if measured.undo:
                kind = "undo"
            elif _is_lock(path) or path.parent.name in _OF_WORKERS:
                kind = "state"
            found.append(Thing(kind=kind, path=str(path), size=measured.size, used=measured.newest))
    for verb in ("slim", "install") if env else ():
        for path in journal_file.folders(env, verb):  # type: ignore[arg-type]
            measured = _measured(path)
            found.append(Thing(kind="undo", path=str(path), size=measured.size, used=measured.newest))
    return found


def decide(found: Sequence[Thing], *, older_than: float | None, most: int | None, now: float) -> tuple[Thing, ...]:
    """What goes, oldest first: all that was last used more than `older_than` seconds ago, and then until at most
    `most` bytes are left of what may go.
    """
    removable = sorted((each for each in found if AGAIN[each.kind]), key=lambda each: each.used)
    left = sum(each.size for each in removable)
    going = []
    for each in removable:
        old = older_than is not None and now - each.used > older_than
        if old or (most is not None and left > most):
            going.append(each)
            left -= each.size
    return tuple(going)


def prune(cache: Path, found: Sequence[Thing], request: CacheRequest) -> Pruning:
    going = decide(found, older_than=request.older_than, most=request.most, now=time.time())
    shared = {each.folder for each in PLACES if each.shared}
    removed, held = [], []
    with _all_locks(cache) as in_use:
        for each in going:
            path = Path(each.path)
            if in_use and path.relative_to(cache).parts[0] in shared:
                held.append(Held(path=each.path, size=each.size, why=f"{in_use} is held by a cuwheel that runs"))
                continue
            try:
                if not request.dry_run:
                    _remove(path)
            except OSError as error:
                held.append(Held(path=each.path, size=each.size, why=error.strerror or str(error)))
            else:
                removed.append(each)
    return Pruning(removed=tuple(removed), held=tuple(held), dry_run=request.dry_run)


@contextlib.contextmanager
def _all_locks(cache: Path) -> Iterator[str]:
    """Every lock of the cache is ours while the block runs; or one that another process has, and then none is.

    Whoever comes meanwhile waits, as it would for another build.
    """
    with contextlib.ExitStack() as stack:
        taken = ""
        for path in _locks(cache):
            try:
                handle = opening.open_file(path, os.O_RDWR | opening.NOT_A_LINK | opening.AT_ONCE)
            except OSError as error:
                log.debug("%s: %s", path, error)  # gone, or another user's
                continue
            stack.callback(os.close, handle)
            if not system_calls.lock(handle):
                taken = str(path)
                stack.close()
                break
        yield taken


def _locks(cache: Path) -> Iterator[Path]:
    """Locks of toolkits and downloads, of build folders, of slots and tasks of a cluster."""
    for folder in (cache, cache / "builds"):
        yield from _children(folder / ".locks")
    for folder in (cache / "downloads", cache / "wheels", cache / "sdists", cache / "cluster"):
        for path, _ in _walk(folder):
            if _is_lock(path) or path.suffix == ".part":
                yield path


def _is_lock(path: Path) -> bool:
    return path.name in {".locks", "lock"} or path.suffix == ".lock"


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _at_depth(folder: Path, depth: int) -> Iterator[Path]:
    """What is so far below, and files that are nearer. Links are left alone: what is behind them is not ours."""
    if folder.is_symlink() and depth == 0:
        return
    if depth == 0 or not folder.is_dir():
        yield folder
        return
    for each in _children(folder):
        if not each.is_symlink():
            yield from _at_depth(each, depth - 1)


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below, links as links; what goes meanwhile is passed over."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for each in entries:
                    with contextlib.suppress(FileNotFoundError):
                        status = each.stat(follow_symlinks=False)
                        yield Path(each.path), status
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(Path(each.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            log.debug("%s", error)


def _measured(path: Path) -> _Measured:
    try:
        own = path.lstat()
    except FileNotFoundError:
        return _Measured(0, 0.0, undo=False)
    if not stat.S_ISDIR(own.st_mode):
        return _Measured(own.st_size, own.st_mtime, undo=False)
    # What is unpacked has its files' own times: when it came, and was last asked for, is the folder's.
    size, newest, undo, seen = 0, own.st_mtime, False, set()
    for each, status in _walk(path):
        undo = undo or each.parent.name == journal_file.FOLDER
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
            size, newest = size + status.st_size, max(newest, status.st_mtime)
            if status.st_nlink > 1:
                seen.add((status.st_dev, status.st_ino))
    return _Measured(size, newest, undo=undo)


def _remove(path: Path) -> None:
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for each, status in _walk(path):
        if stat.S_ISDIR(status.st_mode) and not status.st_mode & stat.S_IWUSR:  # builds, and go's modules, do that
            each.chmod(0o755)
    remove_folder(path)
