from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.answer import Answer

EXAMPLES = """\
  cuwheel cluster init                            certificates, once
  cuwheel cluster scheduler tls://0.0.0.0:8786    on one machine
  cuwheel cluster worker tls://build01:8786       on each of the others
  cuwheel cluster worker tls://build01:8786 --cores 8 --memory 32GB
  cuwheel cluster status tls://build01:8786
  cuwheel cluster stop tls://build01:8786
  cuwheel build --for h100,l40 --cluster tls://build01:8786

Only tls:// addresses are used, also on this machine: whoever reaches a cluster
can run programs as the one who started it. insecure+tcp://127.0.0.1:PORT goes
without, for a machine that nobody else is on.

exit status: 0 done, or the cluster has workers; 1 it has none that can be used"""
_ACTIONS = ("init", "scheduler", "worker", "status", "stop")
_BELONG = {
    "output": ("init",),
    "certificate": ("scheduler", "worker", "status", "stop"),
    "name": ("worker",),
    "cores": ("worker",),
    "memory": ("worker",),
    "once": ("worker",),
    "ready": ("scheduler",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="tls://HOST:PORT")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", type=places.new_folder, help="init: where the certificates go"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        type=places.file,
        help="the file made by init (default: of the folder CUWHEEL_CLUSTER, or this user's)",
    )
    worker = parser.add_argument_group("worker")
    worker.add_argument("--name", metavar="NAME", type=option_values.distribution, help="as reports show it")
    worker.add_argument("--cores", metavar="N", type=numbers.count, help="cores that it may use (default: all)")
    worker.add_argument("--memory", metavar="SIZE", type=numbers.size, help="memory that it may use (default: all)")
    worker.add_argument("--once", action="store_true", help="end with the scheduler, do not wait for it")
    scheduler = parser.add_argument_group("scheduler")
    scheduler.add_argument(
        "--ready", metavar="FILE", type=places.new_file, help="written with the address as soon as it listens"
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    for name, actions in _BELONG.items():
        if getattr(args, name) and args.action in _ACTIONS and args.action not in actions:
            raise UsageError(f"--{name} does not belong to {args.action}", hint=f"it belongs to {', '.join(actions)}")
    if args.action == "init":
        if args.address:
            raise UsageError("init takes no address", hint="cuwheel cluster init -o FOLDER")
    elif not args.address:
        raise UsageError(f"{args.action} needs an address", hint=f"cuwheel cluster {args.action} tls://HOST:8786")


def run(args: argparse.Namespace) -> Answer:
    from cuwheel import api

    certificate = args.certificate
    if args.action == "init":
        return api.cluster_init(args.output)
    if args.action == "scheduler":
        return api.cluster_scheduler(args.address, certificate=certificate, ready=args.ready)
    if args.action == "worker":
        from cuwheel.clusters.service import WorkerWish

        wish = WorkerWish(name=args.name or "", cores=args.cores, memory=args.memory, once=args.once)
        return api.cluster_worker(args.address, wish, certificate=certificate)
    if args.action == "stop":
        return api.cluster_stop(args.address, certificate=certificate)
    return api.cluster(args.address, certificate=certificate)
