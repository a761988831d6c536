from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import names, places
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.doctor import Doctor

EXAMPLES = """\
  cuwheel doctor                        this machine and the active environment
  cuwheel doctor --env ~/venvs/train    another Python environment
  cuwheel doctor --need 'cuda>=11.8' --need 'gcc>=9' --need torch-cuda
  cuwheel doctor --save gpu07.json      write a profile, to read elsewhere:
  cuwheel doctor --on gpu07.json        a saved machine, not this one

exit status: 0 no error found, 1 an error was found or a need is not met"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on", metavar="PROFILE", type=names.profile, help="a saved machine profile instead of this machine"
    )
    parser.add_argument("--env", metavar="FOLDER", type=places.environment, help="the Python environment to look at")
    parser.add_argument(
        "--need",
        metavar="NEED",
        type=names.need,
        action="append",
        default=[],
        help="a prerequisite such as 'cmake>=3.22.1'; repeatable",
    )
    parser.add_argument("--save", metavar="FILE", type=places.new_file, help="write the machine profile as JSON")


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.on and args.env:
        raise UsageError(
            "--on and --env cannot be used together: a profile already holds the environment it was saved from"
        )


def run(args: argparse.Namespace) -> Doctor:
    from cuwheel import api
    from cuwheel.machine import profile

    answer = api.doctor(on=args.on, env=args.env, needs=args.need)
    if args.save:
        profile.save(answer.machine, args.save)
    return answer
