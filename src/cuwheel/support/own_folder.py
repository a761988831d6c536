"""Builds at one path at the same time: each process with its own folder there, in a namespace of its own.

The path of a source is in the names of kernels, so all parts of a wheel are compiled at the same one.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.support import log, scratch, system_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS and CLONE_NEWUSER, MS_BIND, MS_REC and MS_PRIVATE of Linux
_NEW_USERS = 0x10000000
_BIND = 4096
_RECURSIVE = 16384
_PRIVATE = 1 << 18


@contextlib.contextmanager
def own_folder(folder: Path, slots: Path) -> Iterator[None]:
    """This process, and all that it starts, sees a folder of its own at `folder`. Where that cannot be, it waits there.

    It must not have started a thread. The folders are kept in `slots` and taken again: what was built is found there.
    """
    try:
        slots.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.debug("no folder apart: %s", error)
        yield
        return
    handle, mine = _taken(slots)
    try:
        if problem := _bound(mine, folder):
            log.debug("builds at %s wait for each other: %s", folder, problem)
        yield
    finally:
        os.close(handle)


def _taken(slots: Path) -> tuple[int, Path]:
    """The first that no other process of this machine has."""
    for number in itertools.count():
        mine = slots / str(number)
        mine.mkdir(exist_ok=True)
        handle = system_calls.open_file(slots / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if scratch.take(handle):
            return handle, mine
        os.close(handle)
    raise AssertionError


@cache
def can_be_apart() -> bool:
    """Tried in a copy of this process."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 1 if _bound(Path("/"), Path("/")) else 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _bound(mine: Path, at: Path) -> str:
    """Why not, or nothing."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if system.unshare(_NEW_MOUNTS) != 0:
        if system.unshare(_NEW_MOUNTS | _NEW_USERS) != 0:
            return os.strerror(ctypes.get_errno())
        try:
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        except OSError as error:
            return str(error)
    if system.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None) != 0:
        return os.strerror(ctypes.get_errno())
    if system.mount(os.fsencode(mine), os.fsencode(at), None, _BIND, None) != 0:
        return os.strerror(ctypes.get_errno())
    return ""
