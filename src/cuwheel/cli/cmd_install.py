from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import cmd_find, names, option_values, places
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.install import Install

EXAMPLES = """\
  cuwheel install bitsandbytes --dry-run     what would change, nothing more
  cuwheel install bitsandbytes               into the active environment
  cuwheel install 'foo>=2' --env .venv --index https://wheels.example.com/simple
  cuwheel install xformers --allow torch     torch may be replaced
  cuwheel install --undo --env .venv         as it was before the last install

It installs what `cuwheel find` puts first, by exact address and hash, imports
it as `cuwheel verify` does, and puts the environment back if that fails.

exit status: 0 installed, 1 nothing runs, a change was refused, or it was put
back"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cmd_find.add_arguments(parser, optional=True)
    parser.add_argument(
        "-r",
        "--requirement",
        dest="requirements",
        metavar="FILE",
        type=places.file,
        help="all that a requirements file lists: its packages with CUDA code are judged together",
    )
    group = parser.add_argument_group("what may change")
    group.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    group.add_argument(
        "--allow",
        metavar="NAMES",
        type=option_values.each(option_values.distribution),
        action="append",
        default=[],
        help="installed packages that may be replaced, such as torch; repeatable, or with commas",
    )
    group.add_argument(
        "--pin",
        metavar="WHERE",
        type=names.pin,
        action="append",
        default=[],
        help="write settings that the package needs here: activate, env-file=PATH, systemd=FOLDER, dockerfile=PATH",
    )
    group.add_argument(
        "--signers",
        metavar="FILE",
        type=places.file,
        help="install only files of an index that one of these signed (ssh-keygen's ALLOWED SIGNERS)",
    )
    group.add_argument("--slim", action="store_true", help="cut device code that this GPU never loads, on the way in")
    _add_fallbacks(parser)
    _add_fleet(parser)
    group.add_argument("--undo", action="store_true", help="put the environment back as it was before the last install")


def _add_fallbacks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "where no wheel of the newest release runs",
        "An older release is taken, else one is built from source for this machine,\nelse a build for the CPU.",
    )
    group.add_argument("--no-older", action="store_true", help="do not take an older release")
    group.add_argument("--any-version", action="store_true", help="also take versions other than those asked for")
    group.add_argument("--wheel-only", action="store_true", help="build nothing")
    group.add_argument("--no-cpu", action="store_true", help="do not take a build for the CPU")


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for a fleet")
    group.add_argument(
        "--lock", metavar="FLEET", type=names.fleet, help="write what each machine of a fleet file installs to a lock"
    )
    group.add_argument(
        "-o", "--output", metavar="FILE", type=places.new_file, help="the lock to write (default: install.lock)"
    )
    group.add_argument(
        "--locked",
        metavar="FILE",
        type=places.file,
        nargs="?",
        const="install.lock",
        help="install this machine's part of a lock (default: install.lock)",
    )
    group.add_argument(
        "--download",
        metavar="FOLDER",
        type=places.new_folder,
        help="fetch all files of the lock into one folder, for --locked --no-index --find-links FOLDER",
    )


def refuse_conflicts(args: argparse.Namespace) -> None:
    cmd_find.refuse_conflicts(args)
    if args.undo and (args.wanted or args.dry_run or args.allow or args.pin):
        raise UsageError("--undo takes no other option than --env", hint="cuwheel install --undo")
    if args.undo:
        return
    if not (args.wanted or args.requirements or args.locked):
        raise UsageError("no package to install was given", hint="cuwheel install NAME")
    if sum(map(bool, (args.wanted, args.requirements, args.locked))) > 1:
        raise UsageError("a package, a requirements file and a lock cannot be combined")
    if args.lock and (args.locked or args.on or args.env):
        raise UsageError("--lock is for the machines of its fleet file: it cannot be used with --locked, --on or --env")
    if (args.output and not args.lock) or (args.download and not (args.lock or args.locked)):
        raise UsageError("--output and --download are for locks", hint="cuwheel install NAME --lock fleet.toml")


def run(args: argparse.Namespace) -> Install:
    from cuwheel import api
    from cuwheel.cli.cmd_inspect import write_html
    from cuwheel.delivery.request import InstallRequest

    if args.undo:
        return api.install_undo(args.env)
    given = cmd_find.fields_of(args)
    allowed = option_values.all_parts(args.allow)
    request = request_of(InstallRequest, args, **{**given, "allow": allowed})
    answer = api.install(request)
    write_html(answer, args)
    return answer
