"""What runs on a worker: a Dask plugin that says what the worker is, and the function that every task is.

A task has a process of its own: it can be ended, and neither its crash nor its memory is the worker's.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import Reschedule, WorkerPlugin, get_worker
from distributed.core import Status
from msgspec.structs import replace

from cuwheel.clusters import task as travelling
from cuwheel.clusters.task import (
    CORES,
    MEMORY,
    TOPIC,
    Answer,
    Task,
    WorkerFacts,
    own_code,
    package_tag,
    packages_with_verbs,
)
from cuwheel.errors import ToolTimeoutError
from cuwheel.machine import gpu as machine_gpu
from cuwheel.machine.world import World
from cuwheel.support import codec, files, process, scratch
from cuwheel.version import __version__
from cuwheel_core.errors import CuwheelError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_COMPILERS = ("nvcc", "c++", "g++", "gcc", "clang++")
_CHILD = process.module(sys.executable, "cuwheel.clusters.child")
_LOOK_S = 0.5
_END_S = 10.0
_SHOWN = 2000  # letters of what a process printed before it died
_MEMORY = 4 << 30  # where Dask sets no limit
_UNWANTED = ("cancelled", "released", "forgotten")  # of Dask's states


class OnWorker(WorkerPlugin):
    """Has a worker offer what it is and has, whoever started it and whenever it joins.

    A worker without cuwheel must come up as if nothing had been asked of it: so the plugin travels as a line that
    imports it there, if it can, and not as a class that Dask fails to find.
    """

    idempotent = True
    _LINE = (
        "(lambda found: __import__('importlib').import_module('cuwheel.clusters.remote').OnWorker() if found"
        " else __import__('distributed').WorkerPlugin())(__import__('importlib.util').util.find_spec('cuwheel'))"
    )

    def __init__(self) -> None:
        self.name = f"cuwheel {own_code()}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (self._LINE,)

    async def setup(self, worker: Any) -> None:  # noqa: ANN401 - distributed is not typed
        if TOPIC in worker.metrics:  # of another client's; and what was set aside stays so
            return
        facts = _own_facts(worker)
        said = codec.encode(facts).decode()
        worker.metrics[TOPIC] = lambda _: said
        await worker.set_resources(**travelling.offers(facts))
        # Dask looks again at tasks that nobody could do when a worker begins to take some, not when it offers more.
        worker.status = Status.paused
        worker.status = Status.running


def _own_facts(worker: Any) -> WorkerFacts:  # noqa: ANN401
    declared = worker.state.total_resources  # by whoever started it: that holds
    gpus = Counter(f"gpu:{each}" for each in machine_gpu.gpus_of_this_process().values())
    libc = World.here().libc_version  # what is installed: the interpreter may be built against an older one
    # By place and size, which packages of the same version have alike on every machine.
    compilers = [Path(path).resolve() for name in _COMPILERS if (path := shutil.which(name))]
    cores = int(declared.get(CORES, worker.state.nthreads))
    return WorkerFacts(
        name=_name(worker),
        host=platform.node(),
        cuwheel=__version__,
        code=own_code(),
        machine=platform.machine(),
        libc=f"glibc {libc}" if libc else platform.system(),
        python=platform.python_version(),
        store=str(files.cache_folder()),
        tools=files.sha256_of("\n".join(f"{each} {each.stat().st_size}" for each in compilers).encode())[:12],
        cores=cores,
        memory=int(declared.get(MEMORY, worker.memory_manager.memory_limit or _MEMORY)),
        apart=_can_be_apart(),
        tags={
            **gpus,
            **{package_tag(package): cores for package in packages_with_verbs()},
            **{name: int(much) for name, much in declared.items() if name not in (CORES, MEMORY)},
        },
    )


@cache
def _can_be_apart() -> bool:
    """Tried by another process: one that has threads, as a worker has, cannot do it, and should not fork."""
    return process.run(_CHILD, timeout=60.0, check=False).status == 0


def _name(worker: Any) -> str:  # noqa: ANN401
    """Dask numbers those of which nobody said how they are called."""
    return f"{platform.node()}-{worker.name}" if isinstance(worker.name, int) else str(worker.name)


_gpus: dict[str, threading.Lock] = {}  # by the word


@contextlib.contextmanager
def _own_gpu(tag: str) -> Iterator[dict[str, str]]:
    """The variable that shows a program one GPU, which no other task of this process has; none where none is asked."""
    here = machine_gpu.gpus_of_this_process() if tag.startswith("gpu:") else {}
    able = [word for word, capability in here.items() if tag == f"gpu:{capability}"]
    if not able:
        yield {}
        return
    locks = {word: _gpus.setdefault(word, threading.Lock()) for word in able}
    while not (free := next((word for word, lock in locks.items() if lock.acquire(blocking=False)), "")):
        time.sleep(_LOOK_S)
    try:
        yield {"CUDA_VISIBLE_DEVICES": free}
    finally:
        locks[free].release()


def perform(raw: bytes, inputs: Mapping[str, Sequence[bytes]]) -> tuple[bytes, dict[str, list[bytes]]]:
    """A task, from its inputs to its answer and the files of that. `inputs`: by hash."""
    worker = get_worker()
    key = worker.get_current_task()
    task = codec.decode(raw, Task)

    def show(text: str) -> None:
        worker.log_event(TOPIC, {"key": key, "worker": worker.address, "shows": text})

    def unwanted() -> bool:
        """The worker ends; or Dask forgets, or marks, a task whose client is gone or has cancelled it."""
        state = worker.state.tasks.get(key)
        return worker.status in (Status.closing, Status.closed) or state is None or state.state in _UNWANTED

    show("")
    began = time.time()
    try:
        with scratch.folder(files.cache_folder() / "cluster" / "tasks", "task-") as folder, _own_gpu(task.tag) as gpu:
            (folder / "task.json").write_bytes(raw)
            for name, sha256 in task.inputs.items():
                travelling.receive_file(sha256, inputs[sha256], folder / "inputs" / name)
            answer = _attend(folder, gpu, show, unwanted)
            made = {name: travelling.read_pieces(Path(place)) for name, place in answer.places.items()}
    except (OSError, CuwheelError) as error:
        problem = error.message if isinstance(error, CuwheelError) else str(UnreadableError.from_os(error))
        answer, made = Answer(problem=problem, lacking=True), {}
    return codec.encode(replace(answer, worker=_name(worker), began=began, ended=time.time())), made


def _attend(folder: Path, gpu: Mapping[str, str], show: Callable[[str], None], unwanted: Callable[[], bool]) -> Answer:
    with process.conversing([*_CHILD, str(folder)], env={**os.environ, "PYTHONUNBUFFERED": "1", **gpu}) as running:
        stopped_at: float | None = None
        while True:
            if unwanted():
                stopped_at = stopped_at or time.monotonic()
                running.interrupt()
                if time.monotonic() - stopped_at > _END_S:
                    break
            try:
                line = running.receive(_LOOK_S)
            except ToolTimeoutError:
                continue
            if not line:
                break
            if text := codec.understood(line, str):
                show(text)
        errors = running.errors()[-_SHOWN:].strip()
    if stopped_at:
        raise Reschedule  # this worker goes; whoever still wants it has it done elsewhere
    lost = Answer(problem=f"its process ended without an answer: {errors or 'it was killed'}", lacking=True)
    return codec.noted(folder / "answer.json", Answer) or lost
