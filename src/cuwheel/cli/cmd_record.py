from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cuwheel.cli import places, shared_options
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from cuwheel.report.matrix import Matrix
    from cuwheel.report.record import Recorded

EXAMPLES = """\
  cuwheel record -- pip install --no-binary :all: mypackage
  cuwheel record -- make -j8
  cuwheel record -o before -- cmake --build build
  cuwheel record --trace build.trace.json -- python -m build
  cuwheel record --diff -- make               and why a call fails there alone
  cuwheel record --matrix matrix.toml         each configuration, a table
  cuwheel replay cuwheel-record               the first call that failed

The command runs as it would by itself, with its own input, output and exit
status. The report goes to stderr, and in full to report.json in the record.
With --json the object goes to stdout, and the command's output to stderr.

exit status: the command's own; 128+n if signal n ended it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "cuwheel record [options] -- COMMAND ..."
    parser.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the build command and its arguments"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=places.new_folder,
        help="where to write the record (cuwheel-record, or -2, …)",
    )
    parser.add_argument("--trace", metavar="FILE", type=places.new_file, help="write a timeline for Perfetto or Chrome")
    parser.add_argument(
        "--compile-commands", metavar="FILE", type=places.new_file, help="write compile_commands.json for editors"
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="if a compiler call fails, run it with what differs from this shell (of a matrix, from the nearest "
        "configuration that works) to find the cause, as `replay --diff` does",
    )
    several = parser.add_argument_group("several commands")
    several.add_argument(
        "--matrix", metavar="FILE", type=places.file, help="run and record each configuration of this file"
    )
    several.add_argument("--resume", action="store_true", help="keep what an earlier --matrix finished")
    several.add_argument("--dry-run", action="store_true", help="with --matrix: list the configurations")
    how = parser.add_argument_group("how it records")
    how.add_argument("--no-mask", action="store_true", help="do not mask secrets in variables and arguments")
    how.add_argument("--no-phases", action="store_true", help="do not make nvcc time its inner programs")
    how.add_argument(
        "--way",
        choices=("auto", "preload", "watch", "path"),
        default="auto",
        help="see every program that starts (preload on Linux, watch on Windows), or replace the compilers on PATH and "
        "in CUDA_HOME (path)",
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    command = shared_options.command(args)
    if args.matrix and command:
        raise UsageError(
            "--matrix takes its commands from the file, not from the command line",
            hint="cuwheel record --matrix matrix.toml",
        )
    if args.matrix and (args.trace or args.compile_commands):
        raise UsageError("--trace and --compile-commands cannot be used with --matrix")
    if not args.matrix and (args.resume or args.dry_run):
        raise UsageError("--resume and --dry-run need --matrix", hint="cuwheel record --matrix matrix.toml --dry-run")
    if args.diff and args.dry_run:
        raise UsageError("--diff runs calls, and --dry-run runs nothing: choose one")
    if not args.matrix and not command:
        raise UsageError("no command to record was given", hint="cuwheel record -- make -j8")


def run(args: argparse.Namespace) -> Recorded | Matrix:
    from cuwheel import api
    from cuwheel.building.recording.instructions import Wish

    wish = Wish(masked=not args.no_mask, phases=not args.no_phases, way=args.way)
    if args.matrix:
        return api.record_matrix(
            args.matrix, output=args.output, resume=args.resume, dry_run=args.dry_run, wish=wish, diff=args.diff
        )
    return api.record(
        shared_options.command(args),
        output=args.output,
        wish=wish,
        trace=args.trace,
        compile_commands=args.compile_commands,
        quiet_stdout=args.json,
        diff=args.diff,
    )
