"""METADATA and WHEEL with other values of some fields, and not one other byte changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from cuwheel.errors import UsageError
from cuwheel.wheel.requirements import checked

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
    wanted = {plain: spelt for spelt in requires if (plain := _checked(spelt)) not in there}
    added = [b"Requires-Dist: " + each.encode() + end for each in wanted.values()]
    place = _behind_requirements(lines, head)
    if place and added and not lines[place - 1].endswith(b"\n"):
        lines[place - 1] += end
    return b"".join([*lines[:place], *added, *lines[place:]])


def _behind_requirements(lines: Sequence[bytes], head: int) -> int:
    """After the last of them, continuation lines included; else at the end of the header."""
    found = [index for index in range(head) if lines[index].lower().startswith(b"requires-dist:")]
    if not found:
        return head
    place = found[-1] + 1
    while place < head and lines[place][:1] in (b" ", b"\t"):
        place += 1
    return place


def tagged(text: bytes, tags: Sequence[str], *, impure: bool) -> bytes:
    """WHEEL with these tags in the place of its own. `impure`: it has code for one kind of machine, and says so."""
    lines = text.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    kept: list[bytes] = []
    place = None
    for line in lines:
        field = line.partition(b":")[0].strip().lower()
        if field == b"tag":
            place = len(kept) if place is None else place
        elif field == b"root-is-purelib" and impure:
            kept.append(b"Root-Is-Purelib: false" + end)
        else:
            kept.append(line if line.endswith(b"\n") else line + end)
    place = len(kept) if place is None else place
    return b"".join([*kept[:place], *(b"Tag: " + each.encode() + end for each in tags), *kept[place:]])


def _own(line: bytes, name: tuple[str, str]) -> bytes:
    match = _OWN.fullmatch(line)
    if match is None or canonicalize_name(match["name"].decode()) != canonicalize_name(name[0]):
        return line
    return match["field"] + name[1].encode() + match["rest"]


def _plain(requirement: str) -> str:
    """Two spellings of one requirement are one."""
    try:
        return str(checked(requirement))
    except InvalidRequirement:
        return requirement


def _checked(requirement: str) -> str:
    try:
        return str(checked(requirement))
    except InvalidRequirement as error:
        raise UsageError(f"{requirement!r} is not a requirement: {error}", hint="such as numpy>=2") from error
