from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import INDEX, ON, PAGE_GONE, REFINEMENT, REFINEMENT_GONE, refinement
from cuwheel.cli.options import Command, Option, group, request_of

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.report.answer import Answer

# `install` looks for the same, in the same places.
NAME = Option("NAME", "a package, perhaps with versions: 'torch>=2.5'", values.package, field="wanted")
MACHINES = (ON, Option("--env FOLDER", "the Python environment to find it for", places.environment))
PLACES = group(
    "where to look",
    Option(
        "--find-links PLACE",
        "a folder of wheels, or a page that links to them; repeatable",
        places.links,
        many=True,
    ),
    Option(
        "--catalogue PLACE",
        "a folder or URL that cuwheel catalogue wrote, asked before wheels are read, beside the one in cuwheel; "
        "'none' to ask none; repeatable",
        places.catalogue,
        field="catalogues",
        many=True,
    ),
    Option("--no-index", "use no index that is configured: only --find-links, with find also --index"),
    Option("--pre", "also consider pre-releases"),
    Option("--budget SIZE", "download at most this much to look into wheels (default: 300MB)", values.size),
    more=True,
)
GONE = {**REFINEMENT_GONE, **PAGE_GONE, "--gpu": "CUDA_VISIBLE_DEVICES=NUMBER before the command"}
_ALL = Option("--all", "judge every release, not only until one runs", field="all_releases")


def _find(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.delivery.request import FindRequest

    return api.find(request_of(FindRequest, args, refine=refinement(args)))


FIND = Command(
    """\
  cuwheel find bitsandbytes                for this machine
  cuwheel find torch --on 'gtx 1080 ti'    the newest release with code for it
  cuwheel find 'cupy-cuda12x>=13' --on fleet.toml
  cuwheel find foo --index https://wheels.example.com/simple
  cuwheel find foo --no-index --find-links dist

An index that `cuwheel publish` wrote has facts of every wheel. Of other wheels
the libraries are read (of large ones the start, and the answer says so), the
newest release first, until one runs or --budget is spent; Ctrl-C
ends that with what is known so far. Nothing of them is kept.

exit status: 0 there is one that runs, 1 there is none""",
    (NAME, *MACHINES, INDEX, PLACES._replace(rows=(*PLACES.rows, _ALL)), REFINEMENT),
    _find,
    gone=GONE,
)
