from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import ToolError, UsageError
from cuwheel_core.wheel.tags import OF_CUDA

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.support.answer import Answer


def policy(text: str) -> str:
    """Reads a policy of auditwheel, for any of the processors that wheels with CUDA are made for."""
    from cuwheel.changes.repair import policies

    if text == "auto":
        return text
    problems: list[UsageError | ToolError] = []
    for processor in OF_CUDA:
        try:
            policies.find(text, processor)
        except (UsageError, ToolError) as error:  # auditwheel is for Linux alone
            problems.append(error)
        else:
            return text
    raise UsageError(places.shortened(problems[0].message), problems[0].hint)


# What a library is called, or a pattern of it: never a path.
soname = values.patterned("soname", r"[^/]{1,255}", "a library name, such as 'libmpi.so.*'")


def _repair(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.changes.repair.request import RepairRequest

    return api.repair(request_of(RepairRequest, args))


REPAIR = Command(
    """\
  cuwheel repair dist/foo-1.0-cp312-cp312-linux_x86_64.whl -o wheelhouse/
  cuwheel repair dist/*.whl --requires         NVIDIA's packages as requirements
  cuwheel repair foo.whl --policy manylinux_2_28 --lib-dir /opt/blas/lib
  cuwheel repair foo.whl --exclude 'libmpi.so.*'       users already have it
  cuwheel repair jaxmg==1.1.1 --dry-run        what would be done, and why
  cuwheel repair foo.whl --dry-run -v          every folder it searched

NVIDIA's libraries are never copied into the wheel. It finds them, by a relative
search path, where NVIDIA's packages install them in the environment.

exit status: 0 done, or nothing to do, 1 a wheel cannot be repaired""",
    (
        Option("WHEEL...", "a wheel for Linux or Windows, or name==version", field="wheels"),
        Option("-o --output FOLDER", "where repaired wheels go (default: wheelhouse)", places.new_folder),
        Option("--dry-run", "explain each library, write nothing"),
        Option("--policy NAME", "such as manylinux_2_28 (default: the oldest that the libraries allow)", policy),
        Option("--requires", "add NVIDIA's packages to the wheel's requirements"),
        group(
            "where its libraries come from",
            Option("--cuda VERSION", "its CUDA version (13.0, 12), if its libraries do not tell", values.cuda),
            Option(
                "--exclude SONAME",
                "also leave this library out (globs; 'torch' means all of its libraries)",
                soname,
                many=True,
            ),
            Option(
                "--lib-dir FOLDER",
                "search this folder first; may be a toolkit's folder",
                places.folder,
                field="libraries",
                many=True,
            ),
            more=True,
        ),
    ),
    _repair,
)
