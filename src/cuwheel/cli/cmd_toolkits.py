from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import names

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.toolkits import Toolkits

EXAMPLES = """\
  cuwheel toolkits                   all versions
  cuwheel toolkits 12.8              one (also 12.8.1, cu128, or 13: its newest)
  cuwheel toolkits --compiles 100f   those that compile for it (or for a GPU)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", metavar="VERSION", nargs="*", help="a CUDA version")
    parser.add_argument(
        "--compiles",
        metavar="TARGET",
        type=names.gpu,
        help="only those that compile for this architecture, capability or GPU",
    )


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Toolkits:
    from cuwheel import api

    return api.toolkits(*args.version, compiles=args.compiles)
