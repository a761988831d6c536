from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import names, places
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.explain import Explain

EXAMPLES = """\
  cuwheel explain build.log
  pip install flash-attn 2>&1 | cuwheel explain
  cuwheel explain cuwheel-record                from cuwheel record
  cuwheel explain ci.txt --on gpu07.json        (from doctor --save)
  cuwheel explain error.txt --here              looks at this machine too
  cuwheel explain error.txt --wheel x.whl --gpu 'rtx 5060 ti'
  cuwheel explain build.log --report investigation.md
  cuwheel explain --list                        all known causes

exit status: 0 a cause was found, 1 none is known"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "log",
        metavar="LOG",
        nargs="?",
        help="a build log, traceback, CI output or RECORD[:N]; without it, or with -, standard input",
    )
    parser.add_argument("--list", action="store_true", help="list all known causes")
    parser.add_argument(
        "--report", metavar="FILE", type=places.new_file, help="write the investigation as a Markdown document"
    )
    group = parser.add_argument_group("what else you know")
    group.add_argument(
        "--on", metavar="PROFILE", type=names.profile, help="the machine it failed on, from doctor --save"
    )
    group.add_argument("--here", action="store_true", help="it failed on this machine: look at it too")
    group.add_argument("--gpu", metavar="NAME", type=names.gpu, help="the GPU, by name or capability")
    group.add_argument(
        "--wheel", metavar="WHEEL", type=names.binary, help="a wheel that might help: check whether it would run"
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.list:
        return
    if args.on and args.here:
        raise UsageError("--on and --here cannot be used together")
    if args.wheel and not (args.gpu or args.on or args.here):
        raise UsageError("--wheel needs a machine to check for", hint="add --gpu NAME, --on PROFILE or --here")
    if args.log is None and sys.stdin.isatty():
        raise UsageError("no log was given", hint="cuwheel explain build.log, or pipe one into it")


def run(args: argparse.Namespace) -> Explain:
    from cuwheel import api

    if args.list:
        return api.causes()
    piped = args.log in (None, "-")
    source = sys.stdin.buffer if piped else Path(args.log)
    answer = api.explain(source, on=args.on, here=args.here, wheel=args.wheel, gpu=args.gpu)
    if args.report:
        from cuwheel.report import investigation

        investigation.save(answer, args.report)
    return answer
