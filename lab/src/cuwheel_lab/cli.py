"""`cuwheel lab`: a program many times over, to see how often it fails and how fast it is; a build in each shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import FOR, HTML, cluster
from cuwheel.cli.options import Command, Conflict, Option, group, request_of
from cuwheel.errors import UsageError
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_MOST_AT_ONCE = 1024


def counts(text: str) -> tuple[int, ...]:
    """Reads counts with commas between: `1,2,4`."""
    found = tuple(values.count(part.strip()) for part in text.split(","))
    if max(found) > _MOST_AT_ONCE:
        raise UsageError(f"each must be at most {_MOST_AT_ONCE:,}")
    return found


def chance(text: str) -> float:
    """Above 0 and below 1, also in percent."""
    cleaned = text.strip()
    value = (bounded.real(cleaned.removesuffix("%")) or 0.0) / (100 if cleaned.endswith("%") else 1)
    if not 0 < value < 1:
        raise values.wrong(text, "a rate above 0 and below 1, such as 0.05 or 5%")
    return value


def choice_of_axis(text: str) -> str:
    """An axis of trials, and the name of one of its values."""
    axis, equals, value = text.partition("=")
    if not equals or not axis.strip() or not value.strip():
        raise values.wrong(text, "AXIS=VALUE, such as start=cold")
    return text


def bench_setting(text: str) -> str:
    """A variable, an environment, a wheel, or a version of a package."""
    try:
        exists = Path(text).is_dir() or (text.endswith(".whl") and Path(text).is_file())
    except OSError:  # too long for a name
        exists = False
    name, equals, _ = text.partition("=")
    if not exists and not (equals and (values.fits(values.VARIABLE, name) or "==" in text)):
        raise values.wrong(text, "NAME=VALUE, an environment's folder, a wheel or name==version")
    if "==" in text and not exists:
        values.requirement(text)
    return text


_SERVICES = ("install-service", "remove-service")
_ACTIONS = {
    "run": "run the trials of a file; what has run survives a crash",
    "report": "show what the trials have told so far",
    "bisect": "find the first version or commit with which the trials fail",
    "install-service": "resume the trials after each start of the machine",
    "remove-service": "stop resuming them",
}
_BISECT = ("bisect",)
_TRY = ("run", "bisect")


def _refuse_trials(args: Namespace) -> Iterator[UsageError]:
    if args.action != "bisect":
        return
    if not args.good or not args.bad:
        hint = "cuwheel lab trials bisect FILE --good torch==2.9.0 --bad torch==2.11.0"
        yield UsageError("bisect needs --good and --bad", hint)
    elif not args.source and (len({_release(each)[0] for each in (args.good, args.bad)}) > 1 or "==" not in args.good):
        yield UsageError(
            "--good and --bad must be releases of one package, or commits of --source FOLDER",
            "--good torch==2.9.0 --bad torch==2.11.0",
        )
    elif args.machines and not args.source:
        yield UsageError("--for needs --source", hint="--source . --for h100")


def _release(text: str) -> tuple[str, str]:
    """The package, empty where none is said, and the version or commit."""
    package, _, version = text.rpartition("==")
    return package.strip(), version.strip()


def _trials(args: Namespace) -> Answer:
    from cuwheel_lab import api
    from cuwheel_lab.measuring import campaign
    from cuwheel_lab.measuring.bisection import Odds, Span

    if args.action == "report":  # of a journal, or of the file whose journal lies beside it
        if args.place is None or places.is_folder(args.place):
            return api.trials_report(places.folder(args.place or "cuwheel-trials"))
        return api.trials_report(
            campaign.folder_of(places.file_of(args.place, "cuwheel lab trials report FOLDER"), None)
        )
    file = places.file_of(
        args.place, f"cuwheel lab trials {args.action} TRIALS.toml; cuwheel lab trials --help shows such a file"
    )
    if args.action in _SERVICES:
        removing = args.action == "remove-service"
        return api.trials_service(file, output=args.output, remove=removing, dry_run=args.dry_run)
    only = dict(each.split("=", 1) for each in args.only)
    if args.action == "bisect":
        (package, good), (_, bad) = _release(args.good), _release(args.bad)
        machines = tuple(args.machines)
        if args.source:
            span = Span(good=args.good, bad=args.bad, source=args.source, machines=machines, build=bool(machines))
        else:
            span = Span(good=good, bad=bad, package=package)
        odds = Odds(bad_rate=args.rate)
        return api.trials_bisect(file, span, odds=odds, output=args.output, resume=args.resume, only=only)
    return api.trials(
        file,
        output=args.output,
        resume=args.resume,
        repeats=args.repeats,
        only=only,
        dry_run=args.dry_run,
        cluster=args.cluster,
    )


TRIALS = Command(
    """\
  cuwheel lab trials run TRIALS.toml --dry-run    list the conditions
  cuwheel lab trials run TRIALS.toml              each many times, shuffled
  cuwheel lab trials run TRIALS.toml --resume     go on, also after a crash
  cuwheel lab trials run TRIALS.toml --resume --only start=cold --repeats 15
  cuwheel lab trials report cuwheel-trials --html report.html
  cuwheel lab trials bisect FILE --good torch==2.9.0 --bad torch==2.11.0
  cuwheel lab trials bisect FILE --source . --good v1.0 --bad HEAD --for h100
  cuwheel lab trials install-service TRIALS.toml  resume after each boot
  cuwheel lab trials remove-service TRIALS.toml

A TRIALS.toml has command = "python run.py {shapes}", repeats = 9 and a table
[axes] with start = ["cold", "warm"], shapes = ["mixed", "equal"] and the like.

Each trial is noted on disk before it starts. One that never ended counts too:
the machine went down with it.

exit status: 0 no failure was seen, 1 a failure was seen; of bisect: 0 found,
1 there is no answer; of remove-service: 1 there was none""",
    (
        Option("FILE", "the trials, such as TRIALS.toml", field="place", of=(*_TRY, *_SERVICES)),
        Option("[PLACE]", "TRIALS.toml, or the journal's folder (default: cuwheel-trials)", of=("report",)),
        HTML._replace(of=("run", "report", "bisect")),
        group(
            "what is run",
            Option("-o --output FOLDER", "where the journal is written", places.new_folder, of=(*_TRY, *_SERVICES)),
            Option("--resume", "continue an earlier run, however it ended", of=_TRY),
            Option("--repeats N", "runs of each condition, instead of the file's number", values.count, of=("run",)),
            Option(
                "--only AXIS=VALUE",
                "only conditions with this value; repeatable",
                choice_of_axis,
                many=True,
                of=_TRY,
            ),
            cluster("run each trial on a worker of a cluster")._replace(of=("run",)),
            Option("--dry-run", "show what would be done, and do nothing", of=("run", *_SERVICES)),
        ),
        group(
            "bisect",
            Option("--good RELEASE", "a release (torch==2.9.0) or commit without the fault", of=_BISECT),
            Option("--bad RELEASE", "a release or commit with the fault", of=_BISECT),
            Option("--source FOLDER", "the git repository whose commits are searched", places.folder, of=_BISECT),
            FOR._replace(
                kind=values.machine_words,
                help="build a wheel of each commit for these GPUs (default: run the command in the checkout)",
                of=_BISECT,
            ),
            Option("--rate RATE", "how often the bad one fails (default: measured)", chance, of=_BISECT),
        ),
    ),
    _trials,
    actions=_ACTIONS,
    exits={
        **dict.fromkeys(("run", "report"), "0 no failure was seen, 1 a failure was seen"),
        "bisect": "0 it was found, 1 there is no answer",
        "remove-service": "0 done, 1 there was none",
    },
    refuse=_refuse_trials,
)

_BENCH_HINT = "cuwheel lab bench work.py:call, or -- COMMAND"


def _refuse_bench(args: Namespace) -> Iterator[UsageError]:
    if not args.function and not args.command:
        yield UsageError("nothing to measure was given", _BENCH_HINT)
    extra = args.function[1:] or (args.command if args.function else [])
    if extra:
        yield UsageError(
            f"unexpected: {places.shortened(extra[0])}",
            hint="one function is measured at a time; a command goes after --: cuwheel lab bench -- COMMAND",
        )


def _bench(args: Namespace) -> Answer:
    from cuwheel_lab import api
    from cuwheel_lab.measuring.request import BenchRequest

    if args.function:
        places.file_of(args.function[0].rpartition(":")[0] or args.function[0], _BENCH_HINT)
    return api.bench(request_of(BenchRequest, args, what=args.function[0] if args.function else args.command))


BENCH = Command(
    """\
  cuwheel lab bench work.py:call                       1, 2 and 4 at once
  cuwheel lab bench work.py:call --at-once 1,2,4,8,16
  cuwheel lab bench --with .venv --against .venv-slim work.py:call
  cuwheel lab bench --with DTYPE=int8 --against DTYPE=float16 work.py:call
  cuwheel lab bench --json work.py:call > before.json     to compare with later
  cuwheel lab bench --earlier before.json work.py:call
  cuwheel lab bench --by processes -- ./solver --size 1000

The function is called without arguments; importing its file is not measured.
Both sides take turns, so that drift affects both alike.

exit status: 0 done, 1 calls failed, or it is slower than the earlier run""",
    (
        Option("[FILE:NAME...]", "a function of a Python file; or -- and a command", field="function"),
        Option("-- COMMAND ...", "the command to measure"),
        Option("--at-once NUMBERS", "how many calls at the same time, level after level (default: 1,2,4)", counts),
        group(
            "the load, and a page",
            HTML,
            Option("--by {threads,processes}", "who makes the calls (default: threads)"),
            Option("--seconds S", "about how long each level takes, in seconds (default: 5)", values.seconds),
            more=True,
        ),
        group(
            "what is compared",
            Option(
                "--with SETTING",
                "NAME=VALUE, an environment's folder, a wheel or name==version; repeatable",
                bench_setting,
                field="settings",
                many=True,
            ),
            Option(
                "--against SETTING",
                "compare with the same for another side; repeatable",
                bench_setting,
                many=True,
            ),
            Option("--earlier FILE", "compare with an earlier run (its JSON)", places.file),
        ),
    ),
    _bench,
    refuse=_refuse_bench,
    usage="cuwheel lab bench [options] FILE:NAME | -- COMMAND ...",
)


def _matrix(args: Namespace) -> Answer:
    from cuwheel_lab import api

    return api.matrix(args.matrix, output=args.output, resume=args.resume, dry_run=args.dry_run, diff=args.diff)


MATRIX = Command(
    """\
  cuwheel lab matrix matrix.toml --dry-run    list the configurations
  cuwheel lab matrix matrix.toml              run and record each
  cuwheel lab matrix matrix.toml --resume     go on after a break

A matrix.toml has command = "cargo build {profile}", a table [axes] with lines
such as toolkit = ["12.8", "13.0"], and [axes.profile] release = "--release".""",
    (
        Option("FILE", "the matrix", places.file, field="matrix"),
        Option("-o --output FOLDER", "where to write the records (cuwheel-matrix)", places.new_folder),
        Option("--resume", "keep what an earlier run of the matrix finished"),
        Option("--dry-run", "list the configurations of the matrix"),
        Option(
            "--diff",
            "if a compiler call fails, find out why, as `record diff` does: run it again with what differs from the "
            "nearest configuration that works",
        ),
    ),
    _matrix,
    conflicts=(Conflict(("--diff", "--dry-run"), "--diff runs calls, and --dry-run runs nothing: choose one"),),
)
