"""What nvcc is told of architectures where a build's own list does not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.arch import Arch

_LIST = "__CUDA_ARCH_LIST__"


def gencode(archs: Iterable[Arch]) -> Iterator[str]:
    for arch in archs:
        yield from ("-gencode", f"arch=compute_{arch.number},code={arch}")


def arch_list(archs: Iterable[Arch]) -> tuple[str, str]:
    """The list as CUB and Thrust see it, whatever is compiled."""
    numbers = sorted({arch.capability.number for arch in archs})
    return f"-U{_LIST}", f"-D{_LIST}=" + r"\,".join(f"{number}0" for number in numbers)
