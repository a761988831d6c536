from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Option, group
from cuwheel.errors import UsageError
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer


def tag(text: str) -> str:
    """A word that tasks may ask for: `gpu:9.0`."""
    if not values.fits(r"[a-z][a-z0-9]*:[A-Za-z0-9._-]{1,40}", text):
        raise UsageError(f"{text[:40]!r} is not a tag", hint="a kind and a name, such as gpu:9.0")
    return text


def listening(text: str) -> str:
    """A host and a port to listen at."""
    host, _, port = text.rpartition(":")
    if not values.fits(r"[\w.\[\]:-]+", host) or not port.isdecimal() or not 0 < bounded.digits(port) < 1 << 16:
        raise UsageError(f"{text[:60]!r} is not HOST:PORT", hint="127.0.0.1:8787")
    return text


_ACTIONS = {
    "init": "make certificates, once",
    "scheduler": "run the scheduler here, until it is stopped",
    "worker": "run a worker here, until it is stopped",
    "status": "show the workers, and what each does",
    "send": "install cuwheel on workers that somebody else started",
    "stop": "end what runs, the workers and the scheduler",
}
_WORKER, _SCHEDULER = ("worker",), ("scheduler",)
_RUNNING = ("scheduler", "worker", "status", "send", "stop")


def _cluster(args: Namespace) -> Answer:
    from cuwheel import api

    if args.action == "init":
        return api.cluster_init()
    if args.action == "scheduler":
        return api.cluster_scheduler(args.address, dashboard=args.dashboard)
    if args.action == "worker":
        from cuwheel.clusters.service import WorkerOptions

        options = WorkerOptions(
            name=args.name or "",
            cores=args.cores,
            memory=args.memory,
            tags=tuple(args.tags or ()),
        )
        return api.cluster_worker(args.address, options)
    if args.action == "send":
        return api.cluster_send(args.address, args.wheel)
    if args.action == "stop":
        return api.cluster_stop(args.address)
    return api.cluster(args.address)


CLUSTER = Command(
    """\
  cuwheel cluster init                            certificates, once
  cuwheel cluster scheduler tls://0.0.0.0:8786    on one machine
  cuwheel cluster worker tls://build01:8786       on each of the others
  cuwheel cluster worker tls://build01:8786 --cores 8 --memory 32GB
  cuwheel cluster status tls://build01:8786
  cuwheel cluster send tls://dask:8786 cuwheel-1.0-py3-none-any.whl
  cuwheel cluster stop tls://build01:8786
  cuwheel build --for h100,l40 --cluster tls://build01:8786

The certificates are in this user's folder, or in the one that CUWHEEL_CLUSTER
names; for a scheduler or worker it may name a certificate file.

Only tls:// addresses are used, even on one machine: anybody who can connect to
a cluster can run programs as the user who started it. On a machine that nobody
else uses, insecure+tcp://127.0.0.1:PORT works without certificates.

exit status: 0 done, or the cluster has workers; 1 it has none that can be used""",
    (
        Option("ADDRESS", "tls://HOST:PORT", of=_RUNNING),
        Option("WHEEL", "cuwheel itself, the core's wheel beside it", places.file, of=("send",)),
        group(
            "worker",
            Option("--name NAME", "its name in reports", values.distribution, of=_WORKER),
            Option("--cores N", "cores that it may use (default: all)", values.count, of=_WORKER),
            Option("--memory SIZE", "memory that it may use (default: all)", values.size, of=_WORKER),
            Option("--tag NAME", "what tasks may ask for, such as gpu:9.0", tag, field="tags", many=True, of=_WORKER),
        ),
        group(
            "scheduler",
            Option("--dashboard HOST:PORT", "serve Dask's pages there, to everybody", listening, of=_SCHEDULER),
        ),
    ),
    _cluster,
    actions=_ACTIONS,
    exits=dict.fromkeys(("status", "send"), "0 it has workers, 1 it has none that can be used"),
)
