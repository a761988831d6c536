from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import HTML, ON, REFINEMENT, cluster, refinement
from cuwheel.cli.options import Command, Option, group

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer


def _check(args: Namespace) -> Answer:
    from pathlib import Path

    from cuwheel import api

    answer = api.check(
        *args.target,
        on=args.on,
        refine=refinement(args),
        env=args.env,
        cluster=args.cluster,
        max_size=args.max_size,
        archs=args.archs,
    )
    if args.report:
        from cuwheel.report import for_ci

        seen = [each for each in answer.machines if each.capability]
        # What a cluster's workers read is not read here again, and facts files have no kernels.
        # A wheel that was downloaded is the one of these machines, where it lies.
        asked = [each.target if Path(each.target).exists() else each.asked for each in answer.targets]
        files = [] if args.cluster or not seen else [each for each in asked if not each.endswith(".cuwheel.json")]
        covered = [api.inspect(each, env=args.env, coverage=True, on=seen) for each in files]
        for_ci.save(answer, args.report, covered)
    return answer


CHECK = Command(
    """\
  cuwheel check bitsandbytes.whl                    on this machine
  cuwheel check bitsandbytes.whl --on h100,l40 --torch-cuda 12.8
  cuwheel check libfoo.so --on 'rtx 5090' --driver 570.86.10
  cuwheel check torch==2.11.0 --on fleet.toml --html matrix.html
  cuwheel check torch --env .venv --on gpu07.json   (from doctor --save)
  cuwheel check dist/*.whl --on fleet.toml --max-size 100MB --report report

A fleet.toml has for each kind of machine: [[machine]], and lines such as
name = "inference", gpu = "l40", driver = "550.54.15", count = 40.

exit status: 0 it runs, 1 it fails on one of the machines or is not as asked,
15 nobody can tell""",
    (
        Option(
            "TARGET...", "a wheel or its facts file, a library or folder; an installed distribution; or name==version"
        ),
        Option("--env FOLDER", "the Python environment to look in", places.environment),
        ON,
        HTML,
        cluster("let the workers of a cluster read the wheels"),
        group(
            "before wheels go out",
            Option("--max-size SIZE", "no file is larger than this, such as 100MB", values.size),
            Option(
                "--archs ARCHS",
                "each is for exactly these architectures: sm_90,compute_90",
                values.architectures,
                many=True,
            ),
            Option(
                "--report FOLDER",
                "also write what CI services show: summary.md (with kernels that lack code), annotations.txt, "
                "junit.xml, check.sarif",
                places.new_folder,
            ),
            more=True,
        ),
        REFINEMENT,
    ),
    _check,
)
