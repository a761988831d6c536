from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli.cmd_inspect import add_html, add_target, write_html

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.kernels import Kernels

EXAMPLES = """\
  cuwheel kernels libfoo.so                  how many, for which architectures
  cuwheel kernels libfoo.so gemm             those whose name contains gemm
  cuwheel kernels libfoo.so 'kDequant*half'  those whose name matches
  cuwheel kernels libfoo.so _Z9vectorAddPKf  where it is and where missing

exit status: 0 found, 1 no kernel has that name"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument(
        "pattern", metavar="NAME", nargs="?", help="part of a kernel's name, mangled or plain; * and ? match any text"
    )
    add_html(parser)


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Kernels:
    from cuwheel import api

    answer = api.kernels(args.target, args.pattern, env=args.env, platform=args.platform)
    write_html(answer, args)
    return answer
