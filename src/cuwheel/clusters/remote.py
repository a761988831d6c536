"""What runs on a worker: a Dask plugin that says what the worker is, and the function that every task is.

A task has a process of its own: it can be ended, and neither its crash nor its memory is the worker's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from distributed import Reschedule, WorkerPlugin, get_worker
from distributed.core import Status
from msgspec.structs import replace

from cuwheel.clusters import keeping
from cuwheel.clusters.task import Answer, Task, own_code, own_facts
from cuwheel.errors import CuwheelError, ToolTimeoutError, UnreadableError
from cuwheel.machine import gpu as machine_gpu
from cuwheel.support import codec, files, own_folder, process, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TOPIC, METRIC = "cuwheel", "cuwheel"
_LOOK_S = 0.5
_END_S = 10.0
_SHOWN = 2000  # letters of what a process printed before it died
MEMORY = 4 << 30  # where Dask sets no limit
_UNWANTED = ("cancelled", "released", "forgotten")  # of Dask's states
_stopping = threading.Event()  # replaced after each stop


class OnWorker(WorkerPlugin):
    """Declares what a worker offers, also to one that somebody else started, and that joins later.

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
        if METRIC in worker.metrics:  # one of ours: `cuwheel cluster worker` said all of it when it began
            return
        memory = int(worker.memory_manager.memory_limit or MEMORY)
        offered, said = declare(str(worker.name), worker.state.nthreads, memory)
        worker.metrics[METRIC] = said
        theirs = worker.state.total_resources  # who started it may have counted otherwise
        await worker.set_resources(**{name: each for name, each in offered.items() if name not in theirs})
        # Dask looks again at tasks that nobody could do when a worker begins to take some, not when it offers more.
        worker.status = Status.paused
        worker.status = Status.running

    def teardown(self, worker: Any) -> None:  # noqa: ANN401, ARG002
        stop_all()


def declare(
    name: str, cores: int, memory: int, tags: Sequence[str] = ()
) -> tuple[dict[str, float], Callable[[Any], str]]:
    """What this machine offers, and what a worker here says of itself with each heartbeat."""
    found = own_facts(name=name, cores=cores, memory=memory, apart=own_folder.can_be_apart(), tags=tags)
    said = codec.encode(found).decode()
    return found.offers, lambda _: said


def stop_all() -> None:
    """End what runs here."""
    global _stopping  # noqa: PLW0603 - of this process, as its tasks are
    _stopping.set()
    _stopping = threading.Event()


class _Room:
    """A task that is to be alone here waits for the others, and they for it; each GPU is one task's."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: list[Task] = []
        self._taken: set[str] = set()

    @contextlib.contextmanager
    def entered(self, task: Task) -> Iterator[str]:
        """The word for CUDA_VISIBLE_DEVICES of the GPU that the task has; empty where it asked for none."""
        with self._changed:
            self._changed.wait_for(lambda: not any(task.alone or each.alone for each in self._inside))
            here = machine_gpu.gpus_of_this_process() if task.tag.startswith("gpu:") else {}
            its = (word for word, capability in here.items() if task.tag == f"gpu:{capability}")
            gpu = next((word for word in its if word not in self._taken), "")
            self._inside.append(task)
            self._taken.add(gpu)
        try:
            yield gpu
        finally:
            with self._changed:
                self._inside.remove(task)
                self._taken.discard(gpu)
                self._changed.notify_all()


_room = _Room()


def perform(raw: bytes, inputs: Mapping[str, Sequence[bytes]]) -> tuple[bytes, dict[str, list[bytes]]]:
    """A task, from its inputs to its answer and the files of that. `inputs`: by hash."""
    worker = get_worker()
    key = worker.get_current_task()
    task = codec.decode(raw, Task)
    stopping = _stopping

    def show(text: str) -> None:
        worker.log_event(TOPIC, {"key": key, "worker": worker.address, "shows": text})

    def unwanted() -> bool:
        """Dask forgets, or marks, a task whose client is gone or has cancelled it."""
        state = worker.state.tasks.get(key)
        return stopping.is_set() or state is None or state.state in _UNWANTED

    show("")
    began = time.time()
    made: dict[str, list[bytes]] = {}
    try:
        for sha256, content in inputs.items():
            if not keeping.has_blob(sha256):
                keeping.receive_blob(sha256, content, keeping.blob_path(sha256))
        with _room.entered(task) as gpu, scratch.folder(files.cache_folder() / "cluster" / "tasks", "task-") as folder:
            answer = _performed(task, folder, gpu, show, unwanted)
            made = {each.name: keeping.read_pieces(Path(each.path)) for each in answer.files}
    except (OSError, CuwheelError) as error:
        problem = error.message if isinstance(error, CuwheelError) else str(UnreadableError.from_os(error))
        answer = Answer(problem=problem, lacking=True)
    return codec.encode(replace(answer, worker=str(worker.name), began=began, ended=time.time())), made


def _performed(task: Task, folder: Path, gpu: str, show: Callable[[str], None], unwanted: Callable[[], bool]) -> Answer:
    (folder / "task.json").write_bytes(codec.encode(task))
    command = [*process.module(sys.executable, "cuwheel.clusters.child"), str(folder)]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", **({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})}
    with process.conversing(command, env=environ) as child:
        stopped_at: float | None = None
        while True:
            if unwanted():
                stopped_at = stopped_at or time.monotonic()
                child.interrupt()
                if time.monotonic() - stopped_at > _END_S:
                    break
            try:
                line = child.receive(_LOOK_S)
            except ToolTimeoutError:
                continue
            if not line:
                break
            with contextlib.suppress(msgspec.DecodeError):
                show(codec.decode(line, str))
        errors = child.errors()[-_SHOWN:].strip()
    if stopped_at:
        raise Reschedule  # this worker goes; whoever still wants it has it done elsewhere
    try:
        return codec.decode((folder / "answer.json").read_bytes(), Answer)
    except (OSError, msgspec.DecodeError):
        return Answer(problem=f"its process ended without an answer: {errors or 'it was killed'}", lacking=True)
