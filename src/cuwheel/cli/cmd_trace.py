from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places
from cuwheel.cli.common import HTML
from cuwheel.cli.options import Command, Option
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.json and not args.read:
        yield UsageError(
            "stdout is the command's: --json is for --read alone", hint="cuwheel trace -o trace.json -- COMMAND"
        )
    if args.read and (args.command or args.keep):
        yield UsageError("--read reports on an earlier trace and runs nothing", hint="cuwheel trace --read PLACE")
    if not args.read and not args.command:
        yield UsageError("no command to trace was given", hint="cuwheel trace -- python train.py")


def _trace(args: Namespace) -> Answer:
    from cuwheel import api

    traced = None if args.read else api.trace(args.command, keep=args.keep, cupti=args.cupti)
    answer = traced or api.read_trace(args.read)
    api.save_trace(answer, output=args.output, timeline=args.timeline)
    return answer


TRACE = Command(
    """\
  cuwheel trace -- python train.py           what failed, or what was loaded
  cuwheel trace -o trace.json -- pytest      the same as JSON, beside the report
  cuwheel trace --html trace.html -- ./solver
  cuwheel trace --cupti -- ./solver          names kernels of CUDA 12 too
  cuwheel trace --keep lines -- ./solver     keep what the processes wrote
  cuwheel trace --read lines                 the report of it, once more
  cuwheel trace --read trace.json --json     of a file of -o, too

The command runs as it would by itself, with its own input, output and exit
status. The report goes to stderr when it has ended.

It does not see programs that are linked statically or run as another user. Of
programs made with CUDA 11 it sees kernels but not containers, and failed loads
only with a driver for CUDA 12.9 or later.

exit status: the command's own; 128+n if signal n ended it""",
    (
        Option("COMMAND ...", "the program and its arguments"),
        Option("-o --output FILE", "write the answer as JSON too", places.new_file),
        Option("--trace FILE", "write a timeline for Perfetto or Chrome", places.new_file, field="timeline"),
        HTML,
        Option(
            "--cupti [LIBRARY]",
            "also use NVIDIA's profiling library (default: the one found): it names kernels that CUDA 12's runtime "
            "refuses, and measures how long kernels run",
            places.file,
            default=False,
        ),
        Option("--keep FOLDER", "keep the files that the traced processes write", places.new_folder),
        Option("--read PLACE", "report on a folder of --keep, or a file of -o; runs nothing", places.file_or_folder),
    ),
    _trace,
    json="with --read: print one JSON object instead of text",
    refuse=_refuse,
    usage="cuwheel trace [options] -- COMMAND ...",
)
