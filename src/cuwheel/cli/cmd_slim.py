from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import names, numbers, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.slim import Slim

EXAMPLES = """\
  cuwheel slim torch-2.11.0.whl --for h100,l40 -o slim/
  cuwheel slim bitsandbytes==0.50.2 --for h100 --cuda 12.8 -o slim/
  cuwheel slim libfoo.so libbar.so --for 'rtx 4090' --future -o slim/
  cuwheel slim --env .venv --for this           in place; then either
  cuwheel slim --env .venv --undo               restore every byte, or
  cuwheel slim --env .venv --commit             delete the originals
  cuwheel slim --env .venv --used trace.json    only what a workload loads
  cuwheel slim x.whl --for all --recompress -o small/
  cuwheel slim site-packages/ --for fleet.toml --dry-run --json

exit status: 0 done, 1 refused: a GPU would lose code that it can run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="*",
        help="a wheel, name==version, libraries or a folder; with --env, names of installed packages",
    )
    parser.add_argument(
        "--for",
        dest="machines",
        metavar="WHAT",
        type=names.machines("all"),
        action="append",
        default=[],
        help="GPUs, capabilities, machine profiles, fleet.toml; 'this' machine; 'all' (with --recompress)",
    )
    parser.add_argument("--env", metavar="FOLDER", type=_environment, help="the Python environment to slim in place")
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=places.new_file_or_folder, help="the folder or file to write"
    )
    parser.add_argument("--dry-run", action="store_true", help="report estimates, write nothing")
    _add_what(parser)
    _add_wheels(parser)
    in_place = parser.add_argument_group("environments and folders, in place")
    in_place.add_argument("--undo", action="store_true", help="restore every original")
    in_place.add_argument("--commit", action="store_true", help="delete the originals; with --for, keep none")
    add_html(parser)


def _add_what(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to remove")
    what.add_argument(
        "--used",
        metavar="TRACE",
        type=places.file,
        action="append",
        default=[],
        help="keep only what this trace shows to be loaded (cuwheel trace -o); anything else will fail",
    )
    what.add_argument("--future", action="store_true", help="keep PTX for future GPUs")
    what.add_argument(
        "--cuda",
        metavar="VERSION",
        type=option_values.toolkit,
        help="if a package has one library per CUDA version, keep the one for this version",
    )
    what.add_argument("--recompress", action="store_true", help="compress device code better (lossless)")
    what.add_argument(
        "--drop-relocatable", action="store_true", help="also remove relocatable code that linked code covers"
    )
    what.add_argument("--strip-debug", action="store_true", help="also remove device debug code")
    what.add_argument(
        "--drop-signature", action="store_true", help="also change signed Windows binaries, which lose their signature"
    )
    what.add_argument("--force", action="store_true", help="slim even if a GPU loses code that it can run")


def _add_wheels(parser: argparse.ArgumentParser) -> None:
    wheels = parser.add_argument_group("wheels")
    wheels.add_argument(
        "--version",
        metavar="VERSION",
        type=option_values.version,
        help="version of the new wheel, instead of adding +slim",
    )
    wheels.add_argument(
        "--level",
        metavar="N",
        type=numbers.level,
        help="recompress every file at this level, 0 to 9; default: only changed files, at 6",
    )
    wheels.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="with name==version: the platform of the wheel"
    )


def _environment(text: str) -> Path:
    """One that was slimmed before is known by its journal, whatever is left of it."""
    return places.folder(text) if places.exists(f"{text}/.cuwheel") else places.environment(text)


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.undo and (args.commit or _cuts(args)):
        raise UsageError("--undo cannot be used with --commit, --for or --used", hint="cuwheel slim --undo --env .venv")
    if (args.undo or (args.commit and not _cuts(args))) and len(_settled(args)) != 1:
        raise UsageError("give one environment or folder", hint="cuwheel slim --undo --env .venv")


def _cuts(args: argparse.Namespace) -> bool:
    return bool(args.machines or args.used)


def _settled(args: argparse.Namespace) -> list[Path]:
    return [*([args.env] if args.env else []), *map(Path, args.target)]


def run(args: argparse.Namespace) -> Slim:
    from cuwheel import api
    from cuwheel.changes.slim.request import SlimRequest

    if args.undo or (args.commit and not _cuts(args)):
        (place,) = _settled(args)
        answer = api.slim_undo(place) if args.undo else api.slim_commit(place)
    else:
        answer = api.slim(request_of(SlimRequest, args, targets=args.target))
    write_html(answer, args)
    return answer
