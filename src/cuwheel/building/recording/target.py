"""`RECORD` and `RECORD:N`: which call of which record is meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.building.recording import failures, reader
from cuwheel.errors import UsageError
from cuwheel.support import quoting

if TYPE_CHECKING:
    from cuwheel.building.recording.calls import Call, Record


def split(target: str | Path) -> tuple[str, int | None]:
    """`RECORD:N`: a folder's own name may end so too, and goes first."""
    text = str(target)
    folder, colon, number = text.rpartition(":")
    if colon and folder and number.isascii() and number.isdecimal() and not Path(text).is_dir():
        return folder, int(number[:9])
    return text, None


def read(target: str | Path) -> tuple[Record, int | None]:
    folder, number = split(target)
    return reader.read(Path(folder)), number


def chosen(record: Record, number: int | None) -> Call | None:
    """The call of that number; without one, the first that failed and mattered."""
    return numbered(record, number) if number is not None else failures.first(record)


def must_choose(record: Record, number: int | None) -> Call:
    if call := chosen(record, number):
        return call
    numbers = f":1 to :{len(record.calls)}" if record.calls else "none"
    raise UsageError(f"no call of {record.folder} failed; choose one to run ({numbers})", hint=listing(record))


def numbered(record: Record, number: int) -> Call:
    found = next((call for call in record.calls if call.number == number), None)
    if found is None:
        count = len(record.calls)
        raise UsageError(f"{record.folder} has no call {number}: it has {count}", hint=listing(record))
    return found


def listing(record: Record) -> str:
    """The command that lists the calls."""
    return quoting.here(("cuwheel", "replay", record.folder, "--list"))
