"""What travels: a task and its inputs to a worker, its answer and files back. All of it plain values, no code."""

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
    from collections.abc import Iterable

_COMPILERS = ("nvcc", "c++", "g++", "gcc", "clang++")


class Task(Struct, frozen=True, kw_only=True):
    """A function (`module:name`) and what it is called with: JSON, and files by their hash.

    `cores`, `memory`: what it takes of a worker, at most. `seconds`: how long it took before; None where nobody knows.
    `alike`: only workers of one kind may run it, since its results are put together with others. `alone`: it takes a
    whole worker, however large. `tag`: what else a worker must have, such as `gpu:9.0`. `kept`: its answer is kept here
    and used again. `fresh`: neither such an answer nor another client's will do. `label`: under which the time that it
    takes is remembered; empty: it is not.
    """

    id: str
    function: str
    parameters: str
    inputs: dict[str, str] = field(default_factory=dict)
    cores: int = 1
    memory: int = 0
    seconds: float | None = None
    alike: bool = False
    alone: bool = False
    tag: str = ""
    kept: bool = False
    fresh: bool = False
    label: str = ""

    def key(self, kind: tuple[str, ...]) -> str:
        """Of all that goes in: the same key gives the same answer. `kind`: of the workers."""
        parts = [own_code(), *kind, self.function, self.parameters, *map(str, sorted(self.inputs.items()))]
        return files.sha256_of("\0".join(parts).encode())[:32]

    def takes(self, kind: tuple[str, ...]) -> dict[str, float]:
        """Of a worker, as Dask counts it. What only has to be there is offered without end, and one of it taken."""
        found: dict[str, float] = {CORES: self.cores, MEMORY: self.memory, code_tag(): 1}
        if self.alike:
            found[kind_tag(kind)] = 1
        if self.alone:
            found[ALONE] = 1
        if self.tag:
            found[self.tag] = 1
        return found


CORES, MEMORY, ALONE = "cores", "memory", "alone"
_ENDLESS = 1e9


def code_tag() -> str:
    return f"cuwheel:{__version__}:{own_code()}"


def kind_tag(kind: tuple[str, ...]) -> str:
    return "kind:" + files.sha256_of("\0".join(kind).encode())[:12]


class Sent(Struct, frozen=True, kw_only=True):
    """A file on its way: what it is called, its hash and how large it is. `path`: on the worker."""

    name: str
    sha256: str
    size: int
    path: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """What a worker says of a task. `problem`: why there is no answer; `lacking`: another may have what it needs.

    `began`, `ended`: seconds, of the worker's clock.
    """

    text: str = ""
    files: tuple[Sent, ...] = ()
    problem: str = ""
    hint: str = ""
    lacking: bool = False
    worker: str = ""
    began: float = 0.0
    ended: float = 0.0


class Facts(Struct, frozen=True, kw_only=True):
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

    @property
    def offers(self) -> dict[str, float]:
        """As Dask counts it: see `Task.takes`."""
        endless = dict.fromkeys((code_tag(), kind_tag(self.kind)), _ENDLESS)
        return {CORES: self.cores, MEMORY: self.memory, ALONE: 1, **endless, **self.tags}


class Done(Struct, frozen=True, kw_only=True):
    """What became of a task. `files`: on this machine, checked. `tries`: what happened on which worker before."""

    task: Task
    text: str = ""
    files: dict[str, Path] = field(default_factory=dict)
    worker: str = ""
    began: float = 0.0  # seconds since the engine started
    ended: float = 0.0
    problem: str = ""
    hint: str = ""
    tries: tuple[str, ...] = ()
    cached: bool = False


@cache
def own_code() -> str:
    """A hash of this cuwheel: the same version may be two states of a checkout."""
    top = Path(__file__).parents[1]
    names = sorted(path for pattern in ("*.py", "*.toml") for path in top.rglob(pattern))
    return files.sha256_of("\n".join(f"{each.relative_to(top)} {files.sha256(each)}" for each in names).encode())[:16]


def own_facts(*, name: str, cores: int, memory: int, apart: bool, tags: Iterable[str] = ()) -> Facts:
    """Of this machine."""
    # By place and size, which packages of the same version have alike on every machine.
    found = [Path(path).resolve() for name in _COMPILERS if (path := shutil.which(name))]
    return Facts(
        name=name,
        host=platform.node(),
        cuwheel=__version__,
        code=own_code(),
        machine=platform.machine(),
        libc=_libc(),
        python=platform.python_version(),
        store=str(files.cache_folder()),
        tools=files.sha256_of("\n".join(f"{each} {each.stat().st_size}" for each in found).encode())[:12],
        cores=cores,
        memory=memory,
        apart=apart,
        tags=dict(Counter(f"gpu:{each}" for each in gpu.gpus_of_this_process().values()) + Counter(tags)),
    )


def _libc() -> str:
    """What is installed: the interpreter may be built against an older one."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or platform.system()
    except (AttributeError, OSError, ValueError):
        return platform.system()
