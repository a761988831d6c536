"""Architecture lists as people write them in variables: what they ask the compiler for.

Each build system has its own spelling, and they do not mean the same: CMake's `90` is machine code
and PTX, PyTorch's `9.0` is machine code alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuwheel.errors import UnknownNameError
from cuwheel.facts import architectures
from cuwheel.facts.arch import Arch

_SEPARATORS = re.compile(r"[;,\s]+")
# Words that a build system resolves itself, when it sees the toolkit or the GPU.
_RESOLVED_LATER = frozenset({"native", "all", "all-major", "off", "auto", "common"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchList:
    """`words` that mean nothing are in `unknown`; `open` says that the build system adds more by itself."""

    archs: tuple[Arch, ...]
    unknown: tuple[str, ...] = ()
    open: bool = False


def read_cmake(text: str) -> ArchList:
    """`80;86-real;90-virtual;native`: CMAKE_CUDA_ARCHITECTURES and CUDAARCHS."""
    archs: list[Arch] = []
    unknown: list[str] = []
    words = _words(text)
    for word in words:
        number, _, kind = word.partition("-")
        if word.lower() in _RESOLVED_LATER:
            continue
        arch = _parse(number)
        if arch is None or kind not in ("", "real", "virtual"):
            unknown.append(word)
            continue
        archs += [] if kind == "virtual" else [arch]
        archs += [] if kind == "real" else [_as_ptx(arch)]
    return _list(words, archs, unknown)


def read_torch(text: str) -> ArchList:
    """`8.0 8.6;9.0+PTX`, and names of generations: TORCH_CUDA_ARCH_LIST."""
    archs: list[Arch] = []
    unknown: list[str] = []
    words = _words(text)
    for word in words:
        name, plus, _ = word.partition("+")
        arch = _parse(name)
        named = [arch] if arch else [Arch(each) for each in architectures.of_generation(name)]
        if not named and word.lower() not in _RESOLVED_LATER:
            unknown.append(word)
        archs += named
        archs += [_as_ptx(each) for each in named[-1:]] if plus else []
    return _list(words, archs, unknown)


def read_compute_cap(text: str) -> ArchList:
    """`89`, one value: CUDA_COMPUTE_CAP of Rust build scripts."""
    arch = _parse(text.strip())
    return ArchList(archs=(arch,) if arch else (), unknown=() if arch else (text,))


READERS = {
    "TORCH_CUDA_ARCH_LIST": read_torch,
    "CMAKE_CUDA_ARCHITECTURES": read_cmake,
    "CUDAARCHS": read_cmake,
    "CUDA_COMPUTE_CAP": read_compute_cap,
}


def _words(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text) if word]


def _parse(text: str) -> Arch | None:
    try:
        return Arch.parse(text)
    except UnknownNameError:
        return None


def _as_ptx(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "compute")


def _list(words: list[str], archs: list[Arch], unknown: list[str]) -> ArchList:
    later = any(word.lower() in _RESOLVED_LATER for word in words)
    return ArchList(archs=tuple(dict.fromkeys(archs)), unknown=tuple(unknown), open=later)
