"""`record` and `replay`: the compiler calls of a build, and each of them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Conflict, Option, group
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.report.answer import Answer

_MATRIX = ("--matrix",)
_RUNS = 60
_OUTPUT = Option("-o --output FOLDER", "where to write the record (cuwheel-record, or -2, …)", places.new_folder)
_DIFF = Option(
    "--diff",
    "if a compiler call fails, run it with what differs from this shell (of a matrix, from the nearest configuration "
    "that works) to find the cause, as `record diff` does",
)
_RESUME = Option("--resume", "keep what an earlier run of the matrix finished")
_DRY_RUN = Option("--dry-run", "list the configurations of the matrix")
_HOW = group(
    "how it records",
    Option("--no-mask", "do not mask secrets in variables and arguments", field="masked", gives=False),
    Option("--no-phases", "do not make nvcc time its inner programs", field="phases", gives=False),
    Option(
        "--way {auto,preload,watch,path}",
        "see every program that starts (preload on Linux, watch on Windows), or replace the compilers on PATH and in "
        "CUDA_HOME (path)",
        default="auto",
    ),
)
_CHOOSE_ONE = Conflict(("--diff", "--dry-run"), "--diff runs calls, and --dry-run runs nothing: choose one")


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.matrix and args.command:
        yield UsageError(
            "--matrix takes its commands from the file, not from the command line",
            hint="cuwheel record --matrix matrix.toml",
        )
    if not args.matrix and not args.command and not (args.resume or args.dry_run):
        yield UsageError("no command to record was given", hint="cuwheel record -- make -j8")


def _record(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.building.recording.shims import RecordOptions

    options = RecordOptions(masked=args.masked, phases=args.phases, way=args.way)
    if args.matrix:
        return api.record_matrix(
            args.matrix, output=args.output, resume=args.resume, dry_run=args.dry_run, options=options, diff=args.diff
        )
    return api.record(
        args.command,
        output=args.output,
        options=options,
        trace=args.trace,
        compile_commands=args.compile_commands,
        quiet_stdout=args.json,
        diff=args.diff,
    )


RECORD = Command(
    """\
  cuwheel record -- pip install --no-binary :all: mypackage
  cuwheel record -- make -j8
  cuwheel record -o before -- cmake --build build
  cuwheel record --trace build.trace.json -- python -m build
  cuwheel record --diff -- make               and why a call fails there alone
  cuwheel record matrix matrix.toml           each configuration, a table
  cuwheel record replay cuwheel-record        the first call that failed, again
  cuwheel record diff cuwheel-record          why it works in this shell

A program called run, replay, diff or matrix is recorded with -- before it.

The command runs as it would by itself, with its own input, output and exit
status. The report goes to stderr, and in full to report.json in the record.
With --json the object goes to stdout, and the command's output to stderr.

exit status: the command's own; 128+n if signal n ended it""",
    (
        Option("COMMAND ...", "the build command and its arguments"),
        _OUTPUT,
        Option("--trace FILE", "write a timeline for Perfetto or Chrome", places.new_file, of=("",)),
        Option("--compile-commands FILE", "write compile_commands.json for editors", places.new_file, of=("",)),
        _DIFF,
        group(
            "several commands",
            Option("--matrix FILE", "run and record each configuration of this file", places.file),
            _RESUME._replace(of=_MATRIX),
            _DRY_RUN._replace(of=_MATRIX),
        ),
        _HOW,
    ),
    _record,
    conflicts=(_CHOOSE_ONE,),
    ways=_MATRIX,
    refuse=_refuse,
    usage="cuwheel record [options] -- COMMAND ...",
)

RECORD_MATRIX = Command(
    """\
  cuwheel record matrix matrix.toml --dry-run    list the configurations
  cuwheel record matrix matrix.toml              run and record each
  cuwheel record matrix matrix.toml --resume     go on after a break""",
    (Option("FILE", "the matrix", places.file, field="matrix"), _OUTPUT, _RESUME, _DRY_RUN, _DIFF, _HOW),
    _record,
    conflicts=(_CHOOSE_ONE,),
    line="record each configuration of a matrix, and compare how they ended",
)


def call(text: str) -> str:
    """A record's folder, a call of one, or `:M` of the same; nothing: this environment."""
    from cuwheel.building.recording import reader

    if text.startswith(":") and not text[1:].isdecimal():
        raise values.wrong(text, "the number of a call, such as :7", hint="cuwheel replay RECORD --list")
    if text and not text.startswith(":"):
        places.folder(reader.split_target(text)[0])
    return text


_CALL = Option(
    "RECORD[:N]", "a record's folder and a call's number; default: the first call that failed", field="record"
)
_DIRECTORY = Option("--directory DIR", "run it in this folder, not in the recorded one", places.folder)
_SEARCH = (
    Option("--max-runs N", f"at most this many runs, 0 to compare alone (default: {_RUNS})", values.index),
    Option("--timeout S", "time limit for one run, in seconds", values.seconds),
)


def _refuse_replay(args: Namespace) -> Iterator[UsageError]:
    if args.diff and args.here:
        yield UsageError("--here and --diff RECORD both say what to compare with: choose one")


def _diff(args: Namespace) -> Answer:
    from cuwheel import api

    return api.replay_diff(
        args.record,
        args.diff or None,
        directory=args.directory,
        most=_RUNS if args.max_runs is None else args.max_runs,
        timeout=args.timeout,
    )


def _replay(args: Namespace) -> Answer:
    from cuwheel import api

    if args.list:
        return api.replay_list(args.record)
    if args.print:
        return api.replay_print(args.record, here=args.here, directory=args.directory, shell=args.shell)
    if args.diff is not None:
        return _diff(args)
    return api.replay(args.record, here=args.here, scratch=args.scratch, directory=args.directory, attend=not args.json)


REPLAY = Command(
    """\
  cuwheel replay cuwheel-record               the first call that failed
  cuwheel replay cuwheel-record:7             call 7
  cuwheel replay cuwheel-record:7 --here      the same call in this shell
  cuwheel replay cuwheel-record:7 --print     the command, to paste
  cuwheel replay cuwheel-record --list        all calls
  cuwheel replay cuwheel-record:7 --diff      why it works in this shell
  cuwheel replay good:7 --diff bad            compare two builds

exit status: the call's own; with --diff 0 if the cause was found""",
    (
        _CALL,
        group(
            "how it is run",
            Option(
                "--here",
                "run it in this environment, with the compiler found here",
                of=("--print", "--diff", "running it"),
            ),
            Option("--scratch", "do not overwrite the build's files", of=("running it",)),
            _DIRECTORY._replace(of=("--print", "--diff", "running it")),
        ),
        group(
            "instead of running it",
            Option("--list", "list the calls"),
            Option("--print --dry-run", "print the command to paste"),
            Option(
                "--shell {posix,cmd,powershell}",
                "the shell that --print quotes for (default: this one)",
                of=("--print",),
            ),
        ),
        group(
            "to find out what makes the difference",
            Option(
                "--diff [RECORD[:M]]",
                "compare with this environment, or with another call (:M of the same record), and find the culprit",
                call,
                gives="",
            ),
            *(each._replace(of=("--diff",)) for each in _SEARCH),
        ),
    ),
    _replay,
    ways=("--list", "--print", "--diff", "running it"),
    refuse=_refuse_replay,
    gone={"--no-runs": "--max-runs 0"},
)

RECORD_DIFF = Command(
    """\
  cuwheel record diff cuwheel-record:7      why call 7 works in this shell
  cuwheel record diff good:7 bad            compare two builds

exit status: 0 if the cause was found""",
    (
        _CALL,
        Option("[OTHER]", "another call, or :M of the same record; default: this environment", call, field="diff"),
        _DIRECTORY,
        *_SEARCH,
    ),
    _diff,
    gone={"--no-runs": "--max-runs 0"},
    line="find what makes a recorded call fail only there: variables, options, files",
)
