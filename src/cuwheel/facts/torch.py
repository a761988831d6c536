"""What PyTorch's build helpers take as TORCH_CUDA_ARCH_LIST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from cuwheel.facts.arch import Arch


def takes(arch: Arch) -> bool:
    """Whether an architecture is in its list; it refuses all others."""
    return spelled(arch) in tables().torch.architectures


def spelled(arch: Arch) -> str:
    """`sm_90a` as it writes it: `9.0a`."""
    return f"{arch.capability}{arch.suffix}"


def named(name: str) -> str | None:
    """`Ampere` as the list that it stands for; None for a name that it does not know."""
    return next((row.means for row in tables().torch.name if row.name.lower() == name.lower()), None)
