"""The parts of a cluster that wait: a scheduler, and workers that come back to it when either was gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from cuwheel.clusters import access, keeping
from cuwheel.errors import ToolError, UnreadableError, UsageError
from cuwheel.machine import system
from cuwheel.support import files, log, process

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from cuwheel.clusters.access import Target


_AGAIN_S = 1.0
_INSIDE = "127.0.0.1:0"  # Dask's own pages, which have no TLS: reached from this machine alone
_LEAVE_S = 5.0
_SAID_S = 0.2
CLIENT = "CUWHEEL_CLUSTER_CLIENT"  # of a scheduler that one run started for itself: the process to end with


def configure_dask(*, pages: bool = False) -> None:
    """Of Dask, for this process; `pages`: those that it serves. What a user's own settings say of the others holds."""
    access.require_extra()
    import dask

    dask.config.set({"logging": {"distributed": "warning"}})
    import distributed  # noqa: F401 - whose defaults are replaced

    if not pages:  # any user of the machine could read them
        dask.config.set({f"distributed.{each}.http.routes": [] for each in ("scheduler", "worker")})
    settings = {
        "admin": {"tick": {"limit": "30s"}},
        "diagnostics": {"nvml": False},  # a driver that does not fit its library would end the worker
        "comm": {"timeouts": {"connect": "20s", "tcp": "60s"}},
        "scheduler": {"worker-ttl": "30s", "unknown-task-duration": "60s"},
        "worker": {"daemon": False, "memory": {"pause": False, "terminate": False}},  # compilers are not in it
    }
    dask.config.update_defaults({"distributed": settings})


def run_scheduler(address: str, place: Path | None, ready: Path | None = None, dashboard: str | None = None) -> None:
    """Listens until it is stopped. `ready`: a file that gets the address. `dashboard`: where Dask's pages are."""
    configure_dask(pages=dashboard is not None)
    if dashboard is not None:
        process.require_extra("Dask's dashboard", modules=["bokeh"], extra="dashboard")
    from distributed import Scheduler

    # An address to listen at; port 0 takes any.
    probe = f"{address[:-2]}:8786" if address.endswith(":0") else address
    found = access.parse_address(probe)
    if found.kind != "address":
        raise UsageError(f"{address!r} is not an address", hint="tls://0.0.0.0:8786 or tls://127.0.0.1:8786")
    listening = access.Target(
        kind="address", address=found.address if probe == address else f"{found.address.removesuffix('8786')}0"
    )
    security = access.tls_security("scheduler", place) if listening.secured else None

    async def work() -> None:
        made = Scheduler(
            host=listening.address,
            security=security,
            dashboard=dashboard is not None,
            dashboard_address=dashboard or _INSIDE,
        )
        access.guard(made, "scheduler")
        async with made:
            if dashboard:
                log.info("Dask's pages are at http://%s/status, for everybody who reaches that address", dashboard)
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


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """`once`: end when the scheduler does; else it is waited for. `cores`, `memory`: None for what the machine has.

    `threads`: tasks at once, however few cores each takes; None for one a core. `tags`: what tasks may ask for.
    """

    name: str = ""
    cores: int | None = None
    memory: int | None = None
    threads: int | None = None
    tags: tuple[str, ...] = ()
    once: bool = False


def run_worker(address: str, place: Path | None, options: WorkerOptions) -> None:
    """A worker, until it is stopped, or its cluster is."""
    configure_dask()
    found = access.parse_address(address)
    if found.kind != "address":
        raise UsageError(f"{address!r} is not the address of a scheduler", hint="tls://HOST:8786")
    security = access.tls_security("worker", place) if found.secured else None
    folder = files.cache_folder() / "cluster"
    try:
        (folder / "dask").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableError.from_os(error, folder) from error
    keeping.prune_blobs()
    _run(_worker(found, security, options, folder / "dask"))


async def _worker(found: Target, security: Any, options: WorkerOptions, folder: Path) -> None:  # noqa: ANN401
    from distributed import Worker

    from cuwheel.clusters import remote

    all_cores, all_memory = system.available_resources()
    cores, memory = options.cores or all_cores, options.memory or all_memory or remote.MEMORY
    name = options.name or f"{platform.node()}-{os.getpid()}"
    offered, said = remote.declare(name, cores, memory, options.tags)
    # One that works for this machine alone listens there alone.
    scheme, _, place = found.address.partition("://")
    host = f"{scheme}://127.0.0.1" if access.is_loopback(urlsplit(f"//{place}").hostname or "") else None
    while True:
        made = Worker(
            found.address,
            nthreads=options.threads or cores,
            memory_limit=memory,
            resources=offered,
            metrics={remote.METRIC: said},
            name=name,
            security=security,
            host=host,
            protocol="tls" if found.secured else None,
            local_directory=str(folder),
            dashboard=False,
            dashboard_address=_INSIDE,
            death_timeout=None,
        )
        access.guard(made, "worker")
        try:
            await made
            log.info("%s works for %s", made.address, found.address)
            await made.finished()
            reason = str(made.reason) if hasattr(made, "reason") else ""
        except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, RuntimeError) as error:
            reason = str(error)
        except asyncio.CancelledError:
            made.log_event(remote.TOPIC, {"key": "", "worker": made.address})
            await asyncio.sleep(_SAID_S)  # before the scheduler closes the line
            with contextlib.suppress(Exception):  # what it has and does goes to others, and nobody is blamed
                leaving = made.scheduler.retire_workers(workers=[made.address], remove=True, close_workers=False)
                await asyncio.wait_for(leaving, _LEAVE_S)
            await _closed(made)
            raise
        await _closed(made)
        if options.once or "scheduler-close" in reason or "client" in reason:
            return
        log.info("the scheduler is gone, waiting for it (%s)", reason or "no reason")
        await asyncio.sleep(_AGAIN_S)


async def _closed(worker: Any) -> None:  # noqa: ANN401
    from cuwheel.clusters import remote

    remote.stop_all()
    with contextlib.suppress(Exception):
        await worker.close(timeout=2, executor_wait=False)


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


# A cluster to hand tasks to: found at its address, or started for one run and ended with it.

CORES = 2  # of a local worker: configuring a project needs one, however many compilers could run
_START_S = 60.0
_SLURM_WORKERS = 4
_LOCAL_DAYS = 30  # longer than any run; its certificates go with it
_LOOK_S = 0.05
_LARGEST_WHEEL = 1 << 28


class Connection(Struct, frozen=True, kw_only=True):
    """`expected`: workers that were started, and will come."""

    address: str
    security: Any = None
    expected: int = 0
    patience: float = 60.0

    def client(self, timeout: float = 10.0) -> Any:  # noqa: ANN401 - distributed is not typed
        from distributed import Client

        try:
            return Client(self.address, security=self.security, timeout=timeout, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise UnreadableError(
                self.address, f"no scheduler answers there: {error}", hint="start one: cuwheel cluster scheduler"
            ) from error


def declare_plugin(client: Any) -> None:  # noqa: ANN401
    """So that each worker, also one that joins later, offers what it has."""
    from cuwheel.clusters import remote

    try:
        client.register_plugin(remote.OnWorker())
    except Exception as error:  # noqa: BLE001 - of a worker that has another cuwheel, which is said of it then
        log.debug("a worker does not say what it is: %s", error)


def send_wheel(client: Any, wheel: Path) -> None:  # noqa: ANN401
    """cuwheel for workers without it, those that are there and those that come."""
    from cuwheel.clusters import sent

    content = files.read_limited(wheel, _LARGEST_WHEEL, "the wheel of cuwheel")
    try:
        client.register_plugin(sent.Install(wheel.name, content, Path(sent.__file__).read_text(encoding="utf-8")))
    except Exception as error:
        raise ToolError(["a worker"], "could not install cuwheel", str(error)) from error


@contextlib.contextmanager
def open_connection(found: Target, certificate: Path | None = None, cores: int = 1) -> Iterator[Connection]:
    """`cores`: that each task takes, at least. Dask has as many tasks at once on a worker as it has threads."""
    configure_dask()
    if found.kind == "local":
        with _local(found.workers, cores) as made:
            yield made
    elif found.kind == "slurm":
        with _slurm(found.workers or _SLURM_WORKERS, certificate) as made:
            yield made
    else:
        security = access.tls_security("client", certificate) if found.secured else None
        yield Connection(address=found.address, security=security)


@contextlib.contextmanager
def _local(workers: int, cores_a_task: int) -> Iterator[Connection]:
    """Workers of two cores each, on loopback, ended with the block.

    With certificates of their own: every user of this machine reaches its loopback.
    """
    access.require_extra()
    cores, memory = system.available_resources()
    count = workers or max(1, cores // CORES)
    each = max(1, min(CORES, cores // count))
    ours = [*process.module(sys.executable, "cuwheel"), "cluster"]
    with tempfile.TemporaryDirectory(prefix="cuwheel-cluster-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ready, output = folder / "address", folder / "log.txt"
        access.make_certificates(folder / "certificates", days=_LOCAL_DAYS)
        environ = {**os.environ, access.FOLDER: str(folder / "certificates")}
        stack.enter_context(
            process.background_process(
                [*ours, "scheduler", "tls://127.0.0.1:0", "--ready", str(ready), "--quiet"],
                output=output,
                env={**environ, CLIENT: str(os.getpid())},
            )
        )
        address = _waited(ready, output)
        limit = ["--memory", str((memory or 2**33) // count)]
        for number in range(count):
            words = [
                "worker",
                address,
                "--name",
                f"local-{number + 1}",
                "--cores",
                str(each),
                "--threads",
                str(max(1, each // cores_a_task)),
                *limit,
                "--once",
                "--quiet",
            ]
            stack.enter_context(process.background_process([*ours, *words], output=output, env=environ))
        log.info("started %d workers of %d cores on this machine", count, each)
        security = access.tls_security("client", folder / "certificates")
        yield Connection(address=address, security=security, expected=count)


def _waited(ready: Path, output: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if ready.exists():
            return ready.read_text(encoding="ascii")
        if output.exists() and output.read_bytes().startswith(b"error: "):
            break
        time.sleep(_LOOK_S)
    raise ToolError(["the scheduler"], "did not start", output.read_text(encoding="utf-8", errors="replace"))


@contextlib.contextmanager
def _slurm(workers: int, certificate: Path | None) -> Iterator[Connection]:
    """Jobs of Slurm, as Dask's configuration `jobqueue.slurm` describes them; over TLS, since they are elsewhere."""
    process.require_extra("Slurm", modules=["dask_jobqueue"], programs=["sbatch"], extra="cluster")
    from dask_jobqueue.slurm import SLURMCluster
    from distributed import Scheduler

    class Guarded(Scheduler):
        def __init__(self, *words: Any, **named: Any) -> None:  # noqa: ANN401
            super().__init__(*words, **named)
            access.guard(self, "scheduler")

    security = access.tls_security("client", certificate)
    inside = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--no-nanny"]
    try:
        made = SLURMCluster(
            processes=1,
            security=security,
            protocol="tls://",
            scheduler_cls=Guarded,
            scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            worker_extra_args=inside,
        )
    except (ValueError, OSError, TypeError) as error:
        raise UnreadableError(
            "jobqueue.slurm", f"its settings are not complete: {error}", hint="see docs/howto/cluster.md, Slurm"
        ) from error
    with made:
        made.scale(jobs=workers)
        yield Connection(address=made.scheduler_address, security=security, expected=workers, patience=24 * 3600.0)
