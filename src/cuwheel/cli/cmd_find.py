from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuwheel.cli import numbers, option_values, places, shared_options
from cuwheel.cli.cmd_check import add_refinement, refinement
from cuwheel.cli.cmd_check import refuse_conflicts as refuse_conflicts_of_machines
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.find import Find

EXAMPLES = """\
  cuwheel find bitsandbytes                for this machine
  cuwheel find torch --on 'gtx 1080 ti'    the newest release with code for it
  cuwheel find 'cupy-cuda12x>=13' --on fleet.toml
  cuwheel find foo --index https://wheels.example.com/simple
  cuwheel find foo --no-index --find-links dist

An index that `cuwheel publish` wrote has facts of every wheel. Of other wheels
the libraries are read, the best candidate first, and nothing of them is kept.

exit status: 0 there is one that runs, 1 there is none"""


def add_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "wanted",
        metavar="NAME",
        nargs="?" if optional else None,
        type=option_values.package,
        help="a package, perhaps with versions: 'torch>=2.5'",
    )
    shared_options.add_on(parser)
    parser.add_argument(
        "--gpu",
        dest="gpus",
        metavar="NUMBER",
        type=numbers.index,
        action="append",
        default=[],
        help="only this GPU of this machine, as nvidia-smi numbers them; repeatable",
    )
    parser.add_argument(
        "--env", metavar="FOLDER", type=places.environment, help="the Python environment to find it for"
    )
    add_places(parser)
    add_html(parser)
    add_refinement(parser)


def add_places(parser: argparse.ArgumentParser) -> None:
    """Where candidates come from; `install` takes them too."""
    group = parser.add_argument_group("where to look")
    shared_options.add_indexes(group)
    group.add_argument(
        "--find-links",
        metavar="PLACE",
        type=places.links,
        action="append",
        default=[],
        help="a folder of wheels, or a page that links to them; repeatable",
    )
    group.add_argument(
        "--catalogue",
        dest="catalogues",
        metavar="PLACE",
        type=places.place,
        action="append",
        default=[],
        help="a folder or URL that cuwheel catalogue wrote, asked before wheels are read; repeatable",
    )
    group.add_argument("--no-index", action="store_true", help="use no index, only --find-links")
    group.add_argument("--pre", action="store_true", help="also consider pre-releases")
    group.add_argument(
        "--budget",
        metavar="SIZE",
        type=numbers.size,
        help="download at most this much to look into wheels (default: 2GB)",
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    refuse_conflicts_of_machines(args)
    if args.gpus and args.on:
        raise UsageError("--gpu chooses GPUs of this machine: it cannot be used with --on")
    if args.no_index and args.indexes:
        raise UsageError("--no-index and --index cannot be used together")


def fields_of(args: argparse.Namespace) -> dict[str, Any]:
    """What is not called like its option; `install` asks for the same."""
    from cuwheel.delivery.request import BUDGET

    return {"wanted": args.wanted or "", "refine": refinement(args), "budget": args.budget or BUDGET}


def run(args: argparse.Namespace) -> Find:
    from cuwheel import api
    from cuwheel.delivery.request import FindRequest

    answer = api.find(request_of(FindRequest, args, **fields_of(args)))
    write_html(answer, args)
    return answer
