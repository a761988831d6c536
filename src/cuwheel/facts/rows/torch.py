"""What TORCH_CUDA_ARCH_LIST takes."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchName:
    """A name that TORCH_CUDA_ARCH_LIST takes, and what it stands for."""

    name: str
    means: str
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """torch.toml: what TORCH_CUDA_ARCH_LIST takes."""

    sources: dict[str, Source]
    architectures: tuple[str, ...]
    name: tuple[TorchName, ...]
