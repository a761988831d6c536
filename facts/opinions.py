"""Other people's tables as second opinions: CMake's tags, LLVM's targets, nixpkgs' and Spack's compilers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.facts import toolchain_parts
from cuwheel.support import process
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.tables import tables
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CMAKE, LLVM, NIXPKGS, SPACK = "CMake", "NVPTX.td", "nvcc.nix", "cuda.py"
_VALIDATE = "Modules/Internal/CMakeCUDAArchitecturesValidate.cmake"
_PATTERN = re.compile(r'ARCHITECTURES MATCHES "(\^[^"]*\$)"')
_SPELLED = {"plain": "80", "a": "90a", "f": "100f", "all": "all", "all-major": "all-major", "native": "native"}
_GIT_S = 60.0
_NIX = re.compile(
    r'"(\d+\.\d+)" = \{\s*clang = \{\s*maxMajorVersion = "(\d+)".*?gcc = \{\s*maxMajorVersion = "(\d+)"', re.DOTALL
)
_SPACK = re.compile(r'conflicts\("%(gcc|clang)@(\d+):", when="%cuda@:(\d+\.\d+)(\.\d+)?(?: target=x86_64:)?"')


def check_cmake(folder: Path) -> Iterator[Difference]:
    """A clone of CMake: the pattern that each release holds a list against."""

    def git(*words: str) -> str:
        return process.run(["git", "-C", folder / CMAKE, *words], timeout=_GIT_S, check=False).stdout

    for tag in git("tag", "--list", "v[34].*").split():
        match = _PATTERN.search(git("show", f"{tag}:{_VALIDATE}")) if "-rc" not in tag else None
        for name, text in _SPELLED.items() if match else ():
            theirs = re.fullmatch(match[1], text) is not None if match else False
            if toolchain_parts.cmake_takes(tag[1:], name) != theirs:
                said = "taken" if theirs else "refused"
                yield Difference("cmake.toml", f"CMake {tag[1:]}: {text}", "refused" if theirs else "taken", said)


def check_llvm(folder: Path) -> Iterator[Difference]:
    """LLVM knows every PTX ISA and every architecture that a toolkit has, and the same families."""
    text = (folder / LLVM).read_text(encoding="utf-8")
    numbers = _list(text, "SMVersions")
    isas = _list(text, "PTXVersions")
    for row in toolkits.all_toolkits():
        if row.ptx_isa.replace(".", "") not in isas:
            yield Difference("toolkits.toml", f"{row.version}: PTX ISA", row.ptx_isa, "not known to LLVM")
    for arch in tables().architectures.architecture:
        number = arch.capability.replace(".", "")
        if number not in numbers and not arch.renamed_to:
            yield Difference("architectures.toml", arch.capability, "there", "not known to LLVM")
    families = re.findall(r"\[((?:\d+, )*\d+)\]", text[text.index("SMFamilies") :].split(";", 1)[0])
    for members in (each.split(", ") for each in families):
        for place, number in enumerate(members):
            theirs = [f"{each[:-1]}.{each[-1]}" for each in members[place:]]
            row_ = next(
                each for each in tables().architectures.architecture if each.capability.replace(".", "") == number
            )
            if [*row_.family] != theirs:
                yield Difference("architectures.toml", f"{row_.capability}: family", str(row_.family), str(theirs))


def _list(text: str, name: str) -> list[str]:
    match = re.search(rf"defvar {name} = \[([^\]]*)\]", text)
    return re.findall(r"\d+", match[1]) if match else []


def check_nixpkgs(folder: Path) -> Iterator[Difference]:
    for version, clang, gcc in _NIX.findall((folder / NIXPKGS).read_text(encoding="utf-8")):
        yield from _compilers("nixpkgs", version, {"clang_max": int(clang), "gcc_max": int(gcc)})


def check_spack(folder: Path) -> Iterator[Difference]:
    """`%gcc@13:` conflicts with `cuda@:12.3`: releases up to that take 12 at most."""
    rows = _SPACK.findall((folder / SPACK).read_text(encoding="utf-8"))
    for row in toolkits.all_toolkits():
        found: dict[str, int] = {}
        for compiler, first, last, patch in rows:
            if versions.at_least(last, row.version) and not (patch and last == row.version):
                name = f"{compiler}_max"
                found[name] = min(found.get(name, int(first)), int(first) - 1)
        yield from _compilers("Spack", row.version, found)


def _compilers(whose: str, version: str, found: dict[str, int]) -> Iterator[Difference]:
    ours = toolkits.find_toolkit(version).host_compilers
    for name, theirs in found.items():
        if getattr(ours, name) is not None and getattr(ours, name) != theirs:
            yield Difference("toolkits.toml", f"{version}: {name}", str(getattr(ours, name)), f"{theirs} ({whose})")
