from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places, shared_options
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.catalogue import Catalogue

EXAMPLES = """\
  cuwheel catalogue list                       what ships with cuwheel
  cuwheel catalogue list --on 'gtx 1080 ti'    the last release with code for it
  cuwheel catalogue add torch vllm --to facts  collect, or go on after a break
  cuwheel catalogue list facts
  cuwheel find torch --on h100 --catalogue facts

Of each package the newest release of each minor version is taken, and of its
wheels one for the platform. Only the libraries in it are downloaded, once, and
nothing of them is kept but the facts.

exit status: 0 done, 1 some wheels could not be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("add", "list"), help="add, list")
    parser.add_argument("names", metavar="NAME", nargs="*", help="add: packages, perhaps with versions; list: a place")
    parser.add_argument("--to", metavar="FOLDER", type=places.new_folder, help="add: the catalogue's folder")
    shared_options.add_on(parser)
    group = parser.add_argument_group("what is added")
    shared_options.add_indexes(group)
    group.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="platform of the wheels (default: Linux x86-64)"
    )
    group.add_argument(
        "--days", metavar="N", type=numbers.count, help="only releases of the last N days (default: 730)"
    )
    group.add_argument(
        "--budget", metavar="SIZE", type=numbers.size, help="download at most this much (default: no limit)"
    )
    shared_options.add_cluster(group, "read by the workers of a cluster")


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.action == "add":
        if not args.names or not args.to:
            raise UsageError("add needs packages and --to", hint="cuwheel catalogue add torch --to catalogue")
        if args.on:
            raise UsageError("--on belongs to list", hint="cuwheel catalogue list --on h100")
    elif args.to or args.indexes or args.platform or args.days or args.budget or args.cluster:
        raise UsageError("only add takes --to, --index, --platform, --days, --budget and --cluster")
    elif len(args.names) > 1:
        raise UsageError("list takes one place", hint="cuwheel catalogue list FOLDER")


def run(args: argparse.Namespace) -> Catalogue:
    from cuwheel import api
    from cuwheel.delivery.request import LINUX, TWO_YEARS

    if args.action == "list":
        return api.catalogue_list(args.names[0] if args.names else None, on=args.on)
    return api.catalogue(
        args.names,
        to=args.to,
        indexes=args.indexes,
        platform=args.platform or LINUX,
        days=args.days or TWO_YEARS,
        budget=args.budget,
        cluster=args.cluster,
    )
