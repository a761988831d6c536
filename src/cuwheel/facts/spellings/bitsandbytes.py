"""bitsandbytes: `89;90`, in COMPUTE_CAPABILITY of its CMakeLists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cuwheel.facts.spellings import cmake
from cuwheel.facts.spellings.row import (
    NOTHING,
    ArchList,
    ListWord,
    Releases,
    Row,
    Spelling,
    as_ptx,
    listed,
    numbered,
    words,
)

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch


def write(variable: str, archs: Sequence[Arch], ptx: Sequence[Arch], releases: Releases) -> Spelling:
    """Its CMakeLists makes machine code of all, and PTX of the highest, whether asked or not."""
    version = releases.cmake
    if not archs:
        reason = NOTHING if not ptx else "it cannot make PTX alone"
        nearest = ";".join(arch.number for arch in ptx) or None
        return Spelling(variable=variable, value=None, reason=reason, nearest=nearest)
    value = ";".join(arch.number for arch in archs)
    added = as_ptx(archs[-1])
    reasons = []
    if refused := cmake.refused(archs, version):
        reasons.append(f"CMake {version} does not take {', '.join(arch.number for arch in refused)}")
    if added not in ptx:
        reasons.append(f"it always adds PTX for its highest ({added})")
    if missing := [str(arch) for arch in ptx if arch != added]:
        reasons.append(f"it cannot make {', '.join(missing)}")
    if not reasons:
        return Spelling(variable=variable, value=value, needs=cmake.needed(archs))
    plain = list(
        dict.fromkeys(cmake.plain(arch.number).rstrip("-") if arch in refused else arch.number for arch in archs)
    )
    return Spelling(variable=variable, value=None, reason="; ".join(reasons), nearest=";".join(plain))


def read(text: str, release: str | None = None) -> ArchList:  # noqa: ARG001 - as every spelling has it
    """`89;90`: COMPUTE_CAPABILITY. Machine code of all, and PTX of the highest."""
    asked = listed(ListWord(text=word, archs=numbered(word)) for word in words(text))
    added = tuple(as_ptx(arch) for arch in sorted(asked.archs)[-1:])
    return ArchList(archs=asked.archs + added, unknown=asked.unknown, words=asked.words)


ROW = Row(name="bitsandbytes", owner="bitsandbytes", variable="COMPUTE_CAPABILITY", write=write, read=read)
