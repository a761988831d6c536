"""Every wheel of a package on the user's own index, and members of one without downloading it."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeVar, cast

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from platformdirs import user_cache_path

from cuwheel.network import addresses, resolver, venvs
from cuwheel.network.remote import RemoteFile
from cuwheel.support import codec, log, process
from cuwheel_core.support.buffer import BufferFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from packaging.version import Version

T = TypeVar("T")
R = TypeVar("R")

_ASK_S = 300.0
_AT_ONCE = 12
# pip names every file of an index page when it is asked to say all that it does, also those it would not install.
_LINK = re.compile(r"(?:https?|file)://\S+?\.whl(?=[#\s])")
_KEPT = user_cache_path("cuwheel") / "facts"
_LOCAL = struct.Struct("<4s5H3I2H")


class Wheel(NamedTuple):
    name: str
    version: Version
    platform: str  # the tag: manylinux2014_x86_64
    url: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.platform})"

    @property
    def cpu(self) -> str:
        return "x86_64" if self.platform.endswith(("x86_64", "win_amd64")) else "aarch64"

    @property
    def windows(self) -> bool:
        return self.platform.startswith("win")


@cache
def wheels(name: str) -> tuple[Wheel, ...]:
    """All releases that are no previews, oldest first; nothing for a package that the index does not have."""
    pip = venvs.pip()
    if pip is None:
        return ()
    command = [*pip, "-vv", "index", "versions", name]
    done = process.run(command, timeout=_ASK_S, check=False, env=resolver.pip_environment())
    links = dict.fromkeys(_LINK.findall(done.stdout + done.stderr))
    found = {addresses.file_name(link): wheel for link in links if (wheel := _wheel(link)) and wheel.name == name}
    return tuple(sorted(found.values(), key=lambda each: (each.version, each.platform)))


def _wheel(link: str) -> Wheel | None:
    try:
        name, version, _, tags = parse_wheel_filename(addresses.file_name(link))
    except InvalidWheelFilename:
        return None
    return None if version.is_prerelease else Wheel(name, version, min(tag.platform for tag in tags), link)


def _open(wheel: Wheel) -> BinaryIO:
    local = addresses.local_path(wheel.url)
    return local.open("rb") if local else cast("BinaryIO", BufferFile(RemoteFile(wheel.url)))


def _kept(wheel: Wheel, name: str) -> Path:
    """A wheel that is on an index never changes: what was read of it is kept."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    return _KEPT / f"{addresses.file_name(wheel.url)}.{name}"


def directory(wheel: Wheel) -> tuple[str, ...]:
    """The names of the files in a wheel."""
    kept = _kept(wheel, "json")
    if not kept.exists():
        with _open(wheel) as file, zipfile.ZipFile(file) as archive:
            kept.write_bytes(codec.encode(archive.namelist()))
    return codec.decode(kept.read_bytes(), tuple[str, ...])


def member(wheel: Wheel, ending: str) -> bytes | None:
    """The member of a wheel whose path ends so, read in one go; None where there is none."""
    kept = _kept(wheel, ending.replace("/", "_"))
    if kept.exists():
        return kept.read_bytes()
    with _open(wheel) as file, zipfile.ZipFile(file) as archive:
        info = next((each for each in archive.infolist() if each.filename.endswith(ending)), None)
        if info is None:
            return None
        file.seek(info.header_offset)
        span = file.read(_LOCAL.size + 2 * len(info.filename.encode()) + 1024 + info.compress_size)
        *_, name, extra = _LOCAL.unpack_from(span)
        packed = span[_LOCAL.size + name + extra :][: info.compress_size]
        data = zlib.decompress(packed, -zlib.MAX_WBITS) if info.compress_type == zipfile.ZIP_DEFLATED else packed
    kept.write_bytes(data)
    return data


def at_once(task: Callable[[T], R], items: Iterable[T], label: str) -> list[R]:
    """Mostly waiting for a server: many at a time."""
    todo = list(items)
    with ThreadPoolExecutor(_AT_ONCE) as pool, log.progress(label, len(todo)) as progress:

        def one(item: T) -> R:
            try:
                return task(item)
            finally:
                progress.advance(1)

        return list(pool.map(one, todo))
