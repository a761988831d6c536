"""What has to be built so that a finished wheel gets an architecture more, with a witness to prove that it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import UsageError
from cuwheel.facts import versions
from cuwheel.facts.arch import Arch
from cuwheel.inspection.survey import survey

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.inspection.libraries import Library


class Missing(Struct, frozen=True, kw_only=True):
    """`listed`: what the base was built for. `compiled`: what to build: the new ones, and the witness last."""

    cuda: str
    listed: tuple[Arch, ...]
    compiled: tuple[Arch, ...]


def of(base: Path, add: tuple[str, ...], cuda: str | None) -> Missing:
    """`cuda`: of the libraries that are to grow; None for the newest."""
    libraries = [each for each in survey(str(base), detail="rows").libraries if each.toolkits and each.device_code]
    known = sorted({each.toolkits[-1] for each in libraries}, key=versions.key)
    if not known:
        raise UsageError(f"{base.name} has no machine code, so nothing tells what it was built with")
    chosen = cuda or known[-1]
    growing = [each for each in libraries if each.toolkits[-1] == versions.minor(chosen)]
    if not growing:
        raise UsageError(f"{base.name} has no library for CUDA {chosen}", hint=f"it has: {', '.join(known)}")
    common = set.intersection(*(_linked(each) for each in growing))
    wanted = tuple(dict.fromkeys(map(Arch.parse, add)))
    if there := [each for each in wanted if each in common]:
        raise UsageError(f"{base.name} already has {', '.join(there)}")
    if not common:
        raise UsageError(f"no architecture is in all libraries of {base.name} for CUDA {chosen}: none can be a witness")
    listed = tuple(sorted(common, key=lambda each: (each.capability, each.suffix)))
    return Missing(cuda=chosen, listed=listed, compiled=(*wanted, _smallest(growing, listed)))


def _linked(library: Library) -> set[Arch]:
    return {row.arch for row in library.device_code if row.kind == "cubin" and row.linked}


def _smallest(libraries: list[Library], archs: tuple[Arch, ...]) -> Arch:
    """The witness is the one with the least code."""
    sizes = {
        arch: sum(row.real_bytes for each in libraries for row in each.device_code if row.arch == arch)
        for arch in archs
    }
    return min(archs, key=lambda each: sizes[each])
