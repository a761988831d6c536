"""toolkits.toml against ptxas and host_config.h of the first and last patch release of each minor on the index."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.support import process
from cuwheel_core.facts import toolkits, versions
from facts import index
from facts.difference import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from facts.index import Wheel

_PACKAGES = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc", "nvidia-cuda-crt")
_TRY_S = 60.0
_GCC = re.compile(r"#if __GNUC__ > (\d+)")
# The last of them is the generic one: before it may be another, for a system of its own (HORIZON).
_CLANG = re.compile(r"#if \(__clang_major__ >= (\d+)\)")
_MSC = re.compile(r"#if _MSC_VER < (\d+) \|\| _MSC_VER >= (\d+)")
_ARCH = re.compile(r"\bsm_(\d+[af]?)\b")


class _Files(NamedTuple):
    wheel: Wheel
    header: bytes | None
    ptxas: bytes | None


def check() -> Iterator[Difference]:
    known = {row.version for row in toolkits.all_toolkits()}
    wheels = [each for each in _ends() if versions.minor(str(each.version)) in known]
    for files in index.at_once(_read, wheels, "compilers"):
        minor = versions.minor(str(files.wheel.version))
        if files.header:
            yield from _compilers(minor, files.wheel, files.header.decode(errors="replace"))
        if files.ptxas:
            yield from _assembler(minor, files.wheel, files.ptxas)
    yield from _last_releases()


def _ends() -> Iterator[Wheel]:
    for name in _PACKAGES:
        linux = [each for each in index.wheels(name) if not each.windows and each.cpu == "x86_64"]
        for minor in dict.fromkeys(versions.minor(str(each.version)) for each in linux):
            same = [each for each in linux if versions.minor(str(each.version)) == minor]
            yield from dict.fromkeys((same[0], same[-1]))


def _read(wheel: Wheel) -> _Files:
    return _Files(wheel, index.member(wheel, "crt/host_config.h"), index.member(wheel, "bin/ptxas"))


def _compilers(minor: str, wheel: Wheel, header: str) -> Iterator[Difference]:
    ours = toolkits.find_toolkit(minor).host_compilers
    gcc, clang, msc = _GCC.search(header), _CLANG.findall(header), _MSC.search(header)
    found = {
        "gcc_max": int(gcc[1]) if gcc else None,
        "clang_max": int(clang[-1]) - 1 if clang else None,
        "msc_ver_min": int(msc[1]) if msc else None,
        "msc_ver_max": int(msc[2]) - 1 if msc else None,
    }
    for name, theirs in found.items():
        if theirs is not None and theirs != getattr(ours, name):
            yield Difference("toolkits.toml", f"{wheel}: {name}", str(getattr(ours, name)), str(theirs))


def _assembler(minor: str, wheel: Wheel, ptxas: bytes) -> Iterator[Difference]:
    row = toolkits.find_toolkit(minor)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "ptxas")
        program.write_bytes(ptxas)
        program.chmod(0o700)
        shown = process.run([program, "--help"], timeout=_TRY_S).stdout
        theirs = dict.fromkeys(_ARCH.findall(shown[shown.index("--gpu-name") :].split("\n--", 1)[0]))
        if {*theirs} != {*row.architectures}:
            yield Difference("toolkits.toml", f"{wheel}: ptxas", " ".join(row.architectures), " ".join(theirs))
        arch = row.architectures[-1].rstrip("af")
        for isa, taken in ((row.ptx_isa, True), (_next(row.ptx_isa), False)):
            source = Path(folder, "empty.ptx")
            source.write_text(f".version {isa}\n.target sm_{arch}\n.address_size 64\n")
            done = process.run(
                [program, "-arch", f"sm_{arch}", source, "-o", f"{folder}/out"], timeout=_TRY_S, check=False
            )
            if (done.status == 0) != taken:
                yield Difference(
                    "toolkits.toml", f"{wheel}: PTX ISA {isa}", *(("taken", "refused")[:: 1 if taken else -1])
                )


def _next(isa: str) -> str:
    """The ISA after it, by the table or by counting on."""
    later = [row.ptx_isa for row in toolkits.all_toolkits() if versions.key(row.ptx_isa) > versions.key(isa)]
    major, minor = isa.split(".")
    return later[0] if later else f"{major}.{int(minor) + 1}"


def _last_releases() -> Iterator[Difference]:
    package = tables().toolchains.index.package
    found: dict[str, str] = {}
    for wheel in index.wheels(package):
        release = ".".join(str(wheel.version).split(".")[:3])
        found[versions.minor(release)] = release
    for minor, release in found.items():
        if toolchain_parts.release_of(minor) != release:
            yield Difference("toolchains.toml", f"the last {minor}", str(toolchain_parts.release_of(minor)), release)
