"""`record` and `replay`: the compiler calls of a build, and each of them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Option, group
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_RUNS = 60
_OUTPUT = Option("-o --output FOLDER", "where to write the record (cuwheel-record, or -2, …)", places.new_folder)
_DIFF = Option(
    "--diff",
    "if a compiler call fails, find out why, as `record diff` does: run it again with what differs from this shell",
)


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if not args.command:
        yield UsageError("no command to record was given", hint="cuwheel record -- make -j8")


def _record(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.building.recording.shims import RecordOptions

    return api.record(
        args.command,
        output=args.output,
        options=RecordOptions(way=args.way),
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
  cuwheel record replay cuwheel-record        the first call that failed, again
  cuwheel record diff cuwheel-record          why it works in this shell

A program called run, replay or diff is recorded with -- before it.

The command runs as it would by itself, with its own input, output and exit
status. The report goes to stderr, and in full to report.json in the record.
With --json the object goes to stdout, and the command's output to stderr.

exit status: the command's own; 128+n if signal n ended it""",
    (
        Option("COMMAND ...", "the build command and its arguments"),
        _OUTPUT,
        _DIFF,
        group(
            "other files, and how programs are seen",
            Option("--trace FILE", "write a timeline for Perfetto or Chrome", places.new_file),
            Option("--compile-commands FILE", "write compile_commands.json for editors", places.new_file),
            Option(
                "--way {auto,preload,watch,path}",
                "how it sees programs: every one that starts (preload on Linux, watch on Windows), or only compilers "
                "on PATH and in CUDA_HOME, which it replaces (path)",
                default="auto",
            ),
            more=True,
        ),
    ),
    _record,
    refuse=_refuse,
    usage="cuwheel record [options] -- COMMAND ...",
)


def call(text: str) -> str:
    """A record's folder, a call of one, or `:M` of the same; nothing: this environment."""
    from cuwheel.building.recording import reader

    if text.startswith(":") and not text[1:].isdecimal():
        raise values.wrong(text, "the number of a call, such as :7", hint="cuwheel record replay RECORD --list")
    if text and not text.startswith(":"):
        places.folder(reader.split_target(text)[0])
    return text


_CALL = Option(
    "RECORD[:N]", "a record's folder and a call's number; default: the first call that failed", field="record"
)
_DIRECTORY = Option("--directory FOLDER", "run it in this folder instead of the recorded one", places.folder)
_SEARCH = (
    Option("--max-runs N", f"at most this many runs; 0: only compare (default: {_RUNS})", values.index),
    Option("--timeout S", "time limit for one run, in seconds", values.seconds),
)


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
    return api.replay(args.record, here=args.here, scratch=args.scratch, directory=args.directory, attend=not args.json)


REPLAY = Command(
    """\
  cuwheel record replay cuwheel-record               the first call that failed
  cuwheel record replay cuwheel-record:7             call 7
  cuwheel record replay cuwheel-record:7 --here      the same call in this shell
  cuwheel record replay cuwheel-record:7 --print     the command, to paste
  cuwheel record replay cuwheel-record --list        all calls
  cuwheel record diff cuwheel-record:7               why it works in this shell

exit status: the call's own""",
    (
        _CALL,
        group(
            "how it is run",
            Option(
                "--here",
                "run it with this shell's environment and compiler",
                of=("--print", "running it"),
            ),
            Option("--scratch", "do not overwrite the build's files", of=("running it",)),
            _DIRECTORY._replace(of=("--print", "running it")),
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
    ),
    _replay,
    ways=("--list", "--print", "running it"),
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
    line="find what makes a recorded call fail only there: variables, options, files",
)
