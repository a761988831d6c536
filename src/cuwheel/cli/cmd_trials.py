from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places, shared_options
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
  cuwheel trials bisect TRIALS.toml --package torch --good 2.9.0 --bad 2.11.0
  cuwheel trials bisect TRIALS.toml --source . --good v1.0 --bad HEAD --for h100
  cuwheel trials install-service TRIALS.toml  resume after each boot
  cuwheel trials remove-service TRIALS.toml

A trial's start is on disk before it begins: one without an end is a result
too, where the machine went down under it.

exit status: 0 no failure was seen, 1 a failure was seen; of bisect: 0 found,
1 there is no answer; of remove-service: 1 there was none"""
_ACTIONS = ("run", "report", "bisect", "install-service", "remove-service")
_SERVICES = ("install-service", "remove-service")
# Which options belong to which actions; those of all are not named.
_BELONG = {
    "output": ("run", "bisect", *_SERVICES),
    "resume": ("run", "bisect"),
    "repeats": ("run",),
    "only": ("run", "bisect"),
    "cluster": ("run",),
    "dry_run": ("run", *_SERVICES),
    "html": ("run", "report", "bisect"),
    "good": ("bisect",),
    "bad": ("bisect",),
    "package": ("bisect",),
    "source": ("bisect",),
    "machines": ("bisect",),
    "no_build": ("bisect",),
    "error": ("bisect",),
    "rate": ("bisect",),
    "good_rate": ("bisect",),
    "service": _SERVICES,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument("place", metavar="PLACE", nargs="?", help="TRIALS.toml; report: or the journal's folder")
    add_html(parser)
    group = parser.add_argument_group("what is run")
    group.add_argument("-o", "--output", metavar="FOLDER", type=places.new_folder, help="of the journal")
    group.add_argument("--resume", action="store_true", help="continue an earlier run, however it ended")
    group.add_argument(
        "--repeats", metavar="N", type=numbers.count, help="runs of each condition, instead of the file's number"
    )
    group.add_argument(
        "--only",
        metavar="AXIS=VALUE",
        type=option_values.choice_of_axis,
        action="append",
        default=[],
        help="only conditions with this value; repeatable",
    )
    shared_options.add_cluster(group, "each trial on a worker of a cluster")
    group.add_argument("--dry-run", action="store_true", help="list what would be done, and do nothing")
    _add_bisect(parser)
    service = parser.add_argument_group("services")
    service.add_argument(
        "--service",
        choices=("systemd", "systemd-user", "cron"),
        help="what resumes the trials (default: systemd where it runs, else cron)",
    )


def _add_bisect(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("bisect")
    group.add_argument("--good", metavar="NAME", help="a version or commit without the fault")
    group.add_argument("--bad", metavar="NAME", help="a version or commit with the fault")
    group.add_argument(
        "--package", metavar="NAME", type=option_values.distribution, help="the package whose versions are searched"
    )
    group.add_argument(
        "--source", metavar="FOLDER", type=places.folder, help="the git repository whose commits are searched"
    )
    shared_options.add_for(group, "of commits: the GPUs that `build` builds each for")
    group.add_argument(
        "--no-build", action="store_true", help="with --source: run the command in the checkout, build nothing"
    )
    group.add_argument("--error", metavar="RATE", type=numbers.chance, help="the chance of a wrong answer (0.05)")
    group.add_argument("--rate", metavar="RATE", type=numbers.chance, help="how often the bad one fails (measured)")
    group.add_argument("--good-rate", metavar="RATE", type=numbers.chance, help="how often the good one fails (0)")


def refuse_conflicts(args: argparse.Namespace) -> None:
    for name, actions in _BELONG.items():
        if getattr(args, name) and args.action in _ACTIONS and args.action not in actions:
            option = {"machines": "--for"}.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(f"{option} does not belong to {args.action}", hint=f"it belongs to {', '.join(actions)}")
    if not args.place and args.action != "report":
        raise UsageError(f"{args.action} needs a file of trials", hint=f"cuwheel trials {args.action} TRIALS.toml")
    if args.action == "bisect":
        _refuse_incomplete_bisect(args)


def _refuse_incomplete_bisect(args: argparse.Namespace) -> None:
    if not args.good or not args.bad:
        raise UsageError("bisect needs --good and --bad", hint="cuwheel trials bisect FILE --good 2.9.0 --bad 2.11.0 …")
    if bool(args.package) == bool(args.source):
        raise UsageError("bisect needs either --package or --source", hint="--package torch, or --source .")
    if (args.machines or args.no_build) and not args.source:
        raise UsageError("--for and --no-build need --source", hint="--source . --for h100")
    if args.good_rate and args.rate and args.good_rate >= args.rate:
        raise UsageError("--good-rate must be below --rate")


def run(args: argparse.Namespace) -> Answer:
    from cuwheel import api

    if args.action == "report":
        return _shown(api.trials_report(_folder(args.place)), args)
    file = places.file_of(args.place, f"cuwheel trials {args.action} TRIALS.toml; docs/trials.md shows such a file")
    if args.action in _SERVICES:
        removing = args.action == "remove-service"
        return api.trials_service(file, output=args.output, kind=args.service, remove=removing, dry_run=args.dry_run)
    only = dict(each.split("=", 1) for each in args.only)
    if args.action == "bisect":
        return _shown(_bisected(args, file, only), args)
    answer = api.trials(
        file,
        output=args.output,
        resume=args.resume,
        repeats=args.repeats,
        only=only,
        dry_run=args.dry_run,
        cluster=args.cluster,
    )
    return _shown(answer, args)


def _bisected(args: argparse.Namespace, file: Path, only: dict[str, str]) -> Answer:
    from cuwheel import api
    from cuwheel.proving.measuring.bisection import Odds, Span

    span = Span(
        good=args.good,
        bad=args.bad,
        package=args.package,
        source=args.source,
        machines=tuple(args.machines),
        build=not args.no_build,
    )
    odds = Odds(error=args.error or Odds().error, good_rate=args.good_rate or 0.0, bad_rate=args.rate)
    return api.trials_bisect(file, span, odds=odds, output=args.output, resume=args.resume, only=only)


def _shown(answer: Answer, args: argparse.Namespace) -> Answer:
    write_html(answer, args)
    return answer


def _folder(place: str | None) -> Path:
    """Of a journal, or of the file whose journal lies beside it."""
    from cuwheel.proving.measuring import campaign

    if place is None or places.is_folder(place):
        return places.folder(place or "cuwheel-trials")
    return campaign.folder_of(places.file_of(place, "cuwheel trials report FOLDER"), None)
