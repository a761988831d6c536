"""Build scripts of Rust: `89`, one number, in CUDA_COMPUTE_CAP."""

from __future__ import annotations

from collections.abc import Sequence

from cuwheel.facts.spellings.row import (
    NOTHING,
    ArchList,
    ListWord,
    Releases,
    Row,
    Spelling,
    as_machine_code,
    listed,
)
from cuwheel_core.facts.arch import Arch, known_arch


def write(
    variable: str,
    archs: Sequence[Arch],
    ptx: Sequence[Arch],
    releases: Releases,  # noqa: ARG001 - as every spelling has it
) -> Spelling:
    """One whole number. Whether a build script makes machine code or PTX of it is its own choice."""
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=NOTHING)
    asked = sorted({*archs, *map(as_machine_code, ptx)})
    lowest = str(asked[0].capability.number)
    reasons = []
    if len(asked) > 1:
        reasons.append("it takes one value: build once for each, or only for the oldest")
    if any(arch.suffix for arch in asked):
        reasons.append("it is read as a number, without suffix")
    if reasons:
        return Spelling(variable=variable, value=None, reason="; ".join(reasons), nearest=lowest)
    return Spelling(variable=variable, value=lowest)


def read(text: str, release: str | None = None) -> ArchList:  # noqa: ARG001 - as every spelling has it
    """`89`, one value: CUDA_COMPUTE_CAP of Rust build scripts."""
    arch = known_arch(text.strip())
    return listed([ListWord(text=text.strip(), archs=(arch,) if arch else ())])


ROW = Row(
    name="cargo",
    owner="a Rust build script",
    variable="CUDA_COMPUTE_CAP",
    write=write,
    read=read,
    passed=("CUDA_COMPUTE_CAP", "{}"),
    backends=("cargo",),
)
