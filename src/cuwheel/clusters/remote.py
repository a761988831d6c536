"""What is called on a worker, by name. Everything here also runs in a plain Dask worker that can import cuwheel.

A task has a process of its own: it can be ended, and neither its crash nor its memory is the worker's.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.clusters import child as child_process
from cuwheel.clusters import keeping
from cuwheel.clusters.task import Answer, Task, own_facts
from cuwheel.errors import CuwheelError, MalformedError, ToolTimeoutError, UnreadableError
from cuwheel.support import codec, files, process, scratch, system_calls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel.support.process import Conversation

TOPIC = "cuwheel"
_LOOK_S = 0.5
_END_S = 10.0
_SHOWN = 2000  # letters of what a process printed before it died
_MEMORY = 4 << 30  # where Dask sets no limit
_UNWANTED = ("cancelled", "released", "forgotten")  # of Dask's states
_running: dict[str, Conversation] = {}
_stopped: set[str] = set()


def facts(dask_worker: Any) -> bytes:  # noqa: ANN401 - distributed is not typed
    state = dask_worker.state
    memory = int(dask_worker.memory_manager.memory_limit or _MEMORY)
    name = str(dask_worker.name)
    return codec.encode(
        own_facts(name=name, cores=state.nthreads, memory=memory, apart=child_process.can_separate_builds())
    )


def lacking(wanted: list[str]) -> list[str]:
    return [each for each in wanted if not keeping.has_blob(each)]


def put(sha256: str, sender: str, offset: int, piece: bytes) -> None:
    """The next piece of a file, behind those that came before it."""
    place = _arriving(sha256, sender)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(piece)


def complete(sha256: str, sender: str) -> None:
    place = _arriving(sha256, sender)
    if files.sha256(place) != sha256:
        place.unlink()
        raise MalformedError(sha256, "arrived with another hash")
    system_calls.rename_over(place, keeping.blob_path(sha256))


def _arriving(sha256: str, sender: str) -> Path:
    return keeping.blob_path(sha256).with_name(f".{sha256}-{sender}.part")


def piece(sha256: str, offset: int) -> bytes:
    return keeping.read_piece(sha256, offset)


def stop(ids: list[str]) -> int:
    """End these tasks, where they run here; how many did."""
    _stopped.update(ids)
    found = [_running[each] for each in ids if each in _running]
    for each in found:
        each.interrupt()
    return len(found)


def stop_all() -> int:
    return stop(list(_running))


def perform(call: str, raw: bytes) -> bytes:
    """A task, from its inputs, which are here already, to its answer. `call`: this try of it."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def show(text: str) -> None:
        worker.log_event(TOPIC, {"call": call, "shows": text})

    def wanted() -> bool:
        """Dask forgets, or marks, a task whose client is gone: one that was killed could not stop it."""
        state = worker.state.tasks.get(key)
        return state is not None and state.state not in _UNWANTED

    task = codec.decode(raw, Task)
    began = time.time()
    try:
        with scratch.folder(files.cache_folder() / "cluster" / "tasks", "task-") as folder:
            answer = _performed(call, task, folder, show, wanted)
    except (OSError, CuwheelError) as error:
        problem = error.message if isinstance(error, CuwheelError) else str(UnreadableError.from_os(error))
        answer = Answer(problem=problem, lacking=True)
    finally:
        _running.pop(call, None)
        _stopped.discard(call)
    return codec.encode(msgspec.structs.replace(answer, began=began, ended=time.time()))


def _performed(call: str, task: Task, folder: Path, show: Callable[[str], None], wanted: Callable[[], bool]) -> Answer:
    (folder / "task.json").write_bytes(codec.encode(task))
    command = [*process.module(sys.executable, "cuwheel.clusters.child"), str(folder)]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with process.conversing(command, env=environ) as child:
        _running[call] = child
        stopped_at: float | None = None
        while True:
            if call in _stopped or not wanted():
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
        return Answer(problem="it was stopped")
    try:
        return codec.decode((folder / "answer.json").read_bytes(), Answer)
    except (OSError, msgspec.DecodeError):
        return Answer(problem=f"its process ended without an answer: {errors or 'it was killed'}", lacking=True)
