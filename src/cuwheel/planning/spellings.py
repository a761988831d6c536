"""One architecture list in the spelling of every build system, or why not and what comes nearest."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from cuwheel.facts import architectures, cmake, torch, versions
from cuwheel.facts.arch import Arch
from cuwheel.facts.tables import tables
from cuwheel.planning.values import Flags, Spelling, Spellings

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = "there is nothing to build"


def spell(
    archs: Sequence[Arch], ptx: Sequence[Arch], *, cmake: str | None = None, torch: str | None = None
) -> Spellings:
    """`archs` is machine code, `ptx` is PTX; `cmake`, `torch`: the versions that have to take it, where known."""
    return Spellings(
        cmake=_cmake("CMAKE_CUDA_ARCHITECTURES", archs, ptx, cmake),
        cudaarchs=_cmake("CUDAARCHS", archs, ptx, cmake),
        torch=_torch(archs, ptx, torch),
        nvcc=_nvcc(archs, ptx),
        bitsandbytes=_bitsandbytes(archs, ptx, cmake),
        cargo=_cargo(archs, ptx),
    )


def _cmake(variable: str, archs: Sequence[Arch], ptx: Sequence[Arch], version: str | None) -> Spelling:
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=_NOTHING)
    oldest = cmake.find_spelling("plain").since
    if version and not versions.at_least(version, oldest):
        return Spelling(variable=variable, value=None, reason=f"CMake {version} does not have it yet: {oldest} does")
    words = [*(f"{arch.number}-real" for arch in archs), *(f"{arch.number}-virtual" for arch in ptx)]
    value = ";".join(words)
    refused = _refused([*archs, *ptx], version)
    if not refused:
        return Spelling(variable=variable, value=value, needs=_cmake_needed([*archs, *ptx]))
    numbers = {arch.number for arch in refused}
    nearest = list(dict.fromkeys(_plain(word) if word.partition("-")[0] in numbers else word for word in words))
    return Spelling(
        variable=variable,
        value=None,
        reason=f"CMake {version} does not take {', '.join(sorted(numbers))}: it needs {_cmake_needed(refused)}",
        nearest=";".join(nearest),
    )


def _refused(archs: Sequence[Arch], version: str | None) -> list[Arch]:
    return [arch for arch in archs if version and not cmake.takes(version, arch.suffix or "plain")]


def _cmake_needed(archs: Sequence[Arch]) -> str:
    """The oldest CMake that takes all of these."""
    spelled = {arch.suffix or "plain" for arch in archs}
    row = cmake.find_spelling("f" if "f" in spelled else "a" if "a" in spelled else "plain")
    earlier = "".join(f" (in {versions.minor(each)} from {each} on)" for each in row.backports)
    return f"CMake {row.since} or later{earlier}"


def _plain(word: str) -> str:
    number, _, kind = word.partition("-")
    return f"{number.rstrip('af')}-{kind}"


def _torch(archs: Sequence[Arch], ptx: Sequence[Arch], release: str | None) -> Spelling:
    """`+PTX` adds PTX to the machine code of the same entry; neither stands alone."""
    variable = "TORCH_CUDA_ARCH_LIST"
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=_NOTHING)
    alone = [arch for arch in ptx if _sm(arch) not in archs]
    refused = [arch for arch in archs if not torch.takes(arch, release)]
    said = sorted({*archs, *map(_sm, alone)})
    words = [torch.spelled(arch) + ("+PTX" if _compute(arch) in ptx else "") for arch in said]
    if not alone and not refused:
        return Spelling(variable=variable, value=";".join(words), needs=_torch_needed(said, release))
    told = [_torch_refuses(refused, release)] if refused else []
    told += [f"+PTX also adds machine code: {', '.join(str(_sm(arch)) for arch in alone)}"] if alone else []
    near = [arch if torch.takes(arch, release) else _torch_nearest(arch, release) for arch in said]
    nearest = {arch: _compute(old) in ptx for old, arch in zip(said, near, strict=True) if arch}
    return Spelling(
        variable=variable,
        value=None,
        reason="; ".join(told),
        nearest=";".join(torch.spelled(arch) + ("+PTX" if with_ptx else "") for arch, with_ptx in nearest.items())
        or None,
    )


def _torch_needed(archs: Sequence[Arch], release: str | None) -> str:
    """The oldest torch that takes all of these, where it is not known which one has to and not every one does."""
    if release is not None or all(torch.takes(arch, tables().torch.change[0].since) for arch in archs):
        return ""
    first = next(row.since for row in tables().torch.change if all(torch.takes(arch, row.since) for arch in archs))
    return f"torch {first} or later"


def _torch_refuses(refused: Sequence[Arch], release: str | None) -> str:
    names = ", ".join(map(torch.spelled, refused))
    needed = dict.fromkeys(torch.taken_by(arch) for arch in refused)
    wanted = "".join(f": it needs torch {each}" for each in needed if each and len(needed) == 1)
    return f"torch {release} does not take {names}{wanted}" if release else f"torch does not take {names}{wanted}"


def _torch_nearest(arch: Arch, release: str | None) -> Arch | None:
    """The newest plain architecture that torch takes and whose code runs there."""
    older = [
        Arch(each)
        for each in architectures.current_capabilities()
        if each.major == arch.capability.major and each <= arch.capability and torch.takes(Arch(each), release)
    ]
    return older[-1] if older else None


def _nvcc(archs: Sequence[Arch], ptx: Sequence[Arch]) -> Spelling:
    if not (archs or ptx):
        return Spelling(variable="nvcc", value=None, reason=_NOTHING)
    words = [f"-gencode arch=compute_{arch.number},code={arch}" for arch in (*archs, *ptx)]
    return Spelling(variable="nvcc", value=" ".join(words))


def _bitsandbytes(archs: Sequence[Arch], ptx: Sequence[Arch], version: str | None) -> Spelling:
    """Its CMakeLists makes machine code of all, and PTX of the highest, whether asked or not."""
    variable = "COMPUTE_CAPABILITY"
    if not archs:
        reason = _NOTHING if not ptx else "it cannot make PTX alone"
        nearest = ";".join(arch.number for arch in ptx) or None
        return Spelling(variable=variable, value=None, reason=reason, nearest=nearest)
    value = ";".join(arch.number for arch in archs)
    added = _compute(archs[-1])
    told = []
    if refused := _refused(archs, version):
        told.append(f"CMake {version} does not take {', '.join(arch.number for arch in refused)}")
    if added not in ptx:
        told.append(f"it adds PTX for its highest ({added}), asked for or not")
    if missing := [str(arch) for arch in ptx if arch != added]:
        told.append(f"it cannot make {', '.join(missing)}")
    if not told:
        return Spelling(variable=variable, value=value, needs=_cmake_needed(archs))
    plain = list(dict.fromkeys(_plain(arch.number).rstrip("-") if arch in refused else arch.number for arch in archs))
    return Spelling(variable=variable, value=None, reason="; ".join(told), nearest=";".join(plain))


def _cargo(archs: Sequence[Arch], ptx: Sequence[Arch]) -> Spelling:
    """One whole number. Whether a build script makes machine code or PTX of it is its own choice."""
    variable = "CUDA_COMPUTE_CAP"
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=_NOTHING)
    said = sorted({*archs, *map(_sm, ptx)})
    lowest = str(said[0].capability.number)
    told = []
    if len(said) > 1:
        told.append("it holds one value: build once for each, or for the oldest alone")
    if any(arch.suffix for arch in said):
        told.append("it is read as a number, without suffix")
    if told:
        return Spelling(variable=variable, value=None, reason="; ".join(told), nearest=lowest)
    return Spelling(variable=variable, value=lowest)


def _sm(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix)


def _compute(arch: Arch) -> Arch:
    return Arch(arch.capability, arch.suffix, "compute")


def flags(said: Spellings) -> Flags:
    return Flags(**{field.name: getattr(said, field.name).value for field in fields(said)})
