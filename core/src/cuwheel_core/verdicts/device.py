"""A GPU and the machine that it is in, as far as device code goes by them; None for what is not known.

What is not known is never assumed: it becomes a condition of the answer.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from cuwheel_core.facts.arch import Capability

Jit: TypeAlias = Literal["allowed", "disabled", "forced"]
System: TypeAlias = Literal["linux", "windows"]


class Device(Struct, frozen=True, kw_only=True):
    """`capability`: None where there is no GPU, or nobody knows which. `gpu_seen`: the driver itself shows the GPU.

    `driver_cuda`: the CUDA that a driver came for, where that is known rather than its number. `cpu`: as wheels for
    Linux name it. `l4t`: the release on a Jetson; where it is not known, `tegra` says that it is one. `jit`: what the
    environment lets the driver compile.
    """

    capability: Capability | None
    driver: str | None = None
    driver_cuda: str | None = None
    os: System | None = None
    cpu: str | None = None
    gpu: str | None = None
    product: str | None = None
    tegra: bool = False
    l4t: str | None = None
    jit: Jit = "allowed"
    gpu_seen: bool = False

    @property
    def runs_l4t(self) -> bool:
        return self.tegra or self.l4t is not None
