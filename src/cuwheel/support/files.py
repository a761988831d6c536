"""Files: written beside their place and renamed, read up to a limit, hashed; errors say which file."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from cuwheel.support import confined, log, system_calls
from cuwheel.support import scratch as scratches
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.support import opening
from cuwheel_core.support.wording import size

CACHE = "CUWHEEL_CACHE"
_LONGEST = 200  # of a name's 255 bytes, so that what is added fits
_CHUNK = 1 << 20
_SYNCS_AT_ONCE = 32  # more gain nothing
_NUMBERS = itertools.count()  # clocks of Windows stand still for 15 ms
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def absolute(path: str | Path) -> Path:
    """From the root and without `..`, unless behind a link that would be another place."""
    plain = Path(path).absolute()
    tidy = Path(os.path.normpath(plain))
    # Not Path.resolve, which raises where links lead in a circle: whoever opens the file says that.
    return tidy if tidy == plain or os.path.realpath(tidy) == os.path.realpath(plain) else plain


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that takes the name `path` when the block ends, and goes where it fails.

    `durable`: its bytes are on the disk before it has the name, so that a crash of the machine leaves one or the other.
    """
    unfinished = temporary_sibling(path)
    try:
        with unfinished.open("xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        system_calls.rename_over(unfinished, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        if isinstance(error, OSError):
            raise UnreadableError.from_os(error, path) from error
        raise


def temporary_sibling(path: Path) -> Path:
    """A new name for a file that is going to be `path`.

    One of its own for each writer: several may write the same file at once, and the last one's stays.
    """
    name = os.fsdecode(os.fsencode(path.name)[:_LONGEST])
    return path.with_name(f".{name}.{os.getpid()}-{time.monotonic_ns():x}-{next(_NUMBERS)}.part")


def write_changed(path: Path, data: bytes) -> None:
    """Writes as `write` does, on the disk before it has its name; a file that holds just that keeps its time."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == len(data) and path.read_bytes() == data:
            return
    write(path, data, durable=True)


def copy(source: Path, to: Path) -> Path:
    """The whole of another file, under the name `to`."""
    import shutil  # noqa: PLC0415 - with all the compressions that it knows 2 ms

    with source.open("rb") as whole, replacing(to) as file:
        shutil.copyfileobj(whole, file)
    return to


def output_of(source: Path, wanted: Path, *, alone: bool = True) -> Path:
    """Where a changed copy of a file goes: `wanted` is a folder, there or not, or for one `alone` the file itself.

    A path has lost the slash at its end, so `slim/` is told from a file by having no suffix where the source has one.
    """
    if alone and not wanted.is_dir() and (wanted.suffix or not source.suffix):
        return wanted
    return wanted / source.name


def write(path: Path, data: str | bytes, *, durable: bool = False) -> None:
    """The whole file, or the one that was there before. Text is UTF-8; names of files that are not stay as they are."""
    with replacing(path, durable=durable) as file:
        file.write(data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape"))


def append(path: Path, text: str) -> None:
    """Behind what is there: files that a service hands to several writers."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error


def cache_folder(given: Path | None = None) -> Path:
    """The folder of downloads and builds: the one given, else $CUWHEEL_CACHE, else the user's cache."""
    if given is None and (named := os.environ.get(CACHE)):
        given = Path(named)
    if given is None:
        from platformdirs import user_cache_path  # noqa: PLC0415 - needed for the default alone

        given = user_cache_path("cuwheel")
    return absolute(given)


def read_limited(path: Path, limit: int, what: str, *, hint: str = "") -> bytes:
    """The whole of a file that others may have written. `what`: what it is said to be too large for."""
    try:
        with opening.open_plain(path) as file:
            data = opening.read_up_to(file, limit + 1)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=hint) from error
    if len(data) > limit:
        raise MalformedError(path, f"has more than {limit:,} bytes: too large for {what}", hint)
    return data


def read_if_present(path: Path, limit: int, what: str) -> bytes | None:
    """The same; None where there is no such file."""
    try:
        return read_limited(path, limit, what)
    except UnreadableError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def tail(path: Path, limit: int, start: int = 0) -> str:
    """The end of a log, from `start` on; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, path.stat().st_size - limit))
            return opening.read_up_to(file, limit).decode(errors="replace")
    except OSError:
        return ""


def chunks(path: Path) -> Iterator[bytes]:
    """A file's content in pieces: memory stays small whatever its size."""
    try:
        with opening.open_plain(path) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise UnreadableError.from_os(error, path) from error


def sha256(path: Path) -> str:
    """The hash of the whole file, as people publish it."""
    import hashlib  # noqa: PLC0415 - OpenSSL takes 5 ms, and most answers need no hash

    hasher = hashlib.sha256()
    for chunk in chunks(path):
        hasher.update(chunk)
    return hasher.hexdigest()


def holds(path: Path, digest: str) -> bool:
    """Whether a file is there, and its SHA-256 is that."""
    try:
        return sha256(path) == digest
    except UnreadableError:
        return False


def sha256_of(data: bytes) -> str:
    import hashlib  # noqa: PLC0415 - as above

    return hashlib.sha256(data).hexdigest()


def append_lines(handle: int, data: bytes) -> None:
    """At a file's end, and on the disk. A line that a crash cut short would swallow the next one."""
    if (size := os.fstat(handle).st_size) and opening.read_at(handle, 1, size - 1) != b"\n":
        data = b"\n" + data
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """So that names survive a crash, too; where folders cannot be synced (Windows) there is nothing to be done."""
    with contextlib.suppress(OSError):
        sync_file(folder)


def sync_file(path: Path) -> None:
    handle = opening.open_file(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Sequence[Path], folders: Iterable[Path] = ()) -> None:
    """Files, then folders; all of a kind at once. Asked for one after the other the disk commits each by itself,
    which for thousands of small files takes ten times as long as writing them; asked by many it commits for all.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few commands write that much

    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
        list(pool.map(sync_file, paths))
        list(pool.map(sync_folder, folders))


def must_have_room(folder: Path, needed: int) -> None:
    """Better told now than after minutes of work."""
    import shutil  # noqa: PLC0415 - as above

    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UnreadableError(
            folder,
            f"about {size(needed)} are needed there and {size(free)} are free",
            hint="make room first; nothing was changed",
        )


@contextlib.contextmanager
def errors_of(place: Path, hint: str) -> Iterator[None]:
    """`place`: what was being written, where the system does not say. `hint`: what became of it.

    Errors that name a file already pass through here too, and get the same ending.
    """
    try:
        yield
    except UnreadableError as error:
        cause = error.__cause__
        if error.hint or not isinstance(cause, OSError):
            raise
        raise _explained(cause, place, hint) from cause
    except OSError as error:
        raise _explained(error, place, hint) from error


def _explained(error: OSError, place: Path, hint: str) -> UnreadableError:
    if error.errno in _FULL:
        hint = f"make room first; {hint}"
    return UnreadableError.from_os(error, error.filename or place, hint=hint)


# One cuwheel at a time on the same files, and scratch folders that the next one clears away.

_SCRATCH = ".cuwheel-slim-"
_LOCK = "lock"
_ATTEMPTS = 1000  # to make a folder that others remove at that moment: eight at once need a handful


def wait_for_lock(handle: int, *, shared: bool = False, what: str = "") -> None:
    """Until the lock on an open file is ours. `shared`: beside others who share it. `what`: that another process has.

    The system releases it at any death, so there are no stale locks.
    """
    if not system_calls.lock(handle, shared=shared):
        log.info("waiting for another cuwheel process%s", f" that has {what}" if what else "")
        system_calls.wait_for_lock(handle, shared=shared)


@contextlib.contextmanager
def folder_lock(folder: Path, *, patient: bool = False) -> Iterator[None]:
    """Held while the process lives: the system releases it at any death, so there are no stale locks.

    The folder is made, and removed again if nothing else is left in it. `patient`: another process that has it is
    waited for.
    """
    handle = _wait_for_none(folder, patient=patient)
    try:
        yield
    finally:
        if _is_alone(folder):
            system_calls.remove_locked(folder / _LOCK, handle)
            with contextlib.suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
        else:
            os.close(handle)


def _is_no_folder(path: Path) -> bool:
    return os.path.lexists(path) and not path.is_dir()


def _is_alone(folder: Path) -> bool:
    """Whether the lock is all that is in it."""
    try:
        return [each.name for each in folder.iterdir()] == [_LOCK]
    except OSError:
        return False


def _wait_for_none(folder: Path, *, patient: bool) -> int:
    path = folder / _LOCK
    gone = 0
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = confined.open_plain(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            # Another run ended and took the folder with it, maybe between mkdir's two looks at it; or what it is in is
            # gone, as a working folder may be: then nobody brings it back.
            met = isinstance(error, FileExistsError) and not any(map(_is_no_folder, (folder, folder.parent)))
            gone += 1
            if (met or isinstance(error, FileNotFoundError)) and gone < _ATTEMPTS:
                continue
            raise UnreadableError.from_os(
                error, path, hint="cuwheel keeps its journal there, so it must be writable"
            ) from error
        if patient:
            wait_for_lock(handle, what=str(folder.parent.parent))
        elif not system_calls.lock(handle):
            holder = os.read(handle, 32).decode(errors="replace").strip() or "?"
            os.close(handle)
            raise UnreadableError(
                folder.parent.parent,
                f"another cuwheel process ({holder}) is changing it",
                hint="wait until it has finished, then run this again",
            )
        if scratches.still_there(handle, path):
            with contextlib.suppress(OSError):  # on a full disk others do not learn who holds it, no more
                os.ftruncate(handle, 0)
                system_calls.write_at(handle, f"{os.getpid()}\n".encode(), 0)
            return handle
        os.close(handle)


@contextlib.contextmanager
def scratch_beside(beside: Path) -> Iterator[Path]:
    """A folder on the file system of the result, gone afterwards. Those of runs that were killed go too."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(scratches.folder(beside, _SCRATCH))
        except OSError as error:
            raise UnreadableError.from_os(error, beside) from error
        yield made
