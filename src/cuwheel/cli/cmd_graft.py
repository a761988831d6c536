from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import names, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.graft import Graft

EXAMPLES = """\
  cuwheel graft foo-1.0.whl foo-1.0+sm90.whl -o dist/
  cuwheel graft libfoo.so more/libfoo.so -o libfoo-both.so
  cuwheel graft foo-1.0.whl other.whl --dry-run     is it proven to fit?
  cuwheel graft --split foo-1.0.whl -o parts/       a wheel per architecture
  cuwheel graft foo==1.0 --add sm_87 --source foo/ -o dist/

exit status: 0 done, 1 refused: nothing proves that the device code fits"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="the wheel, name==version or library that gets device code")
    parser.add_argument("donors", metavar="DONOR", nargs="*", help="builds of the same source for other architectures")
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=places.new_file_or_folder, help="the folder or file to write"
    )
    parser.add_argument(
        "--add",
        metavar="ARCHS",
        type=option_values.each(names.machine_code),
        action="append",
        default=[],
        help="build these from --source, with an architecture of BASE as the witness, and graft them",
    )
    parser.add_argument("--source", metavar="FOLDER", type=places.folder, help="with --add: the source of BASE")
    parser.add_argument(
        "--cuda",
        metavar="VERSIONS",
        type=option_values.each(option_values.toolkit),
        action="append",
        default=[],
        help="with --add: grow the libraries of these CUDA versions; default: the newest",
    )
    parser.add_argument("--split", action="store_true", help="write one wheel per architecture of BASE instead")
    parser.add_argument(
        "--force", action="store_true", help="graft although it is not proven to fit; the wheel says so"
    )
    parser.add_argument(
        "--drop-signature", action="store_true", help="also change signed Windows binaries, which lose their signature"
    )
    parser.add_argument("--dry-run", action="store_true", help="compare and report, write nothing")
    parser.add_argument(
        "--version",
        metavar="VERSION",
        type=option_values.version,
        help="version of the new wheel, instead of adding a label such as +sm90",
    )
    parser.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="with name==version: the platform of the wheel"
    )
    add_html(parser)


def refuse_conflicts(args: argparse.Namespace) -> None:
    if bool(args.add) != bool(args.source) or (args.cuda and not args.add):
        raise UsageError("--add and --source belong together, and --cuda to them")
    if args.add and (args.donors or args.split):
        raise UsageError("--add takes neither donors nor --split")
    if args.split and (args.donors or args.force or args.version):
        raise UsageError("--split takes one wheel, without donors, --force or --version")
    if not args.split and not args.donors and not args.add:
        raise UsageError("no donor was given", hint="cuwheel graft BASE DONOR -o OUT   (or --split BASE)")


def run(args: argparse.Namespace) -> Graft:
    from cuwheel import api
    from cuwheel.changes.graft.request import GraftRequest

    answer = api.graft(
        request_of(GraftRequest, args, add=option_values.all_parts(args.add), cuda=option_values.all_parts(args.cuda))
    )
    write_html(answer, args)
    return answer
