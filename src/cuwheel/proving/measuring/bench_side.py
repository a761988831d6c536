"""One side of a comparison: in which environment and with which settings, and the workers that run it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from cuwheel.errors import ToolError, UsageError
from cuwheel.network import venvs
from cuwheel.proving.measuring import measured_environments
from cuwheel.proving.measuring.measured_environments import Environment
from cuwheel.proving.measuring.programs import bench_worker
from cuwheel.support import codec, process
from cuwheel.tracing import attribution, events, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cuwheel.proving.request import BenchRequest

_SOON_S = 0.05  # until all workers have read that they are to begin


class Side(Struct, frozen=True, kw_only=True):
    """`label`: its settings, as they were given. `variables`: over the caller's."""

    label: str
    environment: Environment
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return self.environment.applied(os.environ) | self.variables


class Block(Struct, frozen=True, kw_only=True):
    """What workers answer to a request: times in seconds, `began` and `ended` of a clock that all share."""

    began: float
    ended: float
    calls: int
    errors: int
    error: str
    latencies: tuple[float, ...]


def of(settings: Sequence[str], env: Path | None, label: str, place: Path) -> Side:
    """`place`: where environments for wheels are made."""
    variables: dict[str, str] = {}
    install: list[str] = []
    for each in settings:
        name, equals, value = each.partition("=")
        path = Path(each)
        if path.is_dir():
            if not venvs.interpreter(path).exists():
                raise UsageError(
                    f"{each} is not a Python environment: it has no bin/python", hint="python -m venv FOLDER"
                )
            env = path
        elif path.is_file() and path.suffix == ".whl":
            install.append(str(path.absolute()))
        elif "==" in each:
            install.append(each)
        elif equals and name.isidentifier():
            variables[name] = value
        else:
            raise UsageError(
                f"{each[:100]!r} is neither a variable, an environment, a wheel nor a version",
                hint="NAME=VALUE, a folder with bin/python, a .whl file, or name==version",
            )
    base = str(env.absolute()) if env else None
    made = measured_environments.prepared(base, install, Path.cwd(), place)
    return Side(label=", ".join(map(_short, settings)) or label, environment=made, variables=variables)


def _short(setting: str) -> str:
    return Path(setting).name if "=" not in setting else setting


class Workers:
    """Those of one side: as many processes as the most at once, or one with threads."""

    def __init__(self, request: BenchRequest, side: Side, stack: contextlib.ExitStack) -> None:
        self._request, self._side, self._stack = request, side, stack
        self._conversations: list[process.Conversation] = []
        self.import_seconds = 0.0
        self._grow(1)

    def _grow(self, count: int) -> None:
        while len(self._conversations) < count:
            made = self._stack.enter_context(_worker(self._request, self._side, self._side.environ))
            self.import_seconds = max(self.import_seconds, _ready(made, self._request))
            self._conversations.append(made)

    def run(self, at_once: int, seconds: float, calls: int | None) -> Block:
        """All begin at the same moment."""
        apart = self._request.by == "processes"
        self._grow(at_once if apart else 1)
        used = self._conversations[: at_once if apart else 1]
        at = time.monotonic() + _SOON_S
        for number, each in enumerate(used):
            share = None if calls is None else (calls + len(used) - 1 - number) // len(used)
            asked = {"at": at, "threads": 1 if apart else at_once, "calls": share, "seconds": seconds}
            each.send(codec.encode(asked))
        return _together([_block(each, self._request) for each in used])


@contextlib.contextmanager
def _worker(request: BenchRequest, side: Side, environ: dict[str, str]) -> Iterator[process.Conversation]:
    if request.function:
        file, name = request.function
        words = [side.environment.python, bench_worker.__file__, "function", str(file.absolute()), name]
    else:
        words = [side.environment.python, bench_worker.__file__, "command", *request.command]
    with process.conversing(words, env=environ) as made:
        yield made


def _ready(worker: process.Conversation, request: BenchRequest) -> float:
    answer: Any = _decoded(worker, request, dict[str, float])
    return float(answer.get("ready", 0.0))


def _block(worker: process.Conversation, request: BenchRequest) -> Block:
    made: Block = _decoded(worker, request, Block)
    return made


def _decoded(worker: process.Conversation, request: BenchRequest, type_: Any) -> Any:  # noqa: ANN401 - as asked
    line = worker.receive(request.timeout)
    try:
        return codec.decode(line, type_)
    except msgspec.DecodeError:
        raise ToolError(
            worker.command, "ended before it answered", worker.errors(), hint="run the function by itself first"
        ) from None


def _together(blocks: Sequence[Block]) -> Block:
    return Block(
        began=min(each.began for each in blocks),
        ended=max(each.ended for each in blocks),
        calls=sum(each.calls for each in blocks),
        errors=sum(each.errors for each in blocks),
        error=next((each.error for each in blocks if each.error), ""),
        latencies=tuple(value for each in blocks for value in each.latencies),
    )


class FirstCall(Struct, frozen=True, kw_only=True):
    """Of a new process with an empty JIT cache. `jit_ms`: that the driver compiled, by `trace`; None if not traced."""

    import_seconds: float
    seconds: float
    jit_ms: float | None = None


def first_call(request: BenchRequest, side: Side, *, traced: bool) -> FirstCall:
    """Apart from what is measured: the next calls find all compiled."""
    with tempfile.TemporaryDirectory(prefix="cuwheel-first-") as name:
        cache, place = Path(name, "cache"), Path(name, "trace")
        cache.mkdir()
        place.mkdir()
        environ = side.environ | {"CUDA_CACHE_PATH": str(cache)}
        environ = session.environ_for(place, environ) if traced else environ
        with _worker(request, side, environ) as worker:
            imported = _ready(worker, request)
            worker.send(codec.encode({"at": time.monotonic(), "threads": 1, "calls": 1, "seconds": request.timeout}))
            block = _block(worker, request)
        if block.errors:
            named = [request.what] if isinstance(request.what, str) else request.command
            raise ToolError(named, f"fails at the first call: {block.error}", hint="run it by itself first")
        loads = attribution.attributed(events.read_events(place), succeeded=True).loads if traced else ()
        jit = sum(each.jit_ms or 0.0 for each in loads if each.how == "jit")
        return FirstCall(import_seconds=imported, seconds=block.latencies[0], jit_ms=jit if traced else None)
