"""A cluster to hand tasks to: found at its address, or started for one run and ended with it."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cuwheel.clusters import certificates, service
from cuwheel.errors import ToolError, UnreadableError
from cuwheel.machine import resources
from cuwheel.support import extras, log, process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.clusters.target import Target

CORES = 2  # of a local worker: configuring a project needs one, however many compilers could run
_START_S = 60.0
_SLURM_WORKERS = 4
_LOCAL_DAYS = 30  # longer than any run; its certificates go with it
_LOOK_S = 0.05


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


@contextlib.contextmanager
def opened(found: Target, certificate: Path | None = None) -> Iterator[Connection]:
    service.settings()
    if found.kind == "local":
        with _local(found.workers) as made:
            yield made
    elif found.kind == "slurm":
        with _slurm(found.workers or _SLURM_WORKERS, certificate) as made:
            yield made
    else:
        security = certificates.security("client", certificate) if found.secured else None
        yield Connection(address=found.address, security=security)


@contextlib.contextmanager
def _local(workers: int) -> Iterator[Connection]:
    """Workers of two cores each, on loopback, ended with the block.

    With certificates of their own: every user of this machine reaches its loopback.
    """
    certificates.require()
    cores, memory = resources.available()
    count = workers or max(1, cores // CORES)
    each = max(1, min(CORES, cores // count))
    ours = [*process.module(sys.executable, "cuwheel"), "cluster"]
    with tempfile.TemporaryDirectory(prefix="cuwheel-cluster-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ready, output = folder / "address", folder / "log.txt"
        certificates.make(folder / "certificates", days=_LOCAL_DAYS)
        environ = {**os.environ, certificates.FOLDER: str(folder / "certificates")}
        stack.enter_context(
            process.beside(
                [*ours, "scheduler", "tls://127.0.0.1:0", "--ready", str(ready), "--quiet"],
                output=output,
                env={**environ, service.CLIENT: str(os.getpid())},
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
                *limit,
                "--once",
                "--quiet",
            ]
            stack.enter_context(process.beside([*ours, *words], output=output, env=environ))
        log.info("started %d workers of %d cores on this machine", count, each)
        security = certificates.security("client", folder / "certificates")
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
    extras.require("Slurm", modules=["dask_jobqueue"], programs=["sbatch"], extra="cluster")
    from dask_jobqueue.slurm import SLURMCluster

    security = certificates.security("client", certificate)
    inside = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--no-nanny"]
    try:
        made = SLURMCluster(
            processes=1,
            security=security,
            protocol="tls://",
            scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            worker_extra_args=inside,
        )
    except (ValueError, OSError, TypeError) as error:
        raise UnreadableError(
            "jobqueue.slurm", f"its settings are not complete: {error}", hint="see docs/cluster.md, Slurm"
        ) from error
    with made:
        made.scale(jobs=workers)
        yield Connection(address=made.scheduler_address, security=security, expected=workers, patience=24 * 3600.0)
