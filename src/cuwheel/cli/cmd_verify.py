from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places
from cuwheel.cli.cmd_inspect import add_html, write_html
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.answer import Answer

EXAMPLES = """\
  cuwheel verify dist/*.whl                 with the checks of this project
  cuwheel verify jaxmg==1.1.1 --python 3.11,3.12
  cuwheel verify bitsandbytes==0.50.2 --with torch==2.13.0 --stub
  cuwheel verify foo.whl --config cuwheel.toml --check 'import *'
  cuwheel verify foo.whl --static           the file alone, nothing installed
  cuwheel verify foo.whl --pack kit.pyz     to carry to a GPU machine
  cuwheel verify --read proof.json          read the proof brought back

Verifying runs code of the wheel and of its requirements, with a clean
environment, a home folder of its own and, where possible, no network.

exit status: 0 all passed (skipped checks are listed), 1 something failed"""


_OF_PACK = ("pack_requirements", "system_site_packages")
_NOT_PACKING = (
    *("static", "dry_run", "requirements", "stub", "cuda", "keep"),
    *("pass_env", "network", "sources"),
)
_NOT_READING = (*_NOT_PACKING, *_OF_PACK, "check", "python", "find_links", "offline", "timeout", "config")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", metavar="WHEEL", nargs="*", help="wheels, or name==version")
    parser.add_argument(
        "--config", metavar="FILE", type=places.file, help="the cuwheel.toml or pyproject.toml that defines the checks"
    )
    parser.add_argument(
        "--check", metavar="NAME", action="append", default=[], help="run only these checks; may contain *"
    )
    parser.add_argument("--no-known", action="store_true", help="do not use the ready-made checks of known packages")
    parser.add_argument("--static", action="store_true", help="check only the file, install nothing")
    parser.add_argument("--dry-run", action="store_true", help="show what would be installed and run")
    _add_environment(parser)
    _add_let_in(parser)
    kit = parser.add_argument_group("a machine without a network")
    kit.add_argument(
        "--pack",
        metavar="KIT",
        type=places.new_file,
        help="write one file with the wheels and checks, to run elsewhere",
    )
    kit.add_argument("--pack-requirements", action="store_true", help="include everything that the wheels require")
    kit.add_argument(
        "--system-site-packages", action="store_true", help="let the wheels see the packages installed there"
    )
    kit.add_argument(
        "--read",
        metavar="PROOF",
        type=places.file,
        help="read a kit's proof.json; with wheels, check that it is about them",
    )
    add_html(parser)


def _add_environment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the environment")
    group.add_argument(
        "--python",
        metavar="VERSION",
        type=option_values.each(option_values.python_minor),
        action="append",
        default=[],
        help="Python versions to use, such as 3.11,3.12",
    )
    group.add_argument(
        "--with",
        dest="requires",
        metavar="REQ",
        type=option_values.requirement,
        action="append",
        default=[],
        help="install this too",
    )
    group.add_argument(
        "--requirements",
        metavar="FILE",
        type=places.file,
        action="append",
        default=[],
        help="install the requirements in this file too",
    )
    group.add_argument(
        "--find-links",
        metavar="FOLDER",
        type=places.folder,
        action="append",
        default=[],
        help="a folder of wheels to install from",
    )
    group.add_argument("--offline", action="store_true", help="do not use the network, only the cache and --find-links")
    group.add_argument("--stub", action="store_true", help="if there is no driver, use a stub of libcuda")
    group.add_argument(
        "--cuda",
        metavar="VERSION",
        type=option_values.cuda,
        help="the CUDA version the wheel must serve, whatever is installed",
    )
    group.add_argument(
        "--timeout", metavar="SECONDS", type=numbers.seconds, help="time limit for each check, instead of its own"
    )
    group.add_argument("--keep", action="store_true", help="keep the environments and show where they are")
    group.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="with name==version: the platform of the wheel"
    )


def _add_let_in(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what the checked code may use")
    group.add_argument(
        "--pass-env",
        metavar="NAME",
        type=option_values.each(option_values.variable),
        action="append",
        default=[],
        help="let the checks see this variable too; by default they see those for GPUs, language and processors",
    )
    group.add_argument("--network", action="store_true", help="let the checks use the network")
    group.add_argument(
        "--sources", action="store_true", help="build requirements that come as source; this runs their code unconfined"
    )


def run(args: argparse.Namespace) -> Answer:
    answer = _read(args) if args.read else _pack(args) if args.pack else _verify(args)
    write_html(answer, args)
    return answer


def refuse_conflicts(args: argparse.Namespace) -> None:
    """What is asked for is not left out silently: a dry run that writes a kit is worse than none."""
    if args.pack and args.read:
        raise UsageError("--pack and --read cannot be used together")
    mode = "--read" if args.read else "--pack" if args.pack else ""
    strangers = {"--read": _NOT_READING, "--pack": _NOT_PACKING, "": _OF_PACK}[mode]
    given = [f"--{name.replace('_', '-')}" for name in strangers if getattr(args, name)]
    if given:
        means = f"cannot be used with {mode}" if mode else "needs --pack KIT"
        raise UsageError(f"{' and '.join(given)} {means}", hint="cuwheel verify --help")
    if args.pack and len(option_values.all_parts(args.python)) > 1:
        raise UsageError("a kit is for one Python version", hint="--python 3.12")
    if args.pack and args.requires and not args.pack_requirements:
        raise UsageError("--with needs a kit that includes requirements", hint="--pack-requirements")


def _verify(args: argparse.Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.proving.request import VerifyRequest

    request = request_of(
        VerifyRequest,
        args,
        wheels=args.wheel,
        checks=args.check,
        known=not args.no_known,
        python=option_values.all_parts(args.python),
        pass_env=option_values.all_parts(args.pass_env),
    )
    return api.verify(request)


def _pack(args: argparse.Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.proving.request import PackRequest

    pythons = option_values.all_parts(args.python)
    request = request_of(
        PackRequest,
        args,
        wheels=args.wheel,
        to=args.pack,
        checks=args.check,
        known=not args.no_known,
        requirements=args.pack_requirements,
        system=args.system_site_packages,
        python=pythons[0] if pythons else None,
    )
    return api.verify_pack(request)


def _read(args: argparse.Namespace) -> Answer:
    from cuwheel import api

    return api.verify_read(args.read, *args.wheel)
