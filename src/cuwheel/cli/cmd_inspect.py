from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places
from cuwheel.cli.common import HTML, ON
from cuwheel.cli.options import Command, Option, group

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer

_TARGET = Option(
    "TARGET",
    "a wheel or its facts file, a library, executable, object, archive, .fatbin, .cubin, .ptx or folder; "
    "the name of an installed distribution; or name==version",
)


def _inspect(args: Namespace) -> Answer:
    from cuwheel import api

    if args.kernels is not None:
        return api.kernels(args.target, args.kernels or None, env=args.env)
    if args.against is not None:
        return api.compare(args.target, args.against, env=args.env)
    return api.inspect(args.target, env=args.env, entries=args.entries, coverage=args.coverage, on=args.on)


INSPECT = Command(
    """\
  cuwheel inspect bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl
  cuwheel inspect libfoo.so --verbose       parts, dependencies, registration
  cuwheel inspect torch --env .venv         an installed distribution
  cuwheel inspect jaxmg==1.1.1              downloaded from your index
  cuwheel inspect . --html report.html      a folder, as a page
  cuwheel inspect libfoo.so --kernels gemm  where kernels are, and are missing
  cuwheel inspect foo.whl --coverage        kernels x GPUs
  cuwheel inspect old.whl --against new.whl

exit status: 0 everything was read, 1 something is damaged""",
    (
        _TARGET,
        Option("--env FOLDER", "the Python environment to look in", places.packages),
        HTML,
        ON._replace(
            help="with --coverage: GPUs as in check (default: each that code was made for)",
            of=("--coverage",),
        ),
        Option("--entries", "list every entry of every container (with --json)", of=("",)),
        group(
            "instead",
            Option(
                "--kernels [NAME]",
                "list kernels and the cubins they are in; NAME: only those whose name contains or matches it (* and ?)",
                gives="",
            ),
            Option("--coverage", "kernels x GPUs: which kernels lack code for which"),
            Option("--against OTHER", "compare with this one, and show what the change costs in bytes"),
        ),
    ),
    _inspect,
    ways=("--kernels", "--coverage", "--against"),
)
