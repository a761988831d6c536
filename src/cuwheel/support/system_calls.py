"""What POSIX and Windows do by different calls: opening, locking, reading and writing at a place, whose a file is.

Nothing but the standard library of Python 3.9: it also travels in the kit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cuwheel_core.support.opening import SEEKING, read_at

# Variables without which no program of Windows starts, or finds the system's libraries.
NEEDED_VARIABLES = (
    (
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "NUMBER_OF_PROCESSORS", "PROCESSOR_*"),
        *("PROGRAMFILES*", "PROGRAMW6432", "PROGRAMDATA", "COMMONPROGRAMFILES*", "ALLUSERSPROFILE", "PYTHONUTF8"),
    )
    if os.name == "nt"
    else ()
)
_FICLONE = 0x40049409  # linux/fs.h
_LOOK_S = 0.05
_IN_USE = "it cannot be replaced: a program has it open (end it and try again), or nobody may change it"
_PATIENCE_S = 2.0  # for a file that a virus scanner or an indexer has open


def clone(source: int, to: int) -> bool:
    """An open file's bytes become another's without being copied; False where the file system does not do that."""
    if sys.platform != "linux":
        return False
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fcntl.ioctl(to, _FICLONE, source)
    except OSError:
        return False
    return True


def home_variables(home: Path, temporary: Path) -> dict[str, str]:
    """Those that give a program a home and a place for its temporary files."""
    if os.name != "nt":
        return {"HOME": str(home), "TMPDIR": str(temporary)}
    homes = dict.fromkeys(("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"), str(home))
    return homes | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))


def link_folder(target: Path, place: Path) -> None:
    """On Windows a junction, which needs no rights where a symbolic link does. Raises OSError."""
    if sys.platform == "win32":
        import _winapi  # noqa: PLC0415 - of Windows alone

        _winapi.CreateJunction(str(target), str(place))
        if not os.path.isdir(place):  # noqa: PTH112 - through the link
            raise OSError(f"{place} is not a link to a folder")
    else:
        place.symlink_to(target, target_is_directory=True)


def code_page() -> str:
    """In which programs of this system print that do not print UTF-8."""
    if sys.platform == "win32":
        return f"cp{_kernel32.GetACP()}"
    return "utf-8"


def is_ours(status: os.stat_result) -> bool:
    """Whether a file belongs to this user; Windows keeps strangers out of a user's folders itself."""
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def may_replace(status: os.stat_result) -> bool:
    """Whether a file may go for another: ours, or anybody's for root."""
    return is_ours(status) or (sys.platform != "win32" and os.geteuid() == 0)


def set_mode(handle: int, mode: int) -> None:
    """Who may do what with an open file; on Windows the folder decides."""
    if sys.platform != "win32":
        os.fchmod(handle, mode)


def _seek_and_write(handle: int, data: bytes | memoryview, offset: int) -> int:
    with SEEKING:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, data)


write_at: Callable[[int, bytes | memoryview, int], int] = getattr(os, "pwrite", _seek_and_write)


def read_into(handle: int, room: memoryview, offset: int) -> int:
    """How many bytes of the file from `offset` on came into `room`."""
    if sys.platform == "win32":
        data = read_at(handle, len(room), offset)
        room[: len(data)] = data
        return len(data)
    return os.preadv(handle, [room], offset)


def rename_over(made: Path, place: Path) -> Path:
    """`made` takes the name `place`, which is returned. Windows refuses while somebody reads it: we wait a while."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return made.replace(place)
        except PermissionError as error:
            if os.name != "nt" or not made.exists() or place.is_dir():
                raise
            if time.monotonic() > deadline:
                raise PermissionError(error.errno, _IN_USE, str(place)) from error
            time.sleep(_LOOK_S)


def lock(handle: int, *, shared: bool = False) -> bool:
    """Whether the lock on an open file is ours now. The system releases it at any death: there are no stale locks."""
    if sys.platform == "win32":
        return _lock_region(handle, shared=shared)
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(handle: int, *, shared: bool = False) -> None:
    """Until it is ours. On Windows by asking again: a wait inside the system could not be interrupted."""
    if sys.platform == "win32":
        while not _lock_region(handle, shared=shared):
            time.sleep(_LOOK_S)
        return
    import fcntl  # noqa: PLC0415 - not on Windows

    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def remove_locked(path: Path, handle: int) -> None:
    """Removes a file whose lock we hold, and closes it; whoever waits for the lock finds that the file is gone.

    Windows removes no open file: it is closed first, and stays if another process has opened it since.
    """
    if sys.platform == "win32":
        os.close(handle)
        with contextlib.suppress(OSError):
            path.unlink()
        return
    with contextlib.suppress(OSError):
        path.unlink()
    os.close(handle)


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    _FAR = 0x7FFF_FFFF  # the upper half of an offset that no file reaches: locked bytes cannot be read by others
    _FAIL_AT_ONCE, _ALONE = 1, 2
    _LOCKED = 33  # ERROR_LOCK_VIOLATION
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("internal", ctypes.c_void_p),
            ("internal_high", ctypes.c_void_p),
            ("offset", wintypes.DWORD),
            ("offset_high", wintypes.DWORD),
            ("event", wintypes.HANDLE),
        )

    _kernel32.LockFileEx.argtypes = (
        wintypes.HANDLE, wintypes.DWORD, wintypes.DWORD, wintypes.DWORD, wintypes.DWORD, ctypes.POINTER(_Overlapped),
    )  # fmt: skip

    def _lock_region(handle: int, *, shared: bool) -> bool:
        place = _Overlapped(offset_high=_FAR)
        flags = _FAIL_AT_ONCE | (0 if shared else _ALONE)
        if _kernel32.LockFileEx(msvcrt.get_osfhandle(handle), flags, 0, 1, 0, ctypes.byref(place)):
            return True
        if (code := ctypes.get_last_error()) == _LOCKED:
            return False
        raise OSError(errno.ENOLCK, ctypes.FormatError(code), None, code)
