"""What this machine is as a worker of a cluster: its system, its compilers, what it has, and its cuwheel."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel.machine import gpu
from cuwheel.support import files
from cuwheel.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPILERS = ("nvcc", "c++", "g++", "gcc", "clang++")


class WorkerFacts(Struct, frozen=True, kw_only=True):
    """What a worker is. `code`: a hash of its cuwheel. `tools`: of the compilers that its system has.

    `apart`: tasks on one machine can build at the same path at the same time. `tags`: what else it has, and how many.
    """

    name: str
    host: str
    cuwheel: str
    code: str
    machine: str
    libc: str
    python: str
    store: str
    tools: str
    cores: int
    memory: int
    apart: bool = True
    tags: dict[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, ...]:
        """Whose results can be put together: the C library says where a wheel installs, and paths are in the code."""
        return (self.machine, self.libc, self.store, self.tools)


@cache
def own_code() -> str:
    """A hash of this cuwheel: the same version may be two states of a checkout."""
    top = Path(__file__).parents[1]
    names = sorted(path for pattern in ("*.py", "*.toml") for path in top.rglob(pattern))
    return files.sha256_of("\n".join(f"{each.relative_to(top)} {files.sha256(each)}" for each in names).encode())[:16]


def own_facts(*, name: str, cores: int, memory: int, apart: bool, tags: Mapping[str, int]) -> WorkerFacts:
    """Of this machine. `tags`: beside the GPUs that are seen here, or in place of how many."""
    # By place and size, which packages of the same version have alike on every machine.
    found = [Path(path).resolve() for name in _COMPILERS if (path := shutil.which(name))]
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")  # what is installed: the interpreter may be built against an older one
    except (AttributeError, OSError, ValueError):
        libc = None
    return WorkerFacts(
        name=name,
        host=platform.node(),
        cuwheel=__version__,
        code=own_code(),
        machine=platform.machine(),
        libc=libc or platform.system(),
        python=platform.python_version(),
        store=str(files.cache_folder()),
        tools=files.sha256_of("\n".join(f"{each} {each.stat().st_size}" for each in found).encode())[:12],
        cores=cores,
        memory=memory,
        apart=apart,
        tags={**Counter(f"gpu:{each}" for each in gpu.gpus_of_this_process().values()), **tags},
    )
