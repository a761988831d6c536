"""What travels: what a worker is, a task and its inputs to it, its answer and files back. Plain values and files."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel.support import extensions, files
from cuwheel.version import __version__
from cuwheel_core.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Described(Struct, frozen=True, kw_only=True):
    """What people see of a worker. `apart`: tasks on its machine can build at the same path at the same time."""

    name: str = ""
    host: str = ""
    cuwheel: str = ""
    libc: str = ""
    machine: str = ""
    python: str = ""
    cores: int = 0
    memory: int = 0
    apart: bool = False


class WorkerFacts(Described, frozen=True, kw_only=True):
    """What a worker is. `code`: a hash of its cuwheel. `tools`: of the compilers that its system has.

    `tags`: what else it has, and how many.
    """

    code: str
    store: str
    tools: str
    tags: dict[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, ...]:
        """Whose results can be put together: the C library says where a wheel installs, and paths are in the code."""
        return (self.machine, self.libc, self.store, self.tools)


@cache
def own_code(package: str = "cuwheel") -> str:
    """A hash of this cuwheel, or of a package that has verbs: the same version may be two states of a checkout."""
    top = Path(str(import_module(package).__file__)).parent
    names = sorted(path for pattern in ("*.py", "*.toml") for path in top.rglob(pattern))
    return files.sha256_of("\n".join(f"{each.relative_to(top)} {files.sha256(each)}" for each in names).encode())[:16]


TOPIC = "cuwheel"  # under which workers say what they are, and what their tasks are at
CORES, MEMORY = "cores", "memory"
_WHOLE = 1_000_000  # parts of a worker: a task takes one, and one that is to be alone takes all


class Task(Struct, frozen=True, kw_only=True):
    """A function (`module:name`) and what it is called with: JSON, and files by their hash.

    `cores`, `memory`: what it takes of a worker, at most. `seconds`: how long it took before; None where nobody knows.
    `alike`: only workers of one kind may run it, since its results are put together with others. `alone`: it takes a
    whole worker, however large. `tag`: what else a worker must have, such as `gpu:9.0`. `fresh`: neither an answer of
    an earlier run nor another client's will do.
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
    fresh: bool = False

    def key(self, kind: tuple[str, ...]) -> str:
        """A hash over all that goes in: the same key gives the same answer. `kind`: of the workers."""
        code = (own_code(), own_code(self.package)) if self.package else (own_code(),)
        parts = [*code, *kind, self.function, self.parameters, *map(str, sorted(self.inputs.items()))]
        return files.sha256_of("\0".join(parts).encode())[:32]

    @property
    def package(self) -> str:
        """The package of another distribution with verbs that has the function; empty for a function of cuwheel."""
        package = self.function.partition(":")[0].partition(".")[0]
        return package if package != "cuwheel" and package in packages_with_verbs() else ""

    def takes(self, kind: tuple[str, ...]) -> dict[str, float]:
        """What the task takes of a worker, as resources that Dask counts: see `offers`."""
        own = {CORES: self.cores, MEMORY: self.memory, code_tag(): _WHOLE if self.alone else 1}
        others = package_tag(self.package) if self.package else ""
        tags = filter(None, (kind_tag(kind) if self.alike else "", self.tag, others))
        return {**own, **dict.fromkeys(tags, 1)}


def code_tag() -> str:
    return f"cuwheel:{__version__}:{own_code()}"


@cache
def packages_with_verbs() -> tuple[str, ...]:
    """Of other distributions that are installed."""
    return tuple(word.package for word in extensions.all_words().values())


def package_tag(package: str) -> str:
    """What a worker offers that has the same code of a distribution with verbs."""
    return f"code:{package}:{own_code(package)}"


def kind_tag(kind: tuple[str, ...]) -> str:
    return "kind:" + files.sha256_of("\0".join(kind).encode())[:12]


def offers(facts: WorkerFacts) -> dict[str, float]:
    """What a worker offers, as resources that Dask counts: see `Task.takes`."""
    whole = dict.fromkeys((code_tag(), kind_tag(facts.kind)), _WHOLE)
    return {CORES: facts.cores, MEMORY: facts.memory, **whole, **facts.tags}


class Answer(Struct, frozen=True, kw_only=True):
    """What a worker says of a task. `problem`: why there is no answer; `lacking`: another may have what it needs.

    `hashes`: of its files, `places`: where they are on the worker. `began`, `ended`: seconds, of the worker's clock.
    """

    text: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    hint: str = ""
    lacking: bool = False
    worker: str = ""
    began: float = 0.0
    ended: float = 0.0


class Done(Answer, frozen=True, kw_only=True):
    """What became of a task. `files`: on this machine, checked. `tries`: what happened on which worker before.

    `cached`: of an earlier run. `began`, `ended`: seconds since the engine started.
    """

    task: Task
    files: dict[str, Path] = field(default_factory=dict)
    tries: tuple[str, ...] = ()
    cached: bool = False


# Files travel in pieces, and count when the whole has its hash.

_PIECE = 64 << 20  # Dask copies larger ones once more


def read_pieces(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        return list(iter(lambda: file.read(_PIECE), b""))


def receive_file(sha256: str, content: Iterable[bytes], to: Path) -> Path:
    """Under the name `to`, where the whole has its hash."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(to) as file:
        for piece in content:
            file.write(piece)
        file.flush()
        if files.sha256(Path(file.name)) != sha256:
            raise MalformedError(to.name, "arrived with another hash than its sender said")
    return to
