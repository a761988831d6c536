from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cuwheel.cli import places, shared_options
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from cuwheel.report.trace import Traced

EXAMPLES = """\
  cuwheel trace -- python train.py           what failed, or what was loaded
  cuwheel trace -o trace.json -- pytest      the same as JSON, beside the report
  cuwheel trace --html trace.html -- ./solver
  cuwheel trace --cupti -- ./solver          names kernels of CUDA 12 too
  cuwheel trace --keep lines -- ./solver     keep what the processes wrote
  cuwheel trace --read lines                 the report of it, once more

The command runs as it would by itself, with its own input, output and exit
status. The report goes to stderr when it has ended.

Not seen: programs that are linked statically or run as another user. A program
of CUDA 11 loads its code in private: its kernels are seen and, with a driver
for CUDA 12.9 or later, that a load failed; its containers are not.

exit status: the command's own; 128+n if signal n ended it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "cuwheel trace [options] -- COMMAND ..."
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the program and its arguments")
    parser.add_argument("-o", "--output", metavar="FILE", type=places.new_file, help="write the answer as JSON too")
    parser.add_argument(
        "--trace", dest="timeline", metavar="FILE", type=places.new_file, help="write a timeline for Perfetto or Chrome"
    )
    add_html(parser)
    parser.add_argument(
        "--cupti",
        metavar="LIBRARY",
        nargs="?",
        const=True,
        default=False,
        type=places.file,
        help="also use NVIDIA's profiling library (the one found): names kernels that CUDA 12's runtime refuses, and "
        "measures how long kernels run",
    )
    parser.add_argument("--keep", metavar="FOLDER", type=places.new_folder, help="keep what the processes write here")
    parser.add_argument("--read", metavar="FOLDER", type=places.folder, help="report on what --keep kept; runs nothing")


def refuse_conflicts(args: argparse.Namespace) -> None:
    command = shared_options.command(args)
    if args.json:
        raise UsageError("stdout is the command's: trace has no --json", hint="cuwheel trace -o trace.json -- COMMAND")
    if args.read and (command or args.keep):
        raise UsageError("--read reports on an earlier trace and runs nothing", hint="cuwheel trace --read FOLDER")
    if not args.read and not command:
        raise UsageError("no command to trace was given", hint="cuwheel trace -- python train.py")


def run(args: argparse.Namespace) -> Traced:
    from cuwheel import api

    answer = (
        api.read_trace(args.read)
        if args.read
        else api.trace(shared_options.command(args), keep=args.keep, cupti=args.cupti)
    )
    api.save_trace(answer, output=args.output, timeline=args.timeline)
    write_html(answer, args)
    return answer
