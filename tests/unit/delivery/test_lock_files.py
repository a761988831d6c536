"""The locks of a fleet, written together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from cuwheel.delivery.lock_files import InstallLock, LockPart, write_locks
from cuwheel_core.errors import UnreadableError

if TYPE_CHECKING:
    from pathlib import Path


def _part(machine: str, **pins: str) -> LockPart:
    return LockPart(
        machines=(machine,),
        capability="9.0",
        os="linux",
        cpu="x86_64",
        python="3.12",
        glibc=None,
        driver=None,
        packages={"foo": "native"},
        fallback=None,
        pins=pins,
        files=(),
    )


def test_where_one_finds_no_room_none_is_new(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    lock = InstallLock(wanted=("foo",), parts=(_part("a"), _part("b", **{f"PIN_{each}": "1" for each in range(200)})))
    old = msgspec.structs.replace(lock, wanted=("bar",))
    short, long = (path.stat().st_size for path in write_locks(tmp_path, old))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((short + long) // 2, limits[1]))  # the system writes no larger file
    try:
        with pytest.raises(UnreadableError, match=r"pylock\.b\.toml: File too large"):
            write_locks(tmp_path, lock)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    times = {path: path.stat().st_mtime_ns for path in write_locks(tmp_path, lock)}
    assert {path: path.stat().st_mtime_ns for path in write_locks(tmp_path, lock)} == times
