from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import CUDA_VERSIONS, DROP_SIGNATURE, OUTPUT
from cuwheel.cli.options import Command, Option, group, request_of

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer


def _graft(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.changes.graft.request import GraftRequest

    return api.graft(request_of(GraftRequest, args))


GRAFT = Command(
    """\
  cuwheel graft foo-1.0.whl foo-1.0+sm90.whl -o dist/
  cuwheel graft libfoo.so more/libfoo.so -o libfoo-both.so
  cuwheel graft foo-1.0.whl other.whl --dry-run     is it proven to fit?
  cuwheel graft --split foo-1.0.whl -o parts/       a wheel per architecture
  cuwheel graft foo==1.0 --add sm_87 --source foo/ -o dist/
  cuwheel graft foo-1.0.whl --compile sm_120 -o dist/   of its own PTX
  cuwheel graft --env .venv --compile this          in place; --undo: slim

exit status: 0 done, 1 refused: nothing proves that the device code fits""",
    (
        Option(
            "[BASE]",
            "the wheel, name==version, library or folder to change",
            field="base",
        ),
        Option("[DONOR...]", "builds of the same source for other architectures", field="donors"),
        OUTPUT,
        Option(
            "--compile GPUS",
            "make machine code for these (sm_120, b200, 'this') from the PTX in BASE",
            values.machines,
            many=True,
        ),
        Option("--env FOLDER", "with --compile: change this environment in place", places.environment),
        Option(
            "--add ARCHS",
            "build these from --source, together with one architecture of BASE to prove that they fit, and graft them",
            values.machine_codes,
            many=True,
        ),
        Option("--source FOLDER", "with --add: the source of BASE", places.folder),
        CUDA_VERSIONS._replace(
            help="with --add: only the libraries of these CUDA versions; with --compile: use this version's ptxas"
        ),
        Option("--split", "write one wheel per architecture of BASE instead"),
        Option("--dry-run", "compare and report, write nothing"),
        group(
            "rarely needed",
            Option("--force", "graft even if nothing proves that it fits; the wheel says so"),
            Option(
                "--version VERSION", "version of the new wheel, instead of adding a label such as +sm90", values.version
            ),
            DROP_SIGNATURE,
            more=True,
        ),
    ),
    _graft,
)
