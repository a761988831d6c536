from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import ON, cluster
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

# What is asked for is not left out silently: a dry run that writes a kit is worse than none.
_HERE = ("",)
_PACK = ("--pack",)
_FLEET = ("--cluster",)
_KIT = ("--pack", "--cluster")
_TRY = ("", "--pack", "--cluster")


_ALLOWED = ("network", "sources")


def allowed(text: str) -> list[str]:
    """What checked code may use."""
    return values.each_of(values.parts(text), values.one_of(*_ALLOWED))


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if (args.pack or args.cluster) and len(args.python) > 1:
        yield UsageError("a kit is for one Python version", hint="--python 3.12")
    if (args.pack or args.cluster) and args.requires and args.required != "kit":
        yield UsageError("--with needs a kit that includes requirements", hint="--required kit")


def _verify(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.proving.request import FleetRequest, PackRequest, VerifyRequest

    if args.read:
        return api.verify_read(args.read, *args.wheels)
    if not args.pack and not args.cluster:
        allows = {each: each in args.allow for each in _ALLOWED}
        return api.verify(request_of(VerifyRequest, args, **allows))
    kit = {"requirements": args.required == "kit", "system": args.required == "there"}
    kit["python"] = args.python[0] if args.python else None
    if args.cluster:
        return api.verify_fleet(request_of(FleetRequest, args, **kit, on=args.on, output=args.output or Path("proofs")))
    return api.verify_pack(request_of(PackRequest, args, **kit, to=args.pack))


VERIFY = Command(
    """\
  cuwheel verify dist/*.whl                 with the checks of this project
  cuwheel verify jaxmg==1.1.1 --python 3.11,3.12
  cuwheel verify bitsandbytes==0.50.2 --with torch==2.13.0 --stub
  cuwheel verify foo.whl --config cuwheel.toml --check 'import *'
  cuwheel verify foo.whl --static           the file alone, nothing installed
  cuwheel verify foo.whl --pack kit.pyz     to carry to a GPU machine
  cuwheel verify --read proof.json          read the proof brought back
  cuwheel verify foo.whl --cluster tls://build01:8786 --on h100,l40

Verifying runs code of the wheel and of its requirements, with a clean
environment, a home folder of its own and, where possible, no network.

exit status: 0 all passed (skipped checks are listed), 1 something failed""",
    (
        Option("[WHEEL...]", "wheels, or name==version", field="wheels"),
        Option("--config FILE", "the cuwheel.toml or pyproject.toml that defines the checks", places.file, of=_TRY),
        Option("--check NAME", "run only these checks; may contain *", field="checks", many=True, of=_TRY),
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
            Option("--find-links FOLDER", "a folder of wheels to install from", places.folder, many=True, of=_TRY),
            Option("--offline", "do not use the network, only the cache and --find-links", of=_TRY),
            Option("--stub", "if there is no driver, use a stub of libcuda", of=_HERE),
            Option(
                "--cuda VERSION",
                "the CUDA version that the wheel must work with, whatever is installed",
                values.cuda,
                of=_HERE,
            ),
            Option(
                "--sysroot FOLDER",
                "for another processor's wheel, which runs under qemu: a root file system to use instead of Debian's "
                "Python",
                places.folder,
                of=_HERE,
            ),
            Option("--keep", "keep the environments and show where they are", of=_HERE),
            more=True,
        ),
        group(
            "what the checked code may use",
            Option(
                "--pass-env NAME",
                "let the checks see this variable too; without it they see only those for GPUs, language and "
                "processors",
                values.variables,
                many=True,
                of=("", "--cluster"),
            ),
            Option(
                "--allow WHAT",
                "network: the checks may use it; sources: build requirements that come as source, whose code then runs "
                "unconfined; with commas",
                allowed,
                many=True,
                of=_HERE,
            ),
            more=True,
        ),
        group(
            "a machine without a network",
            Option("--pack KIT", "write one file with the wheels and checks, to run elsewhere", places.new_file),
            Option(
                "--required {index,kit,there}",
                "where requirements come from: an index there, the kit itself, or what is installed there",
                of=_KIT,
            ),
            Option("--read PROOF", "read a kit's proof.json; with wheels, check that it is about them", places.file),
            more=True,
        ),
        group(
            "the GPUs of a cluster",
            cluster("try it on each kind of GPU that its workers have"),
            ON._replace(help="only on these GPUs", of=_FLEET),
            Option("-o --output FOLDER", "where the proofs go (default: proofs)", places.new_folder, of=_FLEET),
            more=True,
        ),
    ),
    _verify,
    ways=("--pack", "--read", "--cluster"),
    refuse=_refuse,
)
