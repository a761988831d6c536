"""What a distribution says of itself: its file name, METADATA, WHEEL and RECORD."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from cuwheel.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.wheel.name import WheelName

_SEPARATORS = re.compile(r"[-_.]+")
_RECORD_FIELDS = 3
MOST_REQUIREMENTS = 5000  # of one distribution; the largest on the index have some hundred
_SHORTER = "no package has so many: its metadata is damaged, or made to keep its readers busy"
_MOST_TEXT = 1 << 20  # characters of them all


class Distribution(Struct, frozen=True, kw_only=True):
    """What a wheel, or an installed distribution, says of itself."""

    name: str
    version: str
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    build: str | None = None


def normalised(name: str) -> str:
    """Names are equal if they are so after this (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()


def from_texts(metadata: str, wheel: str, name: WheelName | None = None) -> Distribution:
    """From METADATA and WHEEL; what they do not say is taken from the name of the file, and the tags first of all."""
    written = list(fields(metadata))
    first = dict(reversed(written))
    requires = tuple(value for key, value in written if key == "requires-dist")
    if problem := too_many(requires):
        raise MalformedError(first.get("name") or (name.name if name else "METADATA"), problem, _SHORTER)
    tags = tuple(value for key, value in fields(wheel) if key == "tag")
    return Distribution(
        name=first.get("name") or (name.name if name else ""),
        version=first.get("version") or (name.version if name else ""),
        tags=name.tags if name else tags,
        requires=requires,
        build=name.build if name else None,
    )


def too_many(requires: Sequence[str]) -> str | None:
    """Why nobody reads all these requirements; None where they are as many as a package may have."""
    if len(requires) > MOST_REQUIREMENTS:
        return f"it has {len(requires):,} requirements, of at most {MOST_REQUIREMENTS:,}"
    if (total := sum(map(len, requires))) > _MOST_TEXT:
        return f"its requirements have {total:,} characters, of at most {_MOST_TEXT:,}"
    return None


class RecordRow(NamedTuple):
    """A line of RECORD as it stands, and its fields; no path where it is not a row of the table."""

    line: str
    path: str
    hash: str = ""
    size: str = ""


def record_rows(record: str) -> Iterator[RecordRow]:
    for line in io.StringIO(record, newline=""):
        fields = _cells(line)
        if fields or line.strip():
            yield RecordRow(line, *[*fields, "", "", ""][:_RECORD_FIELDS])


def _cells(line: str) -> list[str]:
    if "\0" in line:
        return []
    if '"' not in line:  # nearly all; the csv module takes ten times as long
        return line.rstrip("\r\n").split(",")
    import csv  # noqa: PLC0415 - as above

    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def recorded_files(record: str) -> Iterator[str]:
    """The paths of RECORD, as written: relative to the folder that holds the dist-info."""
    return (row.path for row in record_rows(record) if row.path)


def fields(text: str) -> Iterator[tuple[str, str]]:
    """The header of a message, which ends at the first empty line; continued lines are joined."""
    key, value = "", ""
    for line in text.splitlines():
        if not line:
            break
        if line[0] in " \t":
            value += " " + line.strip()
            continue
        if key:
            yield key, value
        key, _, value = (part.strip() for part in line.partition(":"))
        key = key.lower()
    if key:
        yield key, value
