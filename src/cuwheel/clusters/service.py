"""The parts of a cluster that wait: a scheduler, and workers that come back to it when either was gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from cuwheel.clusters import blobs, certificates, remote, target
from cuwheel.errors import UnreadableError, UsageError
from cuwheel.machine import resources
from cuwheel.support import files, log

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from cuwheel.clusters.target import Target

_AGAIN_S = 1.0
_INSIDE = "127.0.0.1:0"  # Dask's own pages, which have no TLS: reached from this machine alone
_TTL_S = 60
_WAIT_S = 20
CLIENT = "CUWHEEL_CLUSTER_CLIENT"  # of a scheduler that one run started for itself: the process to end with


def settings() -> None:
    """Of Dask, for this process."""
    certificates.require()
    import dask

    dask.config.set(
        {
            "distributed.admin.tick.limit": "30s",
            "distributed.comm.timeouts.connect": f"{_WAIT_S}s",
            "distributed.comm.timeouts.tcp": f"{_TTL_S}s",
            "distributed.scheduler.http.routes": [],  # any user of the machine could read them
            "distributed.worker.http.routes": [],
            "distributed.scheduler.worker-ttl": f"{_TTL_S}s",
            "distributed.scheduler.work-stealing": False,  # who does what is decided by the engine
            "distributed.worker.daemon": False,
            "logging": {"distributed": "warning"},
            "distributed.worker.memory.pause": False,  # compilers are processes of their own
            "distributed.worker.memory.terminate": False,
        }
    )


def schedule(address: str, place: Path | None, ready: Path | None = None) -> None:
    """Listens until it is stopped. `ready`: a file that gets the address."""
    settings()
    from distributed import Scheduler

    listening = _listening(address)
    security = certificates.security("scheduler", place) if listening.secured else None

    async def work() -> None:
        made = Scheduler(host=listening.address, security=security, dashboard=False, dashboard_address=_INSIDE)
        async with made:
            said = made.address if listening.secured else f"insecure+{made.address}"
            log.info("the scheduler listens at %s", said)
            if ready:
                files.write(ready, said)
            await _ended(made)

    try:
        _run(work())
    except (OSError, RuntimeError) as error:  # Dask wraps what the system said
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise UnreadableError.from_os(cause, address, hint="choose another port: tls://0.0.0.0:8787") from error


async def _ended(scheduler: Any) -> None:  # noqa: ANN401 - Dask has no types
    """It was stopped, or whose it is has gone: killed, that one could not stop it. Its workers end with it."""
    client = int(os.environ.get(CLIENT) or 0)
    finished = asyncio.ensure_future(scheduler.finished())
    while not finished.done():
        await asyncio.wait([finished], timeout=_AGAIN_S if client else None)
        if client and os.getppid() != client:
            await scheduler.close()
            return


def _listening(address: str) -> Target:
    """An address to listen at; port 0 takes any."""
    probe = f"{address[:-2]}:8786" if address.endswith(":0") else address
    found = target.parse(probe)
    if found.kind != "address":
        raise UsageError(f"{address!r} is not an address", hint="tls://0.0.0.0:8786 or tls://127.0.0.1:8786")
    return target.Target(
        kind="address", address=found.address if probe == address else f"{found.address.removesuffix('8786')}0"
    )


class WorkerWish(Struct, frozen=True, kw_only=True):
    """`once`: end when the scheduler does; else it is waited for. `cores`, `memory`: None for what the machine has."""

    name: str = ""
    cores: int | None = None
    memory: int | None = None
    once: bool = False


def work(address: str, place: Path | None, wish: WorkerWish) -> None:
    """A worker, until it is stopped, or its cluster is."""
    settings()
    found = target.parse(address)
    if found.kind != "address":
        raise UsageError(f"{address!r} is not the address of a scheduler", hint="tls://HOST:8786")
    security = certificates.security("worker", place) if found.secured else None
    folder = files.cache_folder() / "cluster"
    try:
        (folder / "dask").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    blobs.prune()
    _run(_worker(found, security, wish, folder / "dask"))


async def _worker(found: Target, security: Any, wish: WorkerWish, folder: Path) -> None:  # noqa: ANN401
    from distributed import Worker

    cores, memory = resources.available()
    # One that works for this machine alone listens there alone.
    scheme, _, place = found.address.partition("://")
    host = f"{scheme}://127.0.0.1" if target.is_loopback(urlsplit(f"//{place}").hostname or "") else None
    while True:
        made = Worker(
            found.address,
            nthreads=wish.cores or cores,
            memory_limit=wish.memory or memory or "auto",
            name=wish.name or f"{platform.node()}-{os.getpid()}",
            security=security,
            host=host,
            protocol="tls" if found.secured else None,
            local_directory=str(folder),
            dashboard=False,
            dashboard_address=_INSIDE,
            death_timeout=None,
        )
        try:
            await made
            log.info("%s works for %s", made.address, found.address)
            await made.finished()
            reason = str(made.reason) if hasattr(made, "reason") else ""
        except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, RuntimeError) as error:
            reason = str(error)
        except asyncio.CancelledError:
            remote.stop_all()
            with contextlib.suppress(Exception):
                await made.close(timeout=2, executor_wait=False)
            raise
        remote.stop_all()
        with contextlib.suppress(Exception):
            await made.close(timeout=2, executor_wait=False)
        if wish.once or "scheduler-close" in reason or "client" in reason:
            return
        log.info("the scheduler is gone, waiting for it (%s)", reason or "no reason")
        await asyncio.sleep(_AGAIN_S)


def _run(work: Awaitable[None]) -> None:
    """Until it ends, or somebody ends it: as Ctrl-C does, so do service managers."""

    async def watched() -> None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(watched())
