"""What a spelling is: the row that every module here makes, and the words that they share.

Each build system has its own spelling, and they do not mean the same: CMake's `90` is machine code and PTX, PyTorch's
`9.0` is machine code alone, and bitsandbytes makes PTX of the highest, asked for or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from cuwheel_core.facts.arch import Arch, known_arch

NOTHING = "there is nothing to build"
_SEPARATORS = re.compile(r"[;,\s]+")
_NUMBER = re.compile(r"\d{2,3}[af]?", re.ASCII)
# Words that a build system resolves itself, when it sees the toolkit or the GPU.
_RESOLVED_BY_BUILD = frozenset({"native", "all", "all-major", "off", "auto", "common"})


class Spelling(Struct, frozen=True, kw_only=True):
    """A list as one build system spells it.

    `value` is null where it cannot say exactly this list: then `reason` says why, and `nearest` is the closest that it
    can say. `needs`: a limit on the version of the build system.
    """

    variable: str
    value: str | None
    reason: str = ""
    nearest: str | None = None
    needs: str = ""

    @property
    def exact_or_near(self) -> str | None:
        return self.value if self.value is not None else self.nearest


class ListWord(Struct, frozen=True, kw_only=True):
    """One word. Without `archs`, either the build system replaces it (`resolved_by_build`) or it means nothing."""

    text: str
    archs: tuple[Arch, ...] = ()
    resolved_by_build: bool = False


class ArchList(Struct, frozen=True, kw_only=True):
    """`words` that mean nothing are in `unknown`; `open` says that the build system adds more by itself.

    `archs` may hold more than the words ask for: what a build system adds.
    """

    archs: tuple[Arch, ...]
    unknown: tuple[str, ...] = ()
    open: bool = False
    words: tuple[ListWord, ...] = ()


class Releases(Struct, frozen=True, kw_only=True):
    """Of the build systems that have to take a list; None where it is not known."""

    cmake: str | None = None
    torch: str | None = None


class Write(Protocol):
    def __call__(self, variable: str, archs: Sequence[Arch], ptx: Sequence[Arch], releases: Releases) -> Spelling:
        """`archs` is machine code, `ptx` is PTX."""


class Read(Protocol):
    def __call__(self, text: str, release: str | None = None) -> ArchList:
        """`release`: of the build system that reads it."""


class Row(Struct, frozen=True, kw_only=True):
    """`name`: in JSON, placeholders and `--as`. `owner`: as people call it. `variable`: what holds the list.

    `passed`: the variable that a build gets it in, and its text there. `backends`: the kinds of project that go by it;
    they get the nearest list where the exact one cannot be said, and the gate sees what came of it.
    `guessed`: what shows that a list is of this spelling.
    """

    name: str
    owner: str
    variable: str
    write: Write
    read: Read
    passed: tuple[str, str] | None = None
    backends: tuple[str, ...] = ()
    guessed: re.Pattern[str] | None = None


def words(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text) if word]


def is_resolved_by_build(word: str) -> bool:
    return word.lower() in _RESOLVED_BY_BUILD


def numbered(word: str) -> tuple[Arch, ...]:
    """CMake takes `90a` and nothing else: neither `9.0` nor `sm_90`."""
    arch = known_arch(word) if _NUMBER.fullmatch(word) else None
    return (arch,) if arch else ()


def as_machine_code(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix)


def as_ptx(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "compute")


def listed(found: Iterable[ListWord]) -> ArchList:
    read = tuple(found)
    return ArchList(
        archs=tuple(dict.fromkeys(arch for word in read for arch in word.archs)),
        unknown=tuple(word.text for word in read if not word.archs and not word.resolved_by_build),
        open=any(word.resolved_by_build for word in read),
        words=read,
    )
