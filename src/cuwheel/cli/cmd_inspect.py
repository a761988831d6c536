from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import option_values, places

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel.report.answer import Answer
    from cuwheel.report.inspect import Inspect

EXAMPLES = """\
  cuwheel inspect bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl
  cuwheel inspect libfoo.so --verbose      parts, dependencies, registration
  cuwheel inspect torch --env .venv        an installed distribution
  cuwheel inspect jaxmg==1.1.1             downloaded from your index
  cuwheel inspect . --html report.html     a folder, as a page
  cuwheel inspect kernel.cubin --json --entries

exit status: 0 everything was read, 1 something is damaged"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    parser.add_argument("--entries", action="store_true", help="list every entry of every container (with --json)")
    parser.add_argument("--whole", action="store_true", help="search every byte for hidden device code")
    add_html(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a wheel or its facts file, a library, executable, object, archive, .fatbin, .cubin, .ptx or folder; "
        "the name of an installed distribution; or name==version",
    )
    add_where(parser)


def add_where(parser: argparse.ArgumentParser, env: Callable[[str], Path] = places.packages) -> None:
    parser.add_argument("--env", metavar="FOLDER", type=env, help="the Python environment to look in")
    parser.add_argument(
        "--platform",
        metavar="TAG",
        type=option_values.platform,
        help="with name==version: the platform of the wheel, such as win_amd64",
    )


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html", metavar="FILE", type=places.new_file, help="also write the report as one self-contained page"
    )


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Inspect:
    from cuwheel import api

    answer = api.inspect(args.target, env=args.env, platform=args.platform, entries=args.entries, whole=args.whole)
    write_html(answer, args)
    return answer


def write_html(answer: Answer, args: argparse.Namespace) -> None:
    if args.html:
        from cuwheel.report import html

        html.save(answer, args.html)
