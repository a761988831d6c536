from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli.cmd_inspect import add_html, add_where, write_html

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.compare import Compare

EXAMPLES = """\
  cuwheel compare without_sm87.whl with_sm87.whl     what an architecture costs
  cuwheel compare bitsandbytes==0.49.2 bitsandbytes==0.50.2
  cuwheel compare old/libfoo.so new/libfoo.so --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a wheel, library, folder, distribution or name==version")
    parser.add_argument("after", metavar="B", help="what to compare it with")
    add_where(parser)
    parser.add_argument("--no-kernels", action="store_true", help="do not compare kernels (faster for large libraries)")
    add_html(parser)


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Compare:
    from cuwheel import api

    answer = api.compare(args.before, args.after, env=args.env, platform=args.platform, kernels=not args.no_kernels)
    write_html(answer, args)
    return answer
