"""METADATA with another name, another version or more requirements, and not one other byte changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN = re.compile(
    rb"(?P<field>requires-dist:\s*)(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)


def changed(
    text: bytes, *, name: tuple[str, str] | None = None, version: str | None = None, requires: Sequence[str] = ()
) -> bytes:
    """`name`: the old and the new one; a distribution that requires itself (`foo[all]`) keeps doing so."""
    lines = text.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    head = next((index for index, line in enumerate(lines) if not line.strip()), len(lines))
    there: set[str] = set()
    for index, line in enumerate(lines[:head]):
        field = line.partition(b":")[0].lower()
        if field == b"name" and name:
            lines[index] = b"Name: " + name[1].encode() + end
        elif field == b"version" and version:
            lines[index] = b"Version: " + version.encode() + end
        elif field == b"requires-dist":
            lines[index] = _own(line, name) if name else line
            there.add(_plain(lines[index].partition(b":")[2].strip().decode("utf-8", "replace")))
    wanted = [each for each in dict.fromkeys(map(_checked, requires)) if each not in there]
    if head and wanted and not lines[head - 1].endswith(b"\n"):
        lines[head - 1] += end
    added = [b"Requires-Dist: " + each.encode() + end for each in wanted]
    return b"".join([*lines[:head], *added, *lines[head:]])


def _own(line: bytes, name: tuple[str, str]) -> bytes:
    match = _OWN.fullmatch(line)
    if match is None or canonicalize_name(match["name"].decode()) != canonicalize_name(name[0]):
        return line
    return match["field"] + name[1].encode() + match["rest"]


def _plain(requirement: str) -> str:
    """Two spellings of one requirement are one."""
    try:
        return str(Requirement(requirement))
    except InvalidRequirement:
        return requirement


def _checked(requirement: str) -> str:
    try:
        return str(Requirement(requirement))
    except InvalidRequirement as error:
        raise UsageError(f"{requirement!r} is no requirement: {error}", hint="such as numpy>=2") from error
