"""The parts of a cluster: who is heard there, a scheduler, workers that come back to it, and the way to one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import ssl
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from cuwheel.clusters.task import CORES, MEMORY
from cuwheel.errors import ToolError
from cuwheel.machine import system
from cuwheel.network import cluster_access
from cuwheel.support import files, log, process
from cuwheel_core.errors import MalformedError, UnreadableError
from cuwheel_core.wheel.tags import WheelName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

_AGAIN_S = 1.0
# Dask listens for its pages, which have no TLS, also where there are none: then on this machine alone.
_NO_PAGES: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
_LEAVE_S = 5.0
_PATIENCE_S = 60.0
_DAY_S = 24 * 3600.0


def configure_dask(*, pages: bool = False) -> None:
    """Configures Dask for this process; `pages`: those that it serves.

    What a user's own settings say of the rest holds.
    """
    cluster_access.require_extra()
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


def _dask_folder() -> Path:
    """Where Dask's workers keep what is not in memory."""
    folder = files.cache_folder() / "cluster" / "dask"
    with files.errors_of(folder, "CUWHEEL_CACHE names another place"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


_HINT = "make them with: cuwheel cluster init"


def tls_security(role: cluster_access.Role, given: Path | None = None) -> Any:  # noqa: ANN401 - distributed is not typed
    """For Dask: everything encrypted, both sides known by the authority. `given`: the file, or the folder of them.

    Where there is none, those that Dask's own configuration names: of a cluster that is somebody else's.
    """
    import dask
    from distributed.security import Security

    place = cluster_access.certificate_folder(given)
    file = place / f"{role}.pem" if place.is_dir() or not place.exists() else place
    if not file.is_file():
        if given is None and dask.config.get("distributed.comm.tls.ca-file", None):
            return Security(require_encryption=True)
        raise UnreadableError(file, "there is no certificate for a cluster", hint=_HINT)
    # Said here: in the middle of a connection nobody would know which file is meant.
    try:
        ssl.create_default_context(cafile=str(file)).load_cert_chain(file)
    except ssl.SSLError as error:
        problem = f"is not a file with key and certificate for a cluster: {error.reason or error}"
        raise MalformedError(file, problem, hint=_HINT) from error
    except OSError as error:
        raise UnreadableError.from_os(error, file) from error
    own_files: dict[str, str] = {}
    for each in cluster_access.ROLES:  # all that are here: Slurm's jobs are workers that a client starts
        own = place / f"{each}.pem"
        own_files |= dict.fromkeys((f"tls_{each}_cert", f"tls_{each}_key"), str(own if own.is_file() else file))
    return Security(require_encryption=True, tls_ca_file=str(file), **own_files)


# What a worker itself asks of a scheduler, and of other workers. Whoever has its certificate may ask for nothing else:
# a client's words (`run`, `register-client` …) are programs that others run.
_WORKER_ASKS = {
    "scheduler": {"register-worker", "heartbeat_worker", "unregister", "retire_workers", "set_resources", "who_has"},
    "worker": {"get_data"},
}


def guarded(server: Any, role: Literal["scheduler", "worker"]) -> Any:  # noqa: ANN401 - distributed is not typed
    """A class as Dask's own, for schedulers or workers of ours: it looks at the certificate of whoever speaks to it."""
    from distributed.comm.core import CommClosedError

    class Guarded(server):  # type: ignore[misc]
        async def handle_comm(self, comm: Any) -> None:  # noqa: ANN401
            subject = (comm.extra_info.get("peercert") or {}).get("subject", ())
            if (("commonName", cluster_access.common_name("worker")),) in subject:
                read = comm.read

                async def heard(*words: Any, **named: Any) -> Any:  # noqa: ANN401
                    message = await read(*words, **named)
                    # The stream that follows `register-worker` is lists, of what workers say.
                    if isinstance(message, dict) and message.get("op") not in _WORKER_ASKS[role]:
                        comm.abort()
                        raise CommClosedError(f"a worker asked for {message.get('op')}, which is for clients")
                    return message

                comm.read = heard
            await super().handle_comm(comm)

    return Guarded


def run_scheduler(address: str, place: Path | None, dashboard: str | None = None) -> None:
    """Listens until it is stopped. `dashboard`: where Dask's pages are."""
    configure_dask(pages=dashboard is not None)
    if dashboard is not None:
        process.require_extra("Dask's dashboard", modules=["bokeh"], extra="dashboard")
    from distributed import Scheduler

    found = cluster_access.parse_place(address, listening=True)
    security = tls_security("scheduler", place) if found.secured else None

    async def work() -> None:
        pages = {"dashboard": True, "dashboard_address": dashboard} if dashboard else _NO_PAGES
        async with guarded(Scheduler, "scheduler")(host=found.address, security=security, **pages) as made:
            if dashboard:
                log.info("Dask's pages are at http://%s/status, for everybody who reaches that address", dashboard)
            log.info("the scheduler listens at %s%s", "" if found.secured else "insecure+", made.address)
            await made.finished()

    try:
        asyncio.run(_until_stopped(work()))
    except (OSError, RuntimeError) as error:  # Dask wraps what the system said
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise UnreadableError.from_os(cause, address, hint="choose another port: tls://0.0.0.0:8787") from error


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """`cores`, `memory`: None for what the machine has. `tags`: what tasks may ask for."""

    name: str = ""
    cores: int | None = None
    memory: int | None = None
    tags: tuple[str, ...] = ()


def run_worker(address: str, place: Path | None, options: WorkerOptions) -> None:
    """A worker, until it is stopped, or its cluster is. What else it offers the plugin of its clients says."""
    configure_dask()
    from distributed import Worker

    class Remembering(guarded(Worker, "worker")):  # type: ignore[misc]
        """Dask only logs why a worker closes: a cluster that was stopped, or a connection that was lost."""

        reason = ""

        async def close(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as Dask calls it
            self.reason = self.reason or str(options.get("reason", ""))
            return await super().close(*args, **options)

    found = cluster_access.parse_place(address)
    security = tls_security("worker", place) if found.secured else None
    all_cores, all_memory = system.available_resources()
    cores, memory = options.cores or all_cores, options.memory or all_memory or "auto"
    own = cluster_access.is_loopback(urlsplit(found.address).hostname or "")

    async def work() -> None:
        while True:
            made = Remembering(
                found.address,
                nthreads=cores,
                memory_limit=memory,
                resources={CORES: cores, **Counter(options.tags)},
                name=options.name or f"{platform.node()}-{os.getpid()}",
                security=security,
                host="127.0.0.1" if own else None,  # one that works for this machine alone listens there alone
                local_directory=str(_dask_folder()),
                **_NO_PAGES,
            )
            try:
                await made
                log.info("%s works for %s", made.address, found.address)
                await made.finished()
            except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, RuntimeError) as error:
                made.reason = str(error)
            except asyncio.CancelledError:
                with contextlib.suppress(Exception):  # what it has and does goes to others, and nobody is blamed
                    await asyncio.wait_for(made.close_gracefully(), _LEAVE_S)
                raise
            finally:
                with contextlib.suppress(Exception):
                    await made.close(timeout=2, executor_wait=False)
            if made.reason.startswith("scheduler-close"):
                return
            log.info("the scheduler is gone, waiting for it (%s)", made.reason or "no reason")
            await asyncio.sleep(_AGAIN_S)

    asyncio.run(_until_stopped(work()))


async def _until_stopped(work: Awaitable[None]) -> None:
    """Until it ends, or somebody ends it: as Ctrl-C does, so do service managers."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


# A cluster to hand tasks to: found at its address, or started for one run and ended with it.

LOCAL_CORES = 2  # of a local worker: configuring a project needs one, however many compilers could run
_SLURM_WORKERS = 4


class Connection(Struct, frozen=True, kw_only=True):
    """`expected`: workers that were started, and will come."""

    address: str
    security: Any = None
    expected: int = 0
    patience: float = _PATIENCE_S

    def client(self, timeout: float = 10.0) -> Any:  # noqa: ANN401 - distributed is not typed
        from distributed import Client

        try:
            return Client(self.address, security=self.security, timeout=timeout, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            hint = "start one: cuwheel cluster scheduler"
            raise UnreadableError(self.address, f"no scheduler answers there: {error}", hint=hint) from error


def declare_plugin(client: Any) -> None:  # noqa: ANN401
    """So that each worker, also one that joins later, offers what it has."""
    from cuwheel.clusters import remote

    try:
        client.register_plugin(remote.OnWorker())
    except Exception as error:  # noqa: BLE001 - of a worker that has another cuwheel, which is said of it then
        log.debug("a worker does not say what it is: %s", error)


def send_wheel(client: Any, wheel: Path) -> None:  # noqa: ANN401
    """cuwheel for workers without it, those that are there and those that come.

    Of the folder of its wheel also the core's, which it needs in the same version, and the lab's where that is there.
    """
    from cuwheel.clusters import sent

    name = WheelName.parse(wheel.name)
    version = name.version if name else ""
    cores, labs = (sorted(wheel.parent.glob(f"cuwheel_{each}-{version}-*.whl")) for each in ("core", "lab"))
    if not cores:
        problem = f"the wheel of cuwheel-core {version} is not beside it, and workers need both"
        raise UnreadableError(wheel, problem, hint=f"pip wheel --no-deps -w {wheel.parent} ./core .   (in a checkout)")
    sent_files = {each.name: files.read_limited(each, 1 << 28, "a wheel of cuwheel") for each in (*cores, wheel, *labs)}
    try:
        client.register_plugin(sent.Install(sent_files, Path(sent.__file__).read_text(encoding="utf-8")))
    except Exception as error:
        raise ToolError(["a worker"], "could not install cuwheel", str(error)) from error


@contextlib.contextmanager
def open_connection(found: cluster_access.Target, place: Path | None = None, cores: int = 1) -> Iterator[Connection]:
    """`cores`: that each task takes, at least. Dask has as many tasks at once on a worker as it has threads."""
    configure_dask()
    if found.kind == "address":
        security = tls_security("client", place) if found.secured else None
        yield Connection(address=found.address, security=security)
        return
    local = found.kind == "local"
    with _local(found.workers, cores) if local else _slurm(found.workers or _SLURM_WORKERS, place) as started:
        yield Connection(
            address=started.scheduler_address,
            security=started.security,
            expected=len(started.worker_spec),
            patience=_PATIENCE_S if local else _DAY_S,
        )


def _local(workers: int, cores_a_task: int) -> Any:  # noqa: ANN401
    """Workers of two cores each, in this process: every task has its own.

    They listen on loopback, which every user of this machine reaches: Dask makes certificates for them, in memory.
    """
    from distributed import LocalCluster

    cores, memory = system.available_resources()
    count = workers or max(1, cores // LOCAL_CORES)
    each = max(1, min(LOCAL_CORES, cores // count))
    log.info("starting %d worker%s of %d cores each on this machine", count, "" if count == 1 else "s", each)
    return LocalCluster(
        n_workers=count,
        threads_per_worker=max(1, each // cores_a_task),
        processes=False,
        security=True,
        memory_limit=memory or "auto",  # of this process; what tasks may take is said apart
        resources={CORES: each, MEMORY: (memory or 2**33) // count},
        local_directory=str(_dask_folder()),
        scheduler_kwargs=_NO_PAGES,
        silence_logs="ERROR",  # what ends with this process is no news for who ended it
    )


def _slurm(workers: int, place: Path | None) -> Any:  # noqa: ANN401
    """Jobs of Slurm, as Dask's configuration `jobqueue.slurm` describes them; over TLS, since they are elsewhere."""
    process.require_extra("Slurm", modules=["dask_jobqueue"], programs=["sbatch"], extra="cluster")
    from dask_jobqueue.slurm import SLURMCluster
    from distributed import Scheduler

    try:
        return SLURMCluster(
            n_workers=workers,
            processes=1,
            security=tls_security("client", place),
            protocol="tls://",
            scheduler_cls=guarded(Scheduler, "scheduler"),
            scheduler_options=_NO_PAGES,
            worker_extra_args=["--no-dashboard", "--dashboard-address", _NO_PAGES["dashboard_address"], "--no-nanny"],
        )
    except (ValueError, OSError, TypeError) as error:
        hint = "cores and memory of a job are said in Dask's own file, ~/.config/dask/jobqueue.yaml"
        raise UnreadableError("jobqueue.slurm", f"its settings are not complete: {error}", hint=hint) from error
