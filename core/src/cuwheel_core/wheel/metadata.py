"""What a distribution says of itself, in a wheel or installed: METADATA, WHEEL, RECORD."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from cuwheel_core.errors import MalformedError
from cuwheel_core.support import opening
from cuwheel_core.support.patterns import lazy_pattern
from cuwheel_core.wheel.tags import WheelName, normalised

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


# Distributions that are installed: where an environment keeps them, and what their folders are called.

_MOST_BYTES = 1 << 28
_INFO = lazy_pattern(r"(.+)-([^-]+)\.dist-info")
_SITE_PACKAGES = (
    *("lib/python3*/site-packages", "lib64/python3*/site-packages", "Lib/site-packages"),
    # Debian's Python, with what the system installs and what pip does.
    *("lib/python3*/dist-packages", "local/lib/python3*/dist-packages", "lib/python3/dist-packages"),
)


class Installed(NamedTuple):
    """`name` is normalised; `info`: its dist-info folder."""

    name: str
    version: str
    info: Path


def site_packages(prefix: Path) -> tuple[Path, ...]:
    """The folders where an environment, or a prefix such as /usr, has its packages."""
    found = (folder for pattern in _SITE_PACKAGES for folder in sorted(prefix.glob(pattern)))
    return tuple(dict.fromkeys(folder.resolve() for folder in found))


def installed_at(info: Path) -> Installed | None:
    """The distribution that a folder is of, by its name alone; None where that is not one of a distribution."""
    match = _INFO.fullmatch(info.name)
    return Installed(normalised(match[1]), match[2], info) if match else None


def distributions(folder: Path) -> Iterator[Installed]:
    """All in a site-packages folder, in the order of their names."""
    return (
        found
        for path in sorted(folder.glob("*.dist-info"), key=lambda path: path.name)
        if (found := installed_at(path))
    )


def read_info_file(info: Path, name: str) -> str:
    """A file of the dist-info folder; empty where it cannot be read."""
    return opening.head(info / name, _MOST_BYTES)


def installed_files(info: Path) -> Iterator[str]:
    """The paths of RECORD, as written: relative to the folder that holds the dist-info."""
    return recorded_files(read_info_file(info, "RECORD"))


def owner_of_file(file: Path) -> Installed | None:
    """The distribution whose RECORD lists a file: that of the nearest folder above it with distributions."""
    for folder in file.parents:
        found = list(distributions(folder))
        if not found:
            continue
        row = f"{file.relative_to(folder).as_posix()},"
        return next((each for each in found if _lists(each.info / "RECORD", row)), None)
    return None


def _lists(record: Path, row: str) -> bool:
    try:
        with record.open(encoding="utf-8", errors="replace") as file:
            return any(line.startswith(row) for line in file)
    except OSError:
        return False
