"""CMake: `80-real;90-virtual`, in CMAKE_CUDA_ARCHITECTURES or the environment's CUDAARCHS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cuwheel.facts import toolchain_parts
from cuwheel.facts.spellings.row import (
    NOTHING,
    ArchList,
    ListWord,
    Releases,
    Row,
    Spelling,
    as_ptx,
    is_resolved_by_build,
    listed,
    numbered,
    words,
)
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from cuwheel_core.facts.arch import Arch


def write(variable: str, archs: Sequence[Arch], ptx: Sequence[Arch], releases: Releases) -> Spelling:
    version = releases.cmake
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=NOTHING)
    oldest = toolchain_parts.find_cmake_spelling("plain").since
    if version and not versions.at_least(version, oldest):
        return Spelling(variable=variable, value=None, reason=f"CMake {version} does not have it yet: {oldest} does")
    words = [*(f"{arch.number}-real" for arch in archs), *(f"{arch.number}-virtual" for arch in ptx)]
    value = ";".join(words)
    unknown = refused([*archs, *ptx], version)
    if not unknown:
        return Spelling(variable=variable, value=value, needs=needed([*archs, *ptx]))
    numbers = {arch.number for arch in unknown}
    nearest = list(dict.fromkeys(plain(word) if word.partition("-")[0] in numbers else word for word in words))
    return Spelling(
        variable=variable,
        value=None,
        reason=f"CMake {version} does not take {', '.join(sorted(numbers))}: it needs {needed(unknown)}",
        nearest=";".join(nearest),
    )


def refused(archs: Sequence[Arch], version: str | None) -> list[Arch]:
    return [arch for arch in archs if version and not toolchain_parts.cmake_takes(version, arch.suffix or "plain")]


def needed(archs: Sequence[Arch]) -> str:
    """The oldest CMake that takes all of these."""
    spelled = {arch.suffix or "plain" for arch in archs}
    row = toolchain_parts.find_cmake_spelling("f" if "f" in spelled else "a" if "a" in spelled else "plain")
    earlier = "".join(f" (in {versions.minor(each)} from {each} on)" for each in row.backports)
    return f"CMake {row.since} or later{earlier}"


def plain(word: str) -> str:
    number, _, kind = word.partition("-")
    return f"{number.rstrip('af')}-{kind}"


def read(text: str, release: str | None = None) -> ArchList:  # noqa: ARG001 - as every spelling has it
    """`80;86-real;90-virtual;native`: CMAKE_CUDA_ARCHITECTURES and CUDAARCHS."""
    return listed(_cmake_word(word) for word in words(text))


def _cmake_word(word: str) -> ListWord:
    number, _, kind = word.partition("-")
    if is_resolved_by_build(word):
        return ListWord(text=word, resolved_by_build=True)
    archs = numbered(number) if kind in ("", "real", "virtual") else ()
    cubins = () if kind == "virtual" else archs
    ptx = () if kind == "real" else tuple(map(as_ptx, archs))
    return ListWord(text=word, archs=cubins + ptx)


ROW = Row(
    name="cmake",
    owner="CMake",
    variable="CMAKE_CUDA_ARCHITECTURES",
    write=write,
    read=read,
    passed=("CMAKE_ARGS", "-DCMAKE_CUDA_ARCHITECTURES={}"),
    backends=("cmake", "scikit-build-core"),
    guessed=re.compile(r"-(real|virtual)\b|\b(all|all-major|native)\b", re.IGNORECASE | re.ASCII),
)
ENVIRONMENT = Row(
    name="cudaarchs", owner="CMake", variable="CUDAARCHS", write=write, read=read, passed=("CUDAARCHS", "{}")
)
