from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.replay import Replay

EXAMPLES = """\
  cuwheel replay cuwheel-record               the first call that failed
  cuwheel replay cuwheel-record:7             call 7
  cuwheel replay cuwheel-record:7 --here      the same call in this shell
  cuwheel replay cuwheel-record:7 --print     the command, to paste
  cuwheel replay cuwheel-record --list        all calls
  cuwheel replay cuwheel-record:7 --diff      why it works in this shell
  cuwheel replay good:7 --diff bad            compare two builds

exit status: the call's own; with --diff 0 if the cause was found"""

_RUNS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "record",
        metavar="RECORD[:N]",
        help="a record's folder and a call's number; default: the first call that failed",
    )
    how = parser.add_argument_group("how it is run")
    how.add_argument("--here", action="store_true", help="run it in this environment, with the compiler found here")
    how.add_argument("--scratch", action="store_true", help="do not overwrite the build's files")
    how.add_argument(
        "--directory", metavar="DIR", type=places.folder, help="run it in this folder, not in the recorded one"
    )
    what = parser.add_argument_group("instead of running it")
    what.add_argument("--list", action="store_true", help="list the calls")
    what.add_argument("--print", "--dry-run", dest="print_", action="store_true", help="print the command to paste")
    what.add_argument(
        "--shell", choices=("posix", "cmd", "powershell"), help="the shell that --print quotes for (default: this one)"
    )
    diff = parser.add_argument_group("to find out what makes the difference")
    diff.add_argument(
        "--diff",
        metavar="RECORD[:M]",
        type=_other_call,
        nargs="?",
        const="",
        help="compare with this environment, or with another call (:M of the same record), and find the culprit",
    )
    diff.add_argument("--no-runs", action="store_true", help="only compare, run nothing")
    diff.add_argument("--max-runs", metavar="N", type=numbers.count, help=f"at most this many runs (default: {_RUNS})")
    diff.add_argument("--timeout", metavar="S", type=numbers.seconds, help="time limit for one run, in seconds")


def _other_call(text: str) -> str:
    """A record's folder, a call of one, or `:M` of the same; nothing: this environment."""
    from cuwheel.building.recording import reader

    if text.startswith(":") and not text[1:].isdecimal():
        raise option_values.wrong(text, "the number of a call, such as :7", hint="cuwheel replay RECORD --list")
    if text and not text.startswith(":"):
        places.folder(reader.split_target(text)[0])
    return text


# Each way to use it, and the options that mean something there.
_WAYS = {
    "--list": (),
    "--print": ("here", "directory", "shell"),
    "--diff": ("here", "directory", "no_runs", "max_runs", "timeout"),
    "running it": ("here", "scratch", "directory"),
}


def refuse_conflicts(args: argparse.Namespace) -> None:
    asked = {"--list": args.list, "--print": args.print_, "--diff": args.diff is not None}
    chosen = [way for way, given in asked.items() if given] or ["running it"]
    if len(chosen) > 1:
        raise UsageError("--list, --print and --diff cannot be used together")
    names = {name for options in _WAYS.values() for name in options}
    unused = sorted(name for name in names - set(_WAYS[chosen[0]]) if getattr(args, name) not in (None, False))
    if unused:
        raise UsageError(
            f"--{unused[0].replace('_', '-')} cannot be used with {chosen[0]}", hint="cuwheel replay --help"
        )
    if args.diff and args.here:
        raise UsageError("--here and --diff RECORD both say what to compare with: choose one")


def run(args: argparse.Namespace) -> Replay:
    from cuwheel import api

    if args.list:
        return api.replay_list(args.record)
    if args.print_:
        return api.replay_print(args.record, here=args.here, directory=args.directory, shell=args.shell)
    if args.diff is not None:
        return api.replay_diff(
            args.record,
            args.diff or None,
            directory=args.directory,
            runs=not args.no_runs,
            most=args.max_runs or _RUNS,
            timeout=args.timeout,
        )
    return api.replay(
        args.record,
        here=args.here,
        scratch=args.scratch,
        directory=args.directory,
        attend=not args.json,
    )
