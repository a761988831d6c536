from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cuwheel.cli import numbers, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.report.bench import Bench

EXAMPLES = """\
  cuwheel bench work.py:call                       1, 2 and 4 at once
  cuwheel bench work.py:call --at-once 1,2,4,8,16
  cuwheel bench --env .venv --against .venv-slim work.py:call
  cuwheel bench --with DTYPE=int8 --against DTYPE=float16 work.py:call
  cuwheel bench --against dist/own-1.0-….whl --env .venv work.py:call
  cuwheel bench --save now.json --earlier before.json work.py:call
  cuwheel bench --by processes -- ./solver --size 1000

The function is called without arguments; what its file does when it is
imported is not part of a call. Both sides run by turns, so that drift hits
them alike.

exit status: 0 done, 1 calls failed, or it is worse than the earlier run by
more than noise"""


class _What(argparse.Action):
    """A function, with options before and behind it. Of a command all words behind -- are its own."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        _option: str | None = None,
    ) -> None:
        words = list(values or ())
        if len(words) > 1 and words[0] != "--":
            _, unknown = parser.parse_known_args(words[1:], namespace)
            words = [words[0], *unknown, *namespace.what]
        namespace.what = words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "cuwheel bench [options] FILE:NAME | -- COMMAND ..."
    parser.add_argument(
        "what",
        metavar="FILE:NAME",
        nargs=argparse.REMAINDER,
        action=_What,
        help="a function of a Python file; or -- and a command",
    )
    add_html(parser)
    parser.add_argument("--save", metavar="FILE", type=places.new_file, help="also write the answer as JSON")
    load = parser.add_argument_group("the load")
    load.add_argument(
        "--at-once",
        metavar="NUMBERS",
        type=numbers.counts,
        default=(1, 2, 4),
        help="calls at the same time, one level after the other (1,2,4)",
    )
    load.add_argument(
        "--by", choices=("threads", "processes"), default="threads", help="what makes the calls (threads)"
    )
    load.add_argument("--calls", metavar="N", type=numbers.count, help="calls per level, at most")
    load.add_argument("--seconds", metavar="S", type=numbers.seconds, default=5.0, help="seconds per level, about (5)")
    load.add_argument(
        "--blocks", metavar="N", type=numbers.count, default=5, help="blocks that a level is measured in (5)"
    )
    load.add_argument("--warm-up", metavar="N", type=numbers.index, default=3, help="calls before measuring (3)")
    load.add_argument(
        "--timeout", metavar="S", type=numbers.seconds, default=600.0, help="time limit for a block (600)"
    )
    sides = parser.add_argument_group("what is compared")
    sides.add_argument("--env", metavar="FOLDER", type=places.environment, help="the Python environment of both sides")
    sides.add_argument(
        "--with",
        dest="settings",
        metavar="SETTING",
        action="append",
        default=[],
        type=option_values.bench_setting,
        help="NAME=VALUE, an environment's folder, a wheel or name==version; repeatable",
    )
    sides.add_argument(
        "--against",
        metavar="SETTING",
        action="append",
        default=[],
        type=option_values.bench_setting,
        help="the same, for the side to compare with; repeatable",
    )
    sides.add_argument(
        "--earlier", metavar="FILE", type=places.file, help="the JSON of an earlier run, to compare with"
    )
    sides.add_argument(
        "--noise",
        metavar="RATE",
        type=numbers.chance,
        default=0.05,
        help="difference between two runs to ignore (0.05)",
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    words = args.what
    if not words or words == ["--"]:
        raise UsageError("nothing to measure was given", hint="cuwheel bench work.py:call, or -- COMMAND")
    if words[0] != "--" and len(words) > 1:
        raise UsageError(
            f"{words[1]!r} is no option of bench, and one function is measured at a time",
            hint="a command goes after --: cuwheel bench -- COMMAND",
        )


def run(args: argparse.Namespace) -> Bench:
    from cuwheel import api
    from cuwheel.proving.request import BenchRequest
    from cuwheel.report.answer import to_json
    from cuwheel.support import files

    what = args.what[1:] if args.what[0] == "--" else args.what[0]
    if isinstance(what, str):
        places.file_of(what.rpartition(":")[0] or what, "cuwheel bench work.py:call, or -- COMMAND")
    answer = api.bench(request_of(BenchRequest, args, what=what))
    if args.save:
        files.write(args.save, to_json(answer))
    write_html(answer, args)
    return answer
