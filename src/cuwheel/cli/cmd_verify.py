from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import HTML, PLATFORM
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.report.answer import Answer

# What is asked for is not left out silently: a dry run that writes a kit is worse than none.
_HERE = ("",)
_PACK = ("--pack",)
_TRY = ("", "--pack")


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.pack and len(args.python) > 1:
        yield UsageError("a kit is for one Python version", hint="--python 3.12")
    if args.pack and args.requires and not args.pack_requirements:
        yield UsageError("--with needs a kit that includes requirements", hint="--pack-requirements")


def _verify(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.proving.request import PackRequest, VerifyRequest

    if args.read:
        return api.verify_read(args.read, *args.wheels)
    if not args.pack:
        return api.verify(request_of(VerifyRequest, args))
    kit = {"to": args.pack, "requirements": args.pack_requirements, "system": args.system_site_packages}
    return api.verify_pack(request_of(PackRequest, args, **kit, python=args.python[0] if args.python else None))


VERIFY = Command(
    """\
  cuwheel verify dist/*.whl                 with the checks of this project
  cuwheel verify jaxmg==1.1.1 --python 3.11,3.12
  cuwheel verify bitsandbytes==0.50.2 --with torch==2.13.0 --stub
  cuwheel verify foo.whl --config cuwheel.toml --check 'import *'
  cuwheel verify foo.whl --static           the file alone, nothing installed
  cuwheel verify foo.whl --pack kit.pyz     to carry to a GPU machine
  cuwheel verify --read proof.json          read the proof brought back

Verifying runs code of the wheel and of its requirements, with a clean
environment, a home folder of its own and, where possible, no network.

exit status: 0 all passed (skipped checks are listed), 1 something failed""",
    (
        Option("[WHEEL...]", "wheels, or name==version", field="wheels"),
        Option("--config FILE", "the cuwheel.toml or pyproject.toml that defines the checks", places.file, of=_TRY),
        Option("--check NAME", "run only these checks; may contain *", field="checks", many=True, of=_TRY),
        Option("--no-known", "do not use the ready-made checks of known packages", field="known", gives=False),
        Option("--static", "check only the file, install nothing", of=_HERE),
        Option("--dry-run", "show what would be installed and run", of=_HERE),
        group(
            "the environment",
            Option(
                "--python VERSION",
                "Python versions to use, such as 3.11,3.12",
                values.python_minors,
                many=True,
                of=_TRY,
            ),
            Option("--with REQ", "install this too", values.requirement, field="requires", many=True),
            Option(
                "--requirements FILE", "install the requirements in this file too", places.file, many=True, of=_HERE
            ),
            Option("--find-links FOLDER", "a folder of wheels to install from", places.folder, many=True, of=_TRY),
            Option("--offline", "do not use the network, only the cache and --find-links", of=_TRY),
            Option("--stub", "if there is no driver, use a stub of libcuda", of=_HERE),
            Option(
                "--cuda VERSION", "the CUDA version the wheel must serve, whatever is installed", values.cuda, of=_HERE
            ),
            Option("--timeout SECONDS", "time limit for each check, instead of its own", values.seconds, of=_TRY),
            Option("--keep", "keep the environments and show where they are", of=_HERE),
            PLATFORM,
            more=True,
        ),
        group(
            "what the checked code may use",
            Option(
                "--pass-env NAME",
                "let the checks see this variable too; by default they see those for GPUs, language and processors",
                values.variables,
                many=True,
                of=_HERE,
            ),
            Option("--network", "let the checks use the network", of=_HERE),
            Option("--sources", "build requirements that come as source; this runs their code unconfined", of=_HERE),
            more=True,
        ),
        group(
            "a machine without a network",
            Option("--pack KIT", "write one file with the wheels and checks, to run elsewhere", places.new_file),
            Option("--pack-requirements", "include everything that the wheels require", of=_PACK),
            Option("--system-site-packages", "let the wheels see the packages installed there", of=_PACK),
            Option("--read PROOF", "read a kit's proof.json; with wheels, check that it is about them", places.file),
            more=True,
        ),
        HTML,
    ),
    _verify,
    ways=("--pack", "--read"),
    refuse=_refuse,
)
