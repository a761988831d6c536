"""Architecture lists as people write them: what they ask the compiler for.

Each build system has its own spelling, and they do not mean the same: CMake's `90` is machine code and PTX, PyTorch's
`9.0` is machine code alone, and bitsandbytes makes PTX of the highest, asked for or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuwheel.errors import UnknownNameError
from cuwheel.facts import torch
from cuwheel.facts.arch import Arch

if TYPE_CHECKING:
    from collections.abc import Iterable

_SEPARATORS = re.compile(r"[;,\s]+")
_NUMBER = re.compile(r"\d{2,3}[af]?", re.ASCII)
_WITH_POINT = re.compile(r"\d{1,2}\.\d[af]?", re.ASCII | re.IGNORECASE)
# nvcc's options, with `=` or a space before the value, and names of code on their own.
_NVCC = re.compile(
    r"(?P<gencode>--?(?:gencode|generate-code)[=\s]+)(?P<pair>[^\s]+)"
    r"|(?P<arch>--?(?:arch|gpu-architecture)[=\s]+)(?P<target>[^\s]+)"
    r"|(?P<code>--?(?:code|gpu-code)[=\s]+)(?P<codes>[^\s]+)"
    r"|(?P<word>[^\s;,]+)",
    re.ASCII,
)
_CODE = re.compile(r"code=(.+)", re.ASCII)
# Words that a build system resolves itself, when it sees the toolkit or the GPU.
_RESOLVED_LATER = frozenset({"native", "all", "all-major", "off", "auto", "common"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWord:
    """One word. No `archs`: `later` says that the build system resolves it itself; otherwise it means nothing."""

    text: str
    archs: tuple[Arch, ...] = ()
    later: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchList:
    """`words` that mean nothing are in `unknown`; `open` says that the build system adds more by itself.

    `archs` may hold more than the words ask for: what a build system adds.
    """

    archs: tuple[Arch, ...]
    unknown: tuple[str, ...] = ()
    open: bool = False
    words: tuple[ListWord, ...] = ()


def read_cmake(text: str) -> ArchList:
    """`80;86-real;90-virtual;native`: CMAKE_CUDA_ARCHITECTURES and CUDAARCHS."""
    return _list(_cmake_word(word) for word in _words(text))


def read_torch(text: str, release: str | None = None) -> ArchList:
    """`8.0 8.6;9.0+PTX`, and names of generations: TORCH_CUDA_ARCH_LIST. `release`: of the PyTorch that reads it."""
    return _list(_torch_word(word, release) for word in _words(text))


def read_compute_cap(text: str) -> ArchList:
    """`89`, one value: CUDA_COMPUTE_CAP of Rust build scripts."""
    arch = _parse(text.strip())
    return _list([ListWord(text=text.strip(), archs=(arch,) if arch else ())])


def read_bitsandbytes(text: str) -> ArchList:
    """`89;90`: COMPUTE_CAPABILITY. Machine code of all, and PTX of the highest."""
    words = _words(text)
    asked = _list(ListWord(text=word, archs=_numbered(word)) for word in words)
    added = tuple(_as_ptx(arch) for arch in sorted(asked.archs)[-1:])
    return ArchList(archs=asked.archs + added, unknown=asked.unknown, words=asked.words)


def read_nvcc(text: str) -> ArchList:
    """`-gencode arch=compute_80,code=sm_80`, `-arch=sm_90`, and names alone: `sm_80 compute_90`."""
    matches = list(_NVCC.finditer(text.replace('"', "").replace("'", "").replace("\\", "")))
    if any(match["code"] for match in matches):  # then -arch says what it is compiled from, and not what comes out
        matches = [match for match in matches if not match["arch"]]
    return _list(map(_nvcc_word, matches))


READERS = {
    "TORCH_CUDA_ARCH_LIST": read_torch,
    "CMAKE_CUDA_ARCHITECTURES": read_cmake,
    "CUDAARCHS": read_cmake,
    "CUDA_COMPUTE_CAP": read_compute_cap,
}


def _cmake_word(word: str) -> ListWord:
    number, _, kind = word.partition("-")
    if _is_later(word):
        return ListWord(text=word, later=True)
    archs = _numbered(number) if kind in ("", "real", "virtual") else ()
    cubins = () if kind == "virtual" else archs
    ptx = () if kind == "real" else tuple(map(_as_ptx, archs))
    return ListWord(text=word, archs=cubins + ptx)


def _torch_word(word: str, release: str | None) -> ListWord:
    if means := torch.named(word, release):
        return ListWord(text=word, archs=read_torch(means).archs)
    if _is_later(word):
        return ListWord(text=word, later=True)
    number, plus, rest = word.partition("+")
    arch = _parse(number) if _WITH_POINT.fullmatch(number) else None
    if arch is None or (plus and rest.lower() != "ptx"):
        return ListWord(text=word)
    return ListWord(text=word, archs=(arch, _as_ptx(arch)) if plus else (arch,))


def _nvcc_word(match: re.Match[str]) -> ListWord:
    text = " ".join(match[0].split())
    if match["gencode"]:
        code = _CODE.search(match["pair"])
        return ListWord(text=text, archs=_codes(code[1]) if code else ())
    if match["code"]:
        return ListWord(text=text, archs=_codes(match["codes"]))
    if match["arch"]:
        if _is_later(match["target"]):
            return ListWord(text=text, later=True)
        archs = _codes(match["target"])
        ptx = tuple(_as_ptx(arch) for arch in archs if arch.kind == "sm")
        return ListWord(text=text, archs=archs + ptx)
    return ListWord(text=text, archs=_codes(text))


def _codes(text: str) -> tuple[Arch, ...]:
    """`[sm_80,compute_80]`; nothing where one of them means nothing."""
    names = [name for name in text.strip("[]").split(",") if name]
    archs = [_parse(name) for name in names if "_" in name]
    found = tuple(arch for arch in archs if arch)
    return found if len(found) == len(names) else ()


def _words(text: str) -> list[str]:
    return [word for word in _SEPARATORS.split(text) if word]


def _is_later(word: str) -> bool:
    return word.lower() in _RESOLVED_LATER


def _numbered(word: str) -> tuple[Arch, ...]:
    """CMake takes `90a` and nothing else: neither `9.0` nor `sm_90`."""
    arch = _parse(word) if _NUMBER.fullmatch(word) else None
    return (arch,) if arch else ()


def _parse(text: str) -> Arch | None:
    try:
        return Arch.parse(text)
    except UnknownNameError:
        return None


def _as_ptx(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "compute")


def _list(words: Iterable[ListWord]) -> ArchList:
    read = tuple(words)
    return ArchList(
        archs=tuple(dict.fromkeys(arch for word in read for arch in word.archs)),
        unknown=tuple(word.text for word in read if not word.archs and not word.later),
        open=any(word.later for word in read),
        words=read,
    )
