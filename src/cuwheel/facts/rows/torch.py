"""What TORCH_CUDA_ARCH_LIST takes."""

from __future__ import annotations

from dataclasses import dataclass

from cuwheel.facts.rows.common import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchChange:
    """The architectures that a release of PyTorch took up, and those it no longer takes."""

    since: str
    adds: tuple[str, ...]
    source: tuple[str, ...]
    drops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchName:
    """A name that TORCH_CUDA_ARCH_LIST takes, what it stands for, and in which releases."""

    name: str
    means: str
    source: tuple[str, ...]
    since: str | None = None
    below: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """torch.toml: what TORCH_CUDA_ARCH_LIST takes."""

    sources: dict[str, Source]
    checked: str
    change: tuple[TorchChange, ...]
    name: tuple[TorchName, ...]
