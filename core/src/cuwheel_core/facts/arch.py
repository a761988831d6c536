"""Compute capabilities and the architecture names built from them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal, final

from cuwheel_core.errors import UnknownNameError
from cuwheel_core.support import bounded
from cuwheel_core.support.patterns import lazy_pattern

Suffix = Literal["", "a", "f"]
ArchKind = Literal["sm", "compute", "lto"]

_CAPABILITY = lazy_pattern(r"(\d{1,2})\.(\d)([af]?)", re.IGNORECASE | re.ASCII)
# Three digits start with 1: `970` is a GeForce, not capability 97.0.
_NUMBER = lazy_pattern(r"(1?\d)(\d)([af]?)", re.IGNORECASE | re.ASCII)
_ARCH = lazy_pattern(r"(sm|compute|lto)_(\d{2,3}[af]?)", re.IGNORECASE | re.ASCII)
_WRITTEN_CAPABILITY = lazy_pattern(r"(\d{1,10})\.(\d)", re.ASCII)
_WRITTEN_ARCH = lazy_pattern(r"(sm|compute|lto)_(\d{1,11})([af]?)", re.ASCII)


class _Parts(str):
    """A text that knows its parts: JSON and messages show the text, and the parts put it in order."""

    __slots__ = ("_parts",)
    _parts: tuple[Any, ...]

    def __lt__(self, other: str) -> bool:
        return self._parts < other._parts if isinstance(other, type(self)) else NotImplemented

    def __le__(self, other: str) -> bool:
        return self._parts <= other._parts if isinstance(other, type(self)) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return self._parts > other._parts if isinstance(other, type(self)) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return self._parts >= other._parts if isinstance(other, type(self)) else NotImplemented

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self._parts


@final
class Capability(_Parts):
    """What a GPU is: 9.0. The last digit of an architecture's number is the minor part."""

    __slots__ = ()

    def __new__(cls, major: int, minor: int) -> Capability:
        self = super().__new__(cls, f"{major}.{minor}")
        self._parts = (major, minor)
        return self

    @property
    def major(self) -> int:
        major: int = self._parts[0]
        return major

    @property
    def minor(self) -> int:
        minor: int = self._parts[1]
        return minor

    @property
    def number(self) -> int:
        return self.major * 10 + self.minor

    @classmethod
    def from_number(cls, number: int) -> Capability:
        return cls(*divmod(number, 10))

    @classmethod
    def restored(cls, text: str) -> Capability:
        """From a file that cuwheel wrote: any number that it may have found somewhere."""
        match = _WRITTEN_CAPABILITY.fullmatch(text)
        return cls(bounded.digits(match[1]), bounded.digits(match[2])) if match else cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Capability:
        """`9.0`, `90`, `sm_90`, `compute_90` and, the suffix being the architecture's, `90a`."""
        return Arch.parse(text).capability


@final
class Arch(_Parts):
    """What code is compiled for: `sm_90a` (machine code), `compute_120` (PTX), `lto_90` (LTO-IR).

    Suffix `a`: this exact capability, its special instructions included. Suffix `f`: its family.
    """

    __slots__ = ()

    def __new__(cls, capability: Capability, suffix: Suffix = "", kind: ArchKind = "sm") -> Arch:
        self = super().__new__(cls, f"{kind}_{capability.number}{suffix}")
        self._parts = (capability, suffix, kind)
        return self

    @property
    def capability(self) -> Capability:
        capability: Capability = self._parts[0]
        return capability

    @property
    def suffix(self) -> Suffix:
        suffix: Suffix = self._parts[1]
        return suffix

    @property
    def kind(self) -> ArchKind:
        kind: ArchKind = self._parts[2]
        return kind

    @property
    def number(self) -> str:
        """The number as compilers spell it: `90a`."""
        return f"{self.capability.number}{self.suffix}"

    @property
    def readable(self) -> bool:
        """Whether it is written as architectures are: a damaged file may claim any number."""
        return _NUMBER.fullmatch(self.number) is not None

    @classmethod
    def restored(cls, text: str) -> Arch:
        """From a file that cuwheel wrote: any number that it may have found in another."""
        match = _WRITTEN_ARCH.fullmatch(text)
        if not match:
            return cls.parse(text)
        return cls(Capability.from_number(bounded.digits(match[2])), match[3], match[1])  # type: ignore[arg-type]  # as below

    @classmethod
    def parse(cls, text: str) -> Arch:
        """A full name, or a bare number or capability, which is taken as machine code."""
        return _parse_arch(text)


def known_arch(text: str) -> Arch | None:
    """The architecture of that name; None where it is the name of none."""
    try:
        return Arch.parse(text)
    except UnknownNameError:
        return None


def machine_code_first(arch: Arch) -> tuple[bool, Arch]:
    """A key to sort by: machine code before PTX and LTO-IR, each by number."""
    return arch.kind != "sm", arch


@lru_cache(maxsize=4096)  # a verdict asks for the same few hundreds of times
def _parse_arch(text: str) -> Arch:
    cleaned = text.strip()
    if named := _ARCH.fullmatch(cleaned):
        kind, cleaned = named[1].lower(), named[2]
    else:
        kind = "sm"
    match = _CAPABILITY.fullmatch(cleaned) or _NUMBER.fullmatch(cleaned)
    if not match:
        raise UnknownNameError("architecture", text, hint="write it as 9.0, 90, sm_90 or sm_90a")
    capability = Capability(bounded.digits(match[1]), bounded.digits(match[2]))
    return Arch(capability, match[3].lower(), kind)  # type: ignore[arg-type]  # the patterns allow no other


def looks_like_arch(text: str) -> bool:
    """Whether `text` is meant as a capability or architecture and not as the name of a GPU."""
    cleaned = text.strip()
    return any(pattern.fullmatch(cleaned) for pattern in (_ARCH, _CAPABILITY, _NUMBER))
