from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import values
from cuwheel.cli.common import CUDA_VERSIONS, FOR, REFINEMENT, refinement
from cuwheel.cli.options import Command, Option, flat, group
from cuwheel.errors import UsageError
from cuwheel.facts import spellings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


# What a list may have beyond what it must.
_WANTS = ("future", "native", "specific", "family", "no-ptx")


def wants(text: str) -> list[str]:
    """Reads what is wanted besides, with commas between: `future,native`."""
    return values.each_of(values.parts(text), values.one_of(*_WANTS))


def _wanted(args: Namespace) -> dict[str, bool]:
    """The fields of `PlanOptions`."""
    return {each: each in args.want for each in _WANTS[:-1]} | {"ptx": "no-ptx" not in args.want}


_PLAN, _READ = ("plan",), ("read",)
_OPTIONS = (
    FOR._replace(of=_PLAN),
    CUDA_VERSIONS._replace(
        help="the toolkits to build with (default: as few and as new as the drivers and torch builds accept)"
    ),
    Option("--like WHEEL", "predict the size from this wheel's bytes per architecture", values.binary, of=_PLAN),
    Option(
        "--want WORDS",
        "future: add PTX for GPUs that do not exist yet; native: machine code for every GPU; specific, family: 90a or "
        "100f where possible; no-ptx: no GPU may depend on PTX; with commas",
        wants,
        many=True,
        of=_PLAN,
    ),
    group(
        "to read a list instead",
        Option("--read LIST", "explain this architecture list and what it covers"),
        Option(
            "--as SYSTEM",
            f"which build system wrote it: {', '.join(spellings.READ_AS)} (default: guessed)",
            spellings.READ_AS,
            field="spelling",
            of=_READ,
        ),
        Option(
            "--on MACHINES",
            "show how it serves these machines, named as in --for",
            values.machines_or_all,
            many=True,
            of=_READ,
        ),
    ),
    REFINEMENT,
)


def _refuse(args: Namespace) -> Iterator[UsageError]:
    from cuwheel.verdicts.planning import plan

    way = "plan" if args.read is None else "read"
    strange = ", ".join(row.name for row in flat(_OPTIONS) if row.is_strange(args, way))
    if strange and way == "plan":
        yield UsageError(f"{strange} needs an existing list: give it with --read, or name machines with --for")
    elif strange:
        yield UsageError(
            f"{strange} cannot be used with --read, which explains an existing list: name its machines with --on"
        )
    if way == "plan":
        options = plan.PlanOptions(**_wanted(args))
        yield from map(UsageError, plan.conflicting_options(options))


def _plan(args: Namespace) -> Answer:
    from cuwheel import api

    if args.read is not None:
        return api.read_list(args.read, on=args.on, refine=refinement(args), spelling=args.spelling, cuda=args.cuda)
    made = api.plan(*args.machines, refine=refinement(args), cuda=args.cuda, cmake=None, **_wanted(args))
    return api.plan_sizes(made, args.like) if args.like else made


PLAN = Command(
    """\
  cuwheel plan --for h100,l40,"rtx 4090"       the smallest list for these
  cuwheel plan --for fleet.toml                and the fewest CUDA versions
  cuwheel plan --for fleet.toml --cuda 12.8,13.0 --want future
  cuwheel plan --for all --cuda 13.0 --want native  every GPU of 13.0
  cuwheel plan --for a6000 --driver 12.2 --torch-cuda 12.4
  cuwheel plan --for h100 --like old.whl       with the size to expect
  cuwheel plan --read "8.0;9.0+PTX" --on orin  explain an existing list
  cuwheel plan --read "75;80;90" --as bitsandbytes

exit status: 0 every machine is served, 1 some machine is not""",
    _OPTIONS,
    _plan,
    refuse=_refuse,
)
