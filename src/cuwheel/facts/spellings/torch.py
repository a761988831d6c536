"""PyTorch: `8.0;9.0+PTX`, in TORCH_CUDA_ARCH_LIST."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cuwheel.facts import torch
from cuwheel.facts.spellings.row import (
    NOTHING,
    ArchList,
    ListWord,
    Releases,
    Row,
    Spelling,
    as_machine_code,
    as_ptx,
    is_resolved_by_build,
    listed,
    words,
)
from cuwheel.facts.tables import tables
from cuwheel_core.facts import gpus
from cuwheel_core.facts.arch import Arch, known_arch

_WITH_POINT = re.compile(r"\d{1,2}\.\d[af]?", re.ASCII | re.IGNORECASE)


def write(variable: str, archs: Sequence[Arch], ptx: Sequence[Arch], releases: Releases) -> Spelling:
    """`+PTX` adds PTX to the machine code of the same entry; neither stands alone."""
    release = releases.torch
    if not (archs or ptx):
        return Spelling(variable=variable, value=None, reason=NOTHING)
    alone = [arch for arch in ptx if as_machine_code(arch) not in archs]
    refused = [arch for arch in archs if not torch.takes(arch, release)]
    asked = sorted({*archs, *map(as_machine_code, alone)})
    spelt = [torch.spelled(arch) + ("+PTX" if as_ptx(arch) in ptx else "") for arch in asked]
    if not alone and not refused:
        return Spelling(variable=variable, value=";".join(spelt), needs=_needed(asked, release))
    reasons = [_refusal(refused, release)] if refused else []
    reasons += (
        [f"+PTX also adds machine code: {', '.join(str(as_machine_code(arch)) for arch in alone)}"] if alone else []
    )
    near = [arch if torch.takes(arch, release) else _nearest(arch, release) for arch in asked]
    nearest = {arch: as_ptx(old) in ptx for old, arch in zip(asked, near, strict=True) if arch}
    return Spelling(
        variable=variable,
        value=None,
        reason="; ".join(reasons),
        nearest=";".join(torch.spelled(arch) + ("+PTX" if with_ptx else "") for arch, with_ptx in nearest.items())
        or None,
    )


def _needed(archs: Sequence[Arch], release: str | None) -> str:
    """The oldest torch that takes all of these, where it is not known which one has to and not every one does."""
    if release is not None or all(torch.takes(arch, tables().torch.change[0].since) for arch in archs):
        return ""
    first = next(row.since for row in tables().torch.change if all(torch.takes(arch, row.since) for arch in archs))
    return f"torch {first} or later"


def _refusal(refused: Sequence[Arch], release: str | None) -> str:
    names = ", ".join(map(torch.spelled, refused))
    needed = dict.fromkeys(torch.taken_by(arch) for arch in refused)
    wanted = "".join(f": it needs torch {each}" for each in needed if each and len(needed) == 1)
    return f"torch {release} does not take {names}{wanted}" if release else f"torch does not take {names}{wanted}"


def _nearest(arch: Arch, release: str | None) -> Arch | None:
    """The newest plain architecture that torch takes and whose code runs there."""
    older = [
        Arch(each)
        for each in gpus.current_capabilities()
        if each.major == arch.capability.major and each <= arch.capability and torch.takes(Arch(each), release)
    ]
    return older[-1] if older else None


def read(text: str, release: str | None = None) -> ArchList:
    """`8.0 8.6;9.0+PTX`, and names of generations: TORCH_CUDA_ARCH_LIST."""
    return listed(_word(word, release) for word in words(text))


def _word(word: str, release: str | None) -> ListWord:
    if means := torch.list_named(word, release):
        return ListWord(text=word, archs=read(means).archs)
    if is_resolved_by_build(word):
        return ListWord(text=word, resolved_by_build=True)
    number, plus, rest = word.partition("+")
    arch = known_arch(number) if _WITH_POINT.fullmatch(number) else None
    if arch is None or (plus and rest.lower() != "ptx"):
        return ListWord(text=word)
    return ListWord(text=word, archs=(arch, as_ptx(arch)) if plus else (arch,))


ROW = Row(
    name="torch",
    owner="PyTorch",
    variable="TORCH_CUDA_ARCH_LIST",
    write=write,
    read=read,
    passed=("TORCH_CUDA_ARCH_LIST", "{}"),
    backends=("torch",),
    guessed=re.compile(r"\d\.\d|\+PTX", re.IGNORECASE | re.ASCII),
)
