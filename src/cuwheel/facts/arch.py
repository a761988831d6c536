"""Compute capabilities and the architecture names built from them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from cuwheel.errors import UnknownNameError

Suffix = Literal["", "a", "f"]
ArchKind = Literal["sm", "compute", "lto"]

_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)([af]?)", re.IGNORECASE | re.ASCII)
# Three digits start with 1: `970` is a GeForce, not capability 97.0.
_NUMBER = re.compile(r"(1?\d)(\d)([af]?)", re.IGNORECASE | re.ASCII)
_ARCH = re.compile(r"(sm|compute|lto)_(\d{2,3}[af]?)", re.IGNORECASE | re.ASCII)


class Capability(Struct, frozen=True, order=True):
    """What a GPU is: 9.0. The last digit of an architecture's number is the minor part."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def number(self) -> int:
        return self.major * 10 + self.minor

    @classmethod
    def from_number(cls, number: int) -> Capability:
        return cls(*divmod(number, 10))

    @classmethod
    def parse(cls, text: str) -> Capability:
        """`9.0`, `90`, `sm_90`, `compute_90` and, the suffix being the architecture's, `90a`."""
        return Arch.parse(text).capability


class Arch(Struct, frozen=True, order=True):
    """What code is compiled for: `sm_90a` (machine code), `compute_120` (PTX), `lto_90` (LTO-IR).

    Suffix `a`: this exact capability, its special instructions included. Suffix `f`: its family.
    """

    capability: Capability
    suffix: Suffix = ""
    kind: ArchKind = "sm"

    def __str__(self) -> str:
        return f"{self.kind}_{self.number}"

    @property
    def number(self) -> str:
        """As compilers spell it: `90a`."""
        return f"{self.capability.number}{self.suffix}"

    @classmethod
    def parse(cls, text: str) -> Arch:
        """A full name, or a bare number or capability, which is taken as machine code."""
        return _parsed(text)


@lru_cache(maxsize=4096)  # a verdict asks for the same few hundreds of times
def _parsed(text: str) -> Arch:
    cleaned = text.strip()
    if named := _ARCH.fullmatch(cleaned):
        kind, cleaned = named[1].lower(), named[2]
    else:
        kind = "sm"
    match = _CAPABILITY.fullmatch(cleaned) or _NUMBER.fullmatch(cleaned)
    if not match:
        raise UnknownNameError("architecture", text, hint="write it as 9.0, 90, sm_90 or sm_90a")
    capability = Capability(int(match[1]), int(match[2]))
    return Arch(capability, match[3].lower(), kind)  # type: ignore[arg-type]  # the patterns allow no other


def looks_like_arch(text: str) -> bool:
    """Whether `text` is meant as a capability or architecture and not as the name of a GPU."""
    cleaned = text.strip()
    return any(pattern.fullmatch(cleaned) for pattern in (_ARCH, _CAPABILITY, _NUMBER))
