"""Machines as `--on` and `--for` name them: what is known of each, and None for what is not.

What is not known is never assumed: it becomes a condition of the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Jit: TypeAlias = Literal["allowed", "disabled", "forced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One kind of machine, `count` of them.

    `libraries`: the CUDA sonames that its environment provides. `python`: the interpreter's version.
    `torch_cxx11_abi`: how its torch was compiled.
    """

    name: str
    capability: str | None
    gpu: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    os: Literal["linux", "windows"] | None = None
    cpu: str | None = None
    l4t: str | None = None
    glibc: str | None = None
    glibcxx: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_cuda: str | None = None
    torch_cxx11_abi: bool | None = None
    jit: Jit = "allowed"
    libraries: tuple[str, ...] | None = None
    count: int = 1
