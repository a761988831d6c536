"""What TORCH_CUDA_ARCH_LIST takes."""

from __future__ import annotations

from msgspec import Struct

from cuwheel.facts.rows.common import Source


class TorchChange(Struct, frozen=True, kw_only=True):
    """The architectures that a release of PyTorch took up, and those it no longer takes."""

    since: str
    adds: tuple[str, ...]
    source: tuple[str, ...]
    drops: tuple[str, ...] = ()


class TorchName(Struct, frozen=True, kw_only=True):
    """A name that TORCH_CUDA_ARCH_LIST takes, what it stands for, and in which releases."""

    name: str
    means: str
    source: tuple[str, ...]
    since: str | None = None
    below: str | None = None


class Torch(Struct, frozen=True, kw_only=True):
    """torch.toml: what TORCH_CUDA_ARCH_LIST takes."""

    sources: dict[str, Source]
    checked: str
    change: tuple[TorchChange, ...]
    name: tuple[TorchName, ...]
