from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.gpus import Gpus

EXAMPLES = """\
  cuwheel gpus                       all GPUs
  cuwheel gpus 'rtx 5060 ti' h100    these two
  cuwheel gpus 9.0                   all of one capability (also 90, sm_90, 90a)
  cuwheel gpus jetson                all whose name contains it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="*",
        help="the name of a GPU or part of it, or a capability",
    )


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Gpus:
    from cuwheel import api

    return api.gpus(*args.name)
