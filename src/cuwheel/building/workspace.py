"""The folder of a job: at a path that depends on the job alone, held by one build at a time, and clean at its start."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cuwheel.building import variables
from cuwheel.building.values import Built
from cuwheel.errors import UnreadableError
from cuwheel.support import codec, files, log
from cuwheel.toolchains import store as store_

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.toolchains.store import Store

_KEPT_LOGS = 10
_WORK = ("src", "venv", "bin", "home", "tmp", "work", "out", "record", "refused")
_DONE = "done.json"
_END_S = 5.0


def place(store: Store, *, name: str, cuda: str, archs: tuple[str, ...], python: str) -> Path:
    """The same job is always built at the same path: names of kernels depend on it."""
    parts = codec.encode([name.lower(), cuda, archs, python])
    return store.folder / "builds" / files.sha256_of(parts)[:16]


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """One build at a time; another waits. What a killed one left running is ended first.

    The lock is beside the folder: workers of a cluster may each have a folder of their own at the same path.
    """
    with store_.Store(folder.parent).locked(folder.name):
        if count := end_leftovers(folder):
            log.info("stopped %d processes left running by an earlier build", count)
        yield


def clean(folder: Path) -> None:
    """Nothing of an earlier run but its logs and its result."""
    try:
        for name in _WORK:
            _remove(folder / name)
        for name in ("bin", "home", "tmp", "out", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for old in sorted((folder / "logs").glob("*.log"))[:-_KEPT_LOGS]:
            old.unlink()
    except OSError as error:
        raise UnreadableError.from_os(error, error.filename or folder, hint=store_.NO_SPACE) from error


def _remove(path: Path) -> None:
    if not path.exists():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:  # a build may take the write bit from folders
        for each in (path, *path.rglob("*")):
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o755)
        shutil.rmtree(path)


def release(folder: Path) -> None:
    """After success: the sources and the environment take space, and can be had again."""
    for name in ("src", "venv", "home", "tmp", "work", "out"):
        with contextlib.suppress(OSError):
            _remove(folder / name)


def new_log(folder: Path) -> Path:
    now = datetime.now(timezone.utc)
    return folder / "logs" / f"{now:%Y%m%d-%H%M%S}-{now.microsecond:06d}.log"


def note(folder: Path, built: Built) -> None:
    """Written last: a build that was killed is none that can be resumed."""
    files.write(folder / _DONE, msgspec.json.format(codec.encode(built), indent=1), durable=True)


def forget(folder: Path) -> None:
    (folder / _DONE).unlink(missing_ok=True)


def earlier(folder: Path, key: str) -> Built | None:
    """What an earlier run made of the very same inputs, if it is still what it was."""
    try:
        built = codec.decode((folder / _DONE).read_bytes(), Built)
        if built.key != key or files.sha256(Path(built.wheel)) != built.sha256:
            return None
    except (OSError, UnreadableError, msgspec.DecodeError) as error:
        log.debug("%s has no result to resume: %s", folder, error)
        return None
    return built


def end_leftovers(folder: Path) -> int:
    """Processes of a build here whose cuwheel was killed, or is ending; how many there were.

    Nobody else can be working in the folder: the caller holds its lock. Builds in namespaces of their own may have
    another folder at the same path.
    """
    wanted = f"{variables.MARK}={folder}".encode()
    found = [pid for pid in _processes() if wanted in _variables(pid) and _sees(pid, folder)]
    count = len(found)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_S
    while found and time.monotonic() < deadline:
        found = [pid for pid in found if Path("/proc", str(pid), "exe").exists()]
        time.sleep(0.02)
    return count


def _sees(pid: int, folder: Path) -> bool:
    """Whether a process has the same folder at this path, or is in the same namespace where it has gone."""
    try:
        if folder.exists():
            return Path(f"/proc/{pid}/root{folder}").samefile(folder)
        return Path(f"/proc/{pid}/ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def _processes() -> Iterator[int]:
    me = os.getpid()
    with contextlib.suppress(OSError):
        yield from (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and int(each.name) != me)


def _variables(pid: int) -> list[bytes]:
    try:
        return Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return []
