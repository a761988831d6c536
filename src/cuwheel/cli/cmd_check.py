from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places
from cuwheel.cli.common import HTML, ON, PLATFORM, REFINEMENT, REFINEMENT_CONFLICTS, cluster, refinement
from cuwheel.cli.options import Command, Option

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.report.answer import Answer


def _check(args: Namespace) -> Answer:
    from cuwheel import api

    return api.check(
        *args.target, on=args.on, refine=refinement(args), env=args.env, platform=args.platform, cluster=args.cluster
    )


CHECK = Command(
    """\
  cuwheel check bitsandbytes.whl                    on this machine
  cuwheel check bitsandbytes.whl --on h100,l40 --torch-cuda 12.8
  cuwheel check libfoo.so --on 'rtx 5090' --driver 570.86.10
  cuwheel check *.whl --on fleet.toml --html matrix.html
  cuwheel check torch --env .venv --on gpu07.json   (from doctor --save)

exit status: 0 it runs, 1 it fails on one of the machines, 15 nobody can tell""",
    (
        Option(
            "TARGET...", "a wheel or its facts file, a library or folder; an installed distribution; or name==version"
        ),
        Option("--env FOLDER", "the Python environment to look in", places.environment),
        PLATFORM,
        ON,
        HTML,
        cluster("many wheels, read by the workers of a cluster"),
        REFINEMENT,
    ),
    _check,
    conflicts=REFINEMENT_CONFLICTS,
)
