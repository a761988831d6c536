"""Entries in words: `compute_80@13.4#2*!lz4^9.9`, so that hundreds of variants stay readable.

Architecture, @ the toolkit that compiled it (13.0 if none is said), # which of several equal ones (they write
different numbers), * with debug information, ! another compression than the compiler's, ^ another PTX ISA in the
header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from cuwheel_core.device_code.libraries import Compression

# What is compiled: a kernel that stands alone (three names of it, for three containers), the objects of a device
# link (two kernels, and what both need), and what the device linker makes of two or three objects.
Part: TypeAlias = Literal["whole", "second", "third", "a", "b", "c", "linked", "linked3"]

_CODE = re.compile(
    r"(?P<arch>(?:sm|compute|lto)_\d+[af]?)(?:@(?P<toolkit>\d+\.\d+))?(?:#(?P<copy>\d))?"
    r"(?P<debug>\*)?(?:!(?P<packing>none|lz4|zstd))?(?:\^(?P<isa>\d+\.\d+))?",
    re.ASCII,
)
DEFAULT_TOOLKIT = "13.0"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Piece:
    """What is compiled once, and writes a number of its own."""

    part: Part
    arch: str
    toolkit: str
    copy: int = 1
    debug: bool = False

    def __str__(self) -> str:
        """As it is written, the toolkit always said."""
        return f"{self.arch}@{self.toolkit}" + (f"#{self.copy}" if self.copy > 1 else "") + ("*" if self.debug else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One entry: a piece, and what was changed about it."""

    piece: Piece
    packing: Compression | None = None
    isa: str | None = None

    def __str__(self) -> str:
        return str(self.piece) + (f"!{self.packing}" if self.packing else "") + (f"^{self.isa}" if self.isa else "")


def codes(text: str, part: Part = "whole", toolkit: str = DEFAULT_TOOLKIT) -> tuple[Code, ...]:
    """The entries of a container, in order. An empty text is an empty container."""
    return tuple(_code(word, part, toolkit) for word in text.split())


def _code(word: str, part: Part, toolkit: str) -> Code:
    match = _CODE.fullmatch(word)
    if not match:
        raise ValueError(f"{word!r} is not an entry")
    piece = Piece(
        part=part,
        arch=match["arch"],
        toolkit=match["toolkit"] or toolkit,
        copy=int(match["copy"] or 1),
        debug=bool(match["debug"]),
    )
    return Code(piece=piece, packing=cast("Compression | None", match["packing"]), isa=match["isa"])
