"""Marked blocks in a text file: what is ours is renewed, what somebody changed stays, everything else is left alone.

A block begins with a line that has its name and the hash of its content, so that a change by hand can be seen.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["same", "added", "renewed", "removed", "edited"]
_BEGIN = re.compile(r"^[ \t]*# >>> cuwheel (?P<name>[a-z0-9_-]{1,60}) (?P<hash>[0-9a-f]{12})[ \t]*$")
_END = re.compile(r"^[ \t]*# <<< cuwheel (?P<name>[a-z0-9_-]{1,60})[ \t]*$")
_PENDING = "0" * 12


class Block(Struct, frozen=True, kw_only=True):
    """`first`, `last`: the lines of its marks."""

    name: str
    first: int
    last: int
    hash: str
    content: str

    @property
    def edited(self) -> bool:
        return self.hash != digest(self.content)


def begin(name: str, indent: int = 0) -> str:
    """A mark whose hash `sealed` writes."""
    return f"{' ' * indent}# >>> cuwheel {name} {_PENDING}"


def end(name: str, indent: int = 0) -> str:
    return f"{' ' * indent}# <<< cuwheel {name}"


def digest(content: str) -> str:
    """Line ends do not count: some editors and git change them."""
    return hashlib.sha256(content.replace("\r\n", "\n").encode()).hexdigest()[:12]


def sealed(text: str) -> str:
    lines = text.splitlines()
    for each in find(text):
        lines[each.first] = lines[each.first].replace(_PENDING, digest(each.content))
    return "\n".join(lines) + "\n"


def find(text: str) -> list[Block]:
    """In the order of the text; a mark without its other half is no block."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    first, lines = 0, text.splitlines()
    for number, line in enumerate(lines):
        if match := _BEGIN.match(line):
            opened, first = match, number
        elif (match := _END.match(line)) and opened and match["name"] == opened["name"]:
            content = "\n".join(lines[first + 1 : number])
            found.append(Block(name=match["name"], first=first, last=number, hash=opened["hash"], content=content))
            opened = None
    return found


def merged(there: str, wanted: str) -> tuple[str, dict[str, State]]:
    """A text with its blocks as `wanted` has them, except those that somebody changed; and what became of each.

    A block that is not there yet comes behind the one that is before it in `wanted`, or at the end.
    """
    own = {each.name: each for each in find(there)}
    new = {each.name: each for each in find(wanted)}
    lines, fresh = there.splitlines(), wanted.splitlines()
    states: dict[str, State] = {}
    texts: dict[str, list[str]] = {}
    for name, block in new.items():
        before = own.get(name)
        if before is None:
            states[name] = "added"
        elif before.content == block.content:
            states[name] = "same"
        else:
            states[name] = "edited" if before.edited else "renewed"
        texts[name] = fresh[block.first : block.last + 1]
    for name, block in own.items():
        if name not in new:
            states[name] = "edited" if block.edited else "removed"
    return "\n".join(_spliced(lines, own, texts, states)) + "\n", states


def _spliced(
    lines: list[str], own: dict[str, Block], texts: dict[str, list[str]], states: dict[str, State]
) -> list[str]:
    missing: dict[str, list[list[str]]] = {}  # by the block that they come behind
    last = ""
    for name, text in texts.items():
        if states[name] == "added":
            missing.setdefault(last, []).append(text)
        else:
            last = name
    made: list[str] = []
    at = 0
    for block in sorted(own.values(), key=lambda each: each.first):
        made += lines[at : block.first]
        at = block.last + 1
        if states[block.name] in ("same", "edited"):
            made += lines[block.first : at]
        elif states[block.name] == "renewed":
            made += texts[block.name]
        for text in missing.pop(block.name, ()):
            made += ["", *text]
    made += lines[at:]
    for rest in missing.values():
        for text in rest:
            made += ["", *text]
    return made
