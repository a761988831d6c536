"""What a distribution says of itself: its file name, METADATA, WHEEL and RECORD."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.inspection.values import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS = re.compile(r"[-_.]+")
_PLAIN_PARTS, _PARTS_WITH_BUILD = 5, 6


def normalised(name: str) -> str:
    """Names are equal if they are so after this (PEP 503)."""
    return _SEPARATORS.sub("-", name).lower()


def from_file_name(name: str) -> Distribution | None:
    """`name-version(-build)?-python-abi-platform.whl`, tags expanded."""
    parts = name.removesuffix(".whl").split("-")
    if not name.endswith(".whl") or len(parts) not in (_PLAIN_PARTS, _PARTS_WITH_BUILD):
        return None
    tags = tuple(
        f"{python}-{abi}-{platform}"
        for python in parts[-3].split(".")
        for abi in parts[-2].split(".")
        for platform in parts[-1].split(".")
    )
    build = parts[2] if len(parts) == _PARTS_WITH_BUILD else None
    return Distribution(name=parts[0], version=parts[1], tags=tags, requires=(), build=build)


def from_texts(metadata: str, wheel: str, fallback: Distribution | None = None) -> Distribution:
    """From METADATA and WHEEL; what they do not say is taken from `fallback`."""
    said = list(fields(metadata))
    first = dict(reversed(said))
    tags = tuple(value for key, value in fields(wheel) if key == "tag")
    return Distribution(
        name=first.get("name") or (fallback.name if fallback else ""),
        version=first.get("version") or (fallback.version if fallback else ""),
        tags=(fallback.tags if fallback else ()) or tags,
        requires=tuple(value for key, value in said if key == "requires-dist"),
        build=fallback.build if fallback else None,
    )


def recorded_files(record: str) -> Iterator[str]:
    """The paths of RECORD, as written: relative to the folder that holds the dist-info."""
    import csv  # noqa: PLC0415 - only for installed distributions

    for row in csv.reader(line for line in record.splitlines() if "\0" not in line):
        if row and row[0]:
            yield row[0]


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
