"""Every word that is exchanged with Dask: who is there, files there and back, a task and its answer."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel.clusters import keeping, remote
from cuwheel.clusters.task import Answer, Facts
from cuwheel.errors import CuwheelError, MalformedError, UnreadableError
from cuwheel.support import codec, log
from cuwheel.support.confined import strange_on_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cuwheel.clusters.service import Connection
    from cuwheel.clusters.task import Sent, Task

_CALL_S = 60.0
_STOP_S = 15.0
_LOOK_S = 0.5
_AGAIN_S = 1.0
_LARGEST = 20 * 10**9


class FaultError(Exception):
    """A worker did not do what it should. `aside`: it cannot be trusted with anything more."""

    def __init__(self, message: str, *, aside: bool = False) -> None:
        super().__init__(message)
        self.aside = aside


class SchedulerGoneError(Exception):
    """There is nobody to ask."""


class Transport:
    def __init__(self, connected: Connection) -> None:
        self._connection = connected
        self._abandoned: set[str] = set()
        self._sending: dict[tuple[str, str], threading.Lock] = {}
        self._lock = threading.Lock()
        self.shows: dict[str, str] = {}
        self._client: Any = connected.client()
        self._subscribe()

    def _subscribe(self) -> None:
        def heard(event: Any) -> None:  # noqa: ANN401 - distributed is not typed
            with contextlib.suppress(TypeError, KeyError, ValueError):
                self.shows[event[1]["call"]] = event[1]["shows"]

        self._client.subscribe_topic(remote.TOPIC, heard)

    @property
    def alive(self) -> bool:
        return bool(self._client.status == "running")

    def reopened(self, patience: float) -> bool:
        """A new connection, where there is a scheduler again within that time."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                self._client = self._connection.client(timeout=min(5.0, patience))
            except UnreadableError:
                time.sleep(_AGAIN_S)
                continue
            self._subscribe()
            return True
        return False

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._connection.expected:  # started for us
                self._client.shutdown()
            self._client.close(timeout=2)

    def workers(self) -> dict[str, float]:
        """Addresses, and when the scheduler heard of each."""
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except Exception as error:
            raise SchedulerGoneError(str(error)) from error
        return {address: float(each["last_seen"]) for address, each in found.items()}

    def facts(self, worker: str) -> Facts:
        try:
            return codec.decode(self._called(worker, remote.facts), Facts)
        except msgspec.DecodeError as error:
            raise FaultError(f"its answer makes no sense: {error}") from error

    def _called(self, worker: str, function: Callable[..., Any], *words: object, within: float = _CALL_S) -> Any:  # noqa: ANN401
        """A function on a worker, beside the tasks that it runs."""
        client = self._client
        try:
            answers = client.sync(client._run, function, *words, workers=[worker], callback_timeout=within)  # noqa: SLF001 - `run` has no time limit
            return answers[worker]
        except Exception as error:
            if client.status != "running":
                raise SchedulerGoneError(str(error)) from error
            raise FaultError(f"{type(error).__name__}: {error}") from error

    def performed(self, call: str, task: Task, worker: str, place: Path) -> tuple[Answer, dict[str, Path]]:
        """The answer of a worker, and its files in the folder `place`, each with the hash that was said."""
        self._send(worker, list(task.inputs.values()))
        raw = self._waited(call, task, worker)
        try:
            answer = codec.decode(raw, Answer)
        except (msgspec.DecodeError, TypeError) as error:
            raise FaultError(f"its answer makes no sense: {error}", aside=True) from error
        return answer, {each.name: self._fetched(worker, each, place / each.name) for each in answer.files}

    def _waited(self, call: str, task: Task, worker: str) -> Any:  # noqa: ANN401
        from distributed import TimeoutError as DaskTimeoutError

        client = self._client
        try:
            future = client.submit(
                remote.perform,
                call,
                codec.encode(task),
                key=f"cuwheel-{call}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
            )
            while True:
                if call in self._abandoned:
                    future.cancel()
                    break
                try:
                    return future.result(timeout=_LOOK_S)
                except (DaskTimeoutError, TimeoutError):
                    continue
        except BaseException as error:  # CancelledError is not an Exception
            if client.status != "running" or type(error).__name__ in ("CancelledError", "FutureCancelledError"):
                raise SchedulerGoneError(str(error)) from error
            raise FaultError(f"{type(error).__name__}: {error}") from error
        raise FaultError("it was given up")

    def _send(self, worker: str, wanted: Sequence[str]) -> None:
        """What the worker's machine has not. One at a time for each worker: its tasks share most inputs."""
        for sha256 in dict.fromkeys(wanted):
            with self._lock:
                lock = self._sending.setdefault((worker, sha256), threading.Lock())
            with lock:
                if self._called(worker, remote.lacking, [sha256]):
                    sender = secrets.token_hex(4)
                    offset = 0
                    for piece in keeping.read_pieces(keeping.blob_path(sha256)):
                        self._called(worker, remote.put, sha256, sender, offset, piece)
                        offset += len(piece)
                    self._called(worker, remote.complete, sha256, sender)

    def _fetched(self, worker: str, sent: Sent, to: Path) -> Path:
        astray = sent.name.startswith(".") or "/" in sent.name or strange_on_windows(sent.name)
        if sent.size > _LARGEST or astray:
            raise FaultError(f"it sends a file that nobody asked for: {sent.name}", aside=True)
        try:
            return keeping.receive_blob(sent.sha256, self._pieces(worker, sent), to)
        except MalformedError as error:
            raise FaultError(error.message, aside=True) from error
        except CuwheelError as error:
            raise FaultError(error.message) from error

    def _pieces(self, worker: str, sent: Sent) -> Iterator[bytes]:
        offset = 0
        while offset < sent.size:
            piece = self._called(worker, remote.piece, sent.sha256, offset)
            if not isinstance(piece, bytes) or not piece:
                return
            offset += len(piece)
            yield piece

    def running(self) -> dict[str, tuple[str, ...]]:
        """Tasks, by worker: anybody's."""
        try:
            found = self._client.processing()
        except Exception as error:
            raise SchedulerGoneError(str(error)) from error
        names = {worker: tuple(str(key).removeprefix("cuwheel-") for key in keys) for worker, keys in found.items()}
        return {worker: tuple(key.rpartition("-")[0] for key in keys) for worker, keys in names.items()}

    def stop_everything(self) -> None:
        """All tasks, the workers and the scheduler."""
        for worker in self.workers():
            with contextlib.suppress(FaultError, SchedulerGoneError):
                self._called(worker, remote.stop_all, within=_STOP_S)
        with contextlib.suppress(Exception):
            self._client.shutdown()

    def abandon(self, call: str) -> None:
        self._abandoned.add(call)

    def stop(self, calls: Mapping[str, Sequence[str]]) -> None:
        """End these tasks, by worker. Nobody waits longer than a few seconds for it."""

        def ask(worker: str, its: Sequence[str]) -> None:
            with contextlib.suppress(FaultError, SchedulerGoneError):
                self._called(worker, remote.stop, list(its), within=_STOP_S)

        for its in calls.values():
            self._abandoned.update(its)
        threads = [threading.Thread(target=ask, args=each, daemon=True) for each in calls.items()]
        for each in threads:
            each.start()
        for each in threads:
            each.join(_STOP_S)
        log.info("ended %d tasks on %d workers", sum(map(len, calls.values())), len(calls))
