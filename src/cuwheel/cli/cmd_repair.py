from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import names, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.repair import Repair

EXAMPLES = """\
  cuwheel repair dist/foo-1.0-cp312-cp312-linux_x86_64.whl -o wheelhouse/
  cuwheel repair dist/*.whl --requires         NVIDIA's packages as requirements
  cuwheel repair foo.whl --policy manylinux_2_28 --lib-dir /opt/blas/lib
  cuwheel repair foo.whl --exclude 'libmpi.so.*'       users already have it
  cuwheel repair jaxmg==1.1.1 --dry-run        what would be done, and why
  cuwheel repair foo.whl --dry-run -v          every folder it searched

NVIDIA's libraries are never copied into the wheel. A relative search path leads
it to those that packages install in the environment.

exit status: 0 done, or nothing to do, 1 a wheel cannot be repaired"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", metavar="WHEEL", nargs="+", help="a wheel for Linux or Windows, or name==version")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=places.new_folder,
        default=Path("wheelhouse"),
        help="where repaired wheels go (default: wheelhouse)",
    )
    parser.add_argument("--dry-run", action="store_true", help="explain each library, write nothing")
    parser.add_argument(
        "--policy",
        metavar="NAME",
        type=names.policy,
        help="such as manylinux_2_28; default: the oldest that the libraries allow",
    )
    parser.add_argument(
        "--requires", action="store_true", help="require the packages of NVIDIA's libraries in the metadata"
    )
    parser.add_argument(
        "--cuda",
        metavar="VERSION",
        type=option_values.cuda,
        help="its CUDA version (13.0, 12), if the libraries do not show it",
    )
    parser.add_argument(
        "--exclude",
        metavar="SONAME",
        type=option_values.soname,
        action="append",
        default=[],
        help="keep this library out too (globs; 'torch' means all of its libraries)",
    )
    parser.add_argument(
        "--lib-dir",
        dest="libraries",
        metavar="FOLDER",
        type=places.folder,
        action="append",
        default=[],
        help="search this folder first; may be a toolkit's folder",
    )
    parser.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="with name==version: the platform of the wheel"
    )
    add_html(parser)


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """All options go together."""


def run(args: argparse.Namespace) -> Repair:
    from cuwheel import api
    from cuwheel.changes.repair.request import RepairRequest

    answer = api.repair(request_of(RepairRequest, args))
    write_html(answer, args)
    return answer
