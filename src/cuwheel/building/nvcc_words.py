"""What nvcc is told of architectures where a build's own list does not count."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import CuwheelError
from cuwheel.support import process

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.arch import Arch

_LIST = "__CUDA_ARCH_LIST__"
_SEED = "-frandom-seed"
_ASK_S = 60.0
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


def gencode(archs: Iterable[Arch]) -> Iterator[str]:
    for arch in archs:
        yield from ("-gencode", f"arch=compute_{arch.number},code={arch}")


def arch_list(archs: Iterable[Arch]) -> tuple[str, str]:
    """The list as CUB and Thrust see it, whatever is compiled."""
    numbers = sorted({arch.capability.number for arch in archs})
    return f"-U{_LIST}", f"-D{_LIST}=" + r"\,".join(f"{number}0" for number in numbers)


def as_if_at(folder: Path, other: str | None) -> tuple[str, ...]:
    """Paths that `assert` and `__FILE__` put into code, as they are where the source is in another folder."""
    # nvcc splits words at commas and runs a shell, and `other` was read from a wheel.
    if not other or os.name == "nt" or not _PLAIN.fullmatch(f"{folder}{other}"):
        return ()
    return "-Xcompiler", f"-fmacro-prefix-map={folder}={other}"


@cache
def seed(root: str) -> tuple[str, ...]:
    """Names that do not depend on the process number, where the nvcc of a toolkit can do that.

    Relocatable code has such names where a file defines nothing that others see: two calls would not fit together.
    """
    try:
        known = process.run([Path(root, "bin", "nvcc"), "--help"], timeout=_ASK_S).stdout
    except CuwheelError:
        return ()
    return (f"{_SEED}=cuwheel",) if _SEED in known else ()
