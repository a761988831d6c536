"""One library with more device code in its containers: written beside, read again, then given its name."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from cuwheel.changes.binaries import library, read_back
from cuwheel.changes.binaries.draft import walked
from cuwheel.changes.binaries.drafting import checked, drafted
from cuwheel.changes.binaries.fatbin_writer import Addition, rebuilt
from cuwheel.device_code.fatbin import RawEntry
from cuwheel.errors import MalformedError, UnreadableError
from cuwheel.support import system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cuwheel.changes.binaries.draft import Draft
    from cuwheel.support.buffer import Buffer

_CHUNK = 1 << 20


class Foreign:
    """An entry of another file: the buffer that it is in, and what its header says."""

    __slots__ = ("buffer", "entry")

    def __init__(self, buffer: Buffer, entry: RawEntry) -> None:
        self.buffer, self.entry = buffer, entry


def draft(
    base: Buffer,
    contents: Mapping[int, Sequence[RawEntry | Foreign]],
    spool: int | None,
    *,
    drop_signature: bool = False,
) -> Draft:
    """`contents`: what the containers hold that change, by their number. `spool`: where the others' entries go.

    Without a spool nothing is copied: the draft says what would be written. Raises MalformedError, with what it is
    about the file that forbids changing it.
    """
    file = checked(base, drop_signature=drop_signature)
    walk, registration = walked(file)
    unnamed = set(registration.unnamed) if registration.wrappers else set(range(len(walk.containers)))
    made, at = [], 0
    for index, old in enumerate(walk.containers):
        wanted: list[RawEntry | Addition] = []
        for each in contents.get(index, old.entries):
            if isinstance(each, RawEntry):
                wanted.append(each)
                continue
            size = each.entry.header_size + each.entry.payload
            if spool is not None:
                _copy(each, size, spool, at)
            wanted.append(Addition(at, each.entry.header_size, each.entry.payload))
            at += size
        if index in contents and index in unnamed:
            raise MalformedError(base.name, f"nothing refers to the container at {old.offset:#x}, which was to change")
        start = old.entries[0].offset if old.entries else old.offset + old.size
        made.append(rebuilt(old, base.read(old.offset, start - old.offset), wanted, {}, pinned=index in unnamed))
    return drafted(file, tuple(made), registration)


def _copy(each: Foreign, size: int, spool: int, at: int) -> None:
    for start in range(0, size, _CHUNK):
        data = each.buffer.read(each.entry.offset + start, min(_CHUNK, size - start))
        written = 0
        while written < len(data):
            written += system_calls.write_at(spool, data[written:], at + start + written)


def grow(
    source: Path,
    base: Buffer,
    target: Path,
    contents: Mapping[int, Sequence[RawEntry | Foreign]],
    must_hold: Callable[[Path], object],
    *,
    drop_signature: bool = False,
) -> int:
    """Write the library with these contents to `target`, and tell its size. `must_hold`: raises for a wrong file.

    `base`: the bytes of `source`. Raises MalformedError where it cannot be done safely, or what was written is not
    what was planned: `target` is then what it was.
    """
    try:
        with tempfile.TemporaryFile(dir=target.parent, buffering=0) as file:
            made = draft(base, contents, file.fileno(), drop_signature=drop_signature)

            def check(beside: Path) -> None:
                read_back.same_as_drafted(source, beside, base.name, made, file.fileno())
                must_hold(beside)

            library.write(source, target, made, file.fileno(), check)
            return made.size
    except OSError as error:
        raise UnreadableError.from_os(error, target) from error
