from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Conflict, Option

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer

_LONGEST_NEED = 200


def need(text: str) -> str:
    from cuwheel.verdicts import prerequisites

    if len(text) > _LONGEST_NEED:
        raise values.wrong(text, "of the form NAME or NAME>=VERSION")
    prerequisites.parse_needs([text])
    return text


def _doctor(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.machine import profile
    from cuwheel.support import log

    answer = api.doctor(on=args.on, env=args.env, needs=args.need)
    if args.save:
        profile.save(answer.machine, args.save)
        log.info("saved to %s: cuwheel check WHEEL --on %s", args.save, args.save)
    return answer


DOCTOR = Command(
    """\
  cuwheel doctor                        this machine and the active environment
  cuwheel doctor --env ~/venvs/train    another Python environment
  cuwheel doctor --need 'cuda>=11.8' --need 'gcc>=9' --need torch-cuda
  cuwheel doctor --save gpu07.json      write a profile, to read elsewhere:
  cuwheel doctor --on gpu07.json        a saved machine, not this one

exit status: 0 no error found, 1 an error was found or a need is not met""",
    (
        Option("--on PROFILE", "look at a saved machine profile instead of this machine", values.whole_machine),
        Option("--env FOLDER", "the Python environment to look at", places.environment),
        Option("--need NEED", "a prerequisite such as 'cmake>=3.22.1'; repeatable", need, many=True),
        Option("--save FILE", "write the machine profile as JSON", places.new_file),
    ),
    _doctor,
    conflicts=(
        Conflict(
            ("--on", "--env"),
            "--on and --env cannot be used together: a profile already holds the environment it was saved from",
        ),
    ),
)
