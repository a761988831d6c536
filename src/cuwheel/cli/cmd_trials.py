from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from cuwheel.report.answer import Answer

EXAMPLES = """\
  cuwheel trials run TRIALS.toml --dry-run    list the conditions
  cuwheel trials run TRIALS.toml              each many times, shuffled
  cuwheel trials run TRIALS.toml --resume     go on, also after a crash
  cuwheel trials run TRIALS.toml --resume --only start=cold --repeats 15
  cuwheel trials report cuwheel-trials --html report.html

A trial's start is on disk before it begins: one without an end is a result
too, where the machine went down under it.

exit status: 0 no failure was seen, 1 a failure was seen"""
_ACTIONS = ("run", "report")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument(
        "place", metavar="PLACE", nargs="?", help="TRIALS.toml; report: the journal's folder, or either"
    )
    add_html(parser)
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "-o", "--output", metavar="FOLDER", type=places.new_folder, help="of the journal (cuwheel-trials, by the file)"
    )
    group.add_argument("--resume", action="store_true", help="go on where an earlier run ended, however it did")
    group.add_argument("--repeats", metavar="N", type=numbers.count, help="of each condition, in place of the file's")
    group.add_argument(
        "--only",
        metavar="AXIS=VALUE",
        type=option_values.choice_of_axis,
        action="append",
        default=[],
        help="only conditions with this value; repeatable",
    )
    group.add_argument("--dry-run", action="store_true", help="list what would be done, and do nothing")


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.action == "report":
        if args.resume or args.repeats or args.only or args.dry_run or args.output:
            raise UsageError(
                "report takes the folder of the journal alone", hint="cuwheel trials report cuwheel-trials"
            )
    elif not args.place:
        raise UsageError(f"{args.action} needs a file of trials", hint=f"cuwheel trials {args.action} TRIALS.toml")


def run(args: argparse.Namespace) -> Answer:
    from cuwheel import api

    if args.action == "report":
        answer = api.trials_report(_folder(args.place))
    else:
        only = dict(each.split("=", 1) for each in args.only)
        answer = api.trials(
            places.file(args.place),
            output=args.output,
            resume=args.resume,
            repeats=args.repeats,
            only=only,
            dry_run=args.dry_run,
        )
    write_html(answer, args)
    return answer


def _folder(place: str | None) -> Path:
    """Of a journal, or of the file whose journal lies beside it."""
    from cuwheel.measuring import campaign

    if place is None or places.is_folder(place):
        return places.folder(place or "cuwheel-trials")
    return campaign.folder_of(places.file(place), None)
