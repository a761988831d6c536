"""The cache that projects share: one folder a toolkit, made beside its place and renamed when it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import codec, files, locking, log, system_calls
from cuwheel.toolchains.toolchain import Installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        """What is complete and still there, by version and provider. Folders without the marker are not."""
        found = (_read(path.parent) for path in sorted(self.toolchains.glob(f"*/{_MARKER}")))
        usable = [each for each in found if each and (each.prefix or Path(each.root, "bin", "nvcc").is_file())]
        return tuple(sorted(usable, key=lambda each: ([int(part) for part in each.cuda.split(".")], each.provider)))

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
        with self.locked(recipe.identity[:16]):
            if there := self.find(recipe.identity):
                return there
            try:
                return self._make(recipe, fill)
            except OSError as error:
                raise UnreadableError.from_os(error, error.filename or self.folder, hint=NO_SPACE) from error

    def place(self, recipe: Recipe) -> Path:
        """Where the toolkit of a recipe is, or is going to be."""
        return self.toolchains / f"{recipe.cuda}-{recipe.provider}-{recipe.identity[:12]}"

    def _make(self, recipe: Recipe, fill: Callable[[Path, Path], Installed]) -> Installed:
        final = self.place(recipe)
        name = final.name
        self.toolchains.mkdir(parents=True, exist_ok=True)
        for old in self.toolchains.glob(f"{_SCRATCH}{name}-*"):
            shutil.rmtree(old, ignore_errors=True)  # we hold the lock, so the process that made it was killed
        scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{name}-", dir=self.toolchains))
        try:
            installed = fill(scratch, final)
            _write(scratch / _MARKER, msgspec.json.format(codec.encode(installed), indent=2))
            if final.exists():  # incomplete or of another time: nothing that can be used
                remove_folder(final)
            scratch.chmod(0o755)
            system_calls.rename_over(scratch, final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return installed

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
            handle = system_calls.open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnreadableError.from_os(error, path, hint=NO_SPACE) from error
        try:
            locking.wait(handle, shared=shared)
            yield
        finally:
            os.close(handle)


def open_store(folder: Path | None = None) -> Store:
    return Store(files.cache_folder(folder))


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, links not counted."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def _read(folder: Path) -> Installed | None:
    try:
        return codec.decode((folder / _MARKER).read_bytes(), Installed)
    except (OSError, msgspec.DecodeError) as error:
        log.debug("%s is not a toolchain: %s", folder, error)
        return None


def _write(path: Path, text: bytes) -> None:
    """On the disk before the folder gets its name."""
    with path.open("wb") as file:
        file.write(text + b"\n")
        file.flush()
        os.fsync(file.fileno())


def remove_folder(folder: Path) -> None:
    """Out of sight first: a removal that is interrupted must not leave half a toolkit."""
    doomed = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{folder.name}-", dir=folder.parent))
    try:
        folder.rename(doomed / "old")
    finally:
        shutil.rmtree(doomed, ignore_errors=True)
