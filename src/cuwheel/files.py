"""Files that people keep are written beside their place and renamed: nobody finds half of one."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from cuwheel.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

_LONGEST = 200  # of a name's 255 bytes, so that what is added fits


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """A file to write that takes the name `path` when the block ends, and goes where it fails.

    `durable`: its bytes are on the disk before it has the name, so that a crash of the machine leaves one or the other.
    """
    # A name of its own for each writer: several may write the same file at once, and the last one's stays.
    name = os.fsdecode(os.fsencode(path.name)[:_LONGEST])
    beside = path.with_name(f".{name}.{os.getpid()}-{time.monotonic_ns():x}.part")
    try:
        with beside.open("xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise UnreadableError.from_os(error, path) from error
        raise


def write(path: Path, data: str | bytes, *, durable: bool = False) -> None:
    """The whole file, or the one that was there before. Text is UTF-8; names of files that are not stay as they are."""
    with replacing(path, durable=durable) as file:
        file.write(data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape"))
