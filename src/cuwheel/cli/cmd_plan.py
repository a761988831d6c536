from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import names, option_values, shared_options
from cuwheel.cli.cmd_check import add_refinement, refinement
from cuwheel.errors import UsageError
from cuwheel.facts.spellings import table

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.plan import Plan
    from cuwheel.verdicts.planning.plan import Wishes

EXAMPLES = """\
  cuwheel plan --for h100,l40,"rtx 4090"       the smallest list for these
  cuwheel plan --for fleet.toml                and the fewest CUDA versions
  cuwheel plan --for fleet.toml --cuda 12.8,13.0 --future
  cuwheel plan --for all --cuda 13.0 --native  every GPU that 13.0 can target
  cuwheel plan --for a6000 --driver-cuda 12.2 --torch-cuda 12.4
  cuwheel plan --for h100 --like old.whl       with the size to expect
  cuwheel plan --read "8.0;9.0+PTX" --on orin  explain an existing list
  cuwheel plan --read "75;80;90" --as bitsandbytes

exit status: 0 every machine is served, 1 some machine is not"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared_options.add_machines(
        parser,
        cuda="the toolkits to build with; default: the fewest and newest that the drivers and torch builds accept",
    )
    shared_options.add_wishes(parser.add_argument_group("wishes"))
    parser.add_argument(
        "--like", metavar="WHEEL", type=names.binary, help="predict the size from this wheel's bytes per architecture"
    )
    parser.add_argument(
        "--cmake", metavar="VERSION", type=option_values.cmake, help="the CMake version that must understand the list"
    )
    reverse = parser.add_argument_group("to read a list instead")
    reverse.add_argument("--read", metavar="LIST", help="explain this architecture list and what it covers")
    reverse.add_argument(
        "--as",
        dest="spelling",
        metavar="SYSTEM",
        choices=table.READ_AS,
        help=f"whose spelling it is: {', '.join(table.READ_AS)}; default: guessed",
    )
    reverse.add_argument(
        "--on",
        metavar="MACHINES",
        type=names.machines("all"),
        action="append",
        default=[],
        help="show how it serves these machines, named as in --for",
    )
    add_refinement(parser)


_PLANS = "cannot be used with --read, which explains an existing list: name its machines with --on"
_READS = "needs an existing list: give it with --read, or name machines with --for"
_OF_READING: tuple[str, ...] = ("spelling", "on")
_OF_PLANNING = ("machines", "future", "native", "specific", "family", "no_ptx", "like", "cmake")
_OPTIONS = {"machines": "--for", "spelling": "--as", "no_ptx": "--no-ptx"}


def refuse_conflicts(args: argparse.Namespace) -> None:
    """All of them at once: options that do not belong to what was asked for, and those that cannot be used together."""
    from cuwheel.verdicts.planning import plan

    strangers = _OF_READING if args.read is None else _OF_PLANNING
    given = [_OPTIONS.get(name, f"--{name}") for name in strangers if getattr(args, name)]
    problems = [f"{', '.join(given)} {_READS if args.read is None else _PLANS}"] if given else []
    problems += plan.conflicting_wishes(_wishes(args)) if args.read is None else ()
    if args.no_jit and args.force_jit:
        problems.append("--no-jit and --force-jit cannot be used together")
    if problems:
        raise UsageError("; ".join(problems), hint="cuwheel plan --help")


def _wishes(args: argparse.Namespace) -> Wishes:
    from cuwheel.verdicts.planning.plan import Wishes

    return Wishes(
        future=args.future, native=args.native, specific=args.specific, family=args.family, ptx=not args.no_ptx
    )


def run(args: argparse.Namespace) -> Plan:
    from cuwheel import api

    if args.read is not None:
        return api.read_list(args.read, *args.on, refine=refinement(args), spelling=args.spelling, cuda=args.cuda)
    made = api.plan(
        *args.machines,
        refine=refinement(args),
        cuda=args.cuda,
        future=args.future,
        native=args.native,
        specific=args.specific,
        family=args.family,
        ptx=not args.no_ptx,
        cmake=args.cmake,
    )
    return api.plan_sizes(made, args.like) if args.like else made
