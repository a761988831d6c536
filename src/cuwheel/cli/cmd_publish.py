from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import FOR, INDEX, REFINEMENT, VARIANTS, refinement
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_INDEX = ("",)
_SEND = ("", "--upload")


def address(text: str) -> str:
    from cuwheel.delivery.request import must_be_address

    must_be_address(text)
    return text


def upload_address(text: str) -> str:
    """Reads the address to upload to, which may have a login, for uv alone. `public`: the public index."""
    if text == "public":
        return text
    from cuwheel.network import addresses

    address(addresses.parted(text)[0])
    return text


def catalogue_place(text: str) -> str:
    return text if text == "shipped" else places.catalogue(text)


def published_file(text: str) -> str:
    from cuwheel.delivery.request import must_be_file

    must_be_file(text)
    return text


def line(text: str) -> str:
    from cuwheel.delivery.request import must_be_line

    must_be_line(text)
    return text


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.check is not None:
        if args.wheels:
            yield UsageError("wheels cannot be used with --check", hint="cuwheel publish --check index")
    elif args.upload is not None:
        if not args.wheels:
            yield UsageError("no wheel to upload was given", hint="cuwheel publish dist/*.whl --upload URL")
    elif args.to is None and args.max_size is None and args.signers is None:
        yield UsageError("--to FOLDER is missing", hint="cuwheel publish dist/*.whl --to index")


def _publish(args: Namespace) -> Answer:
    from cuwheel import api

    if args.check is not None:
        return api.publish_check(args.check, signers=args.signers)
    if args.upload is not None:
        return api.publish_upload(*args.wheels, url=args.upload, limit=args.max_size, dry_run=args.dry_run)
    from cuwheel.delivery.request import PublishRequest

    return api.publish(request_of(PublishRequest, args, refine=refinement(args)))


PUBLISH = Command(
    """\
  cuwheel publish dist/*.whl --to index        make it, or add to it
  cuwheel publish -r requirements.txt --for fleet.toml --slim --to mirror
  cuwheel publish dist/ --to index --dry-run   what would change
  cuwheel publish --to index --yank foo==1.0 --reason 'wrong results'
  cuwheel publish --to index --remove foo==0.9
  cuwheel publish --to index --catalogue shipped
  cuwheel publish dist/*.whl --to index --sign ~/.ssh/id_ed25519
  cuwheel publish --check https://wheels.example.com --signers signers.txt

The folder can be served by any web server, put into a bucket, or used as it is:
  pip install --index-url file:///srv/index/simple foo
  uv pip install --index https://wheels.example.com/cu130/simple foo

exit status: 0 done, or nothing to do, 1 a wheel was refused, or the check
found something wrong""",
    (
        Option("[WHEEL...]", "wheels, folders of wheels, or name==version, which is downloaded", field="wheels"),
        Option("--to FOLDER", "the folder of the index", places.new_folder, of=_INDEX),
        Option(
            "--check PLACE",
            "check an index instead, in a folder or at a URL: every page, link, hash, metadata and channel",
            places.place,
        ),
        Option("--dry-run", "show what would change, write nothing", of=_SEND),
        group(
            "a mirror cut to a fleet",
            Option(
                "-r --requirement FILE",
                "resolve this requirements file for the machines, check the packages together, and publish them with a "
                "lock for each kind of machine",
                places.file,
                field="requirements",
                of=_INDEX,
            ),
            FOR._replace(
                spelled="--for FLEET",
                help="the machines: a fleet file with their Python versions",
                kind=values.machines,
                of=_INDEX,
            ),
            Option(
                "--slim",
                "remove code that these GPUs never load from every wheel (its version ends in +slim)",
                of=_INDEX,
            ),
            Option("--originals", "with --slim: do not change packages under NVIDIA's licence", of=_INDEX),
            INDEX._replace(of=_INDEX),
            Option(
                "--find-links PLACE",
                "a folder of wheels, or a page that links to them; repeatable",
                places.links,
                many=True,
                of=_INDEX,
            ),
            more=True,
        ),
        REFINEMENT._replace(rows=tuple(each._replace(of=_INDEX) for each in REFINEMENT.rows)),
        group(
            "what the index has",
            VARIANTS._replace(of=_INDEX),
            Option(
                "--files-url URL",
                "where the folder 'files' is served, if it is not beside the pages (release assets, for example)",
                address,
                of=_INDEX,
            ),
            Option(
                "--existing PLACE",
                "if --to is not an index yet, first copy everything from this one (a folder or URL)",
                places.place,
                of=_INDEX,
            ),
            Option(
                "--catalogue PLACE",
                "also show a catalogue on the page (a folder or URL); 'shipped' for the one in cuwheel, 'none' to "
                "remove it",
                catalogue_place,
                of=_INDEX,
            ),
            Option(
                "--copy-to PLACE",
                "then copy the index to a folder, or to HOST:FOLDER with rsync; files go before pages",
                places.copy_place,
                of=_INDEX,
            ),
            more=True,
        ),
        group(
            "indexes that take uploads",
            Option(
                "--upload URL",
                "check the wheels against this index's rules and send them with 'uv publish'; 'public' for the public "
                "index",
                upload_address,
            ),
            Option(
                "--max-size SIZE",
                "no file is larger than this: the index's limit, if it was raised for your project, such as 300MB",
                values.size,
                of=("--upload",),
            ),
            more=True,
        ),
        group(
            "signatures",
            Option("--sign KEY", "sign SHA256SUMS with this OpenSSH key (ssh-keygen -Y)", places.file, of=_INDEX),
            Option(
                "--signers FILE",
                "with --check: an allowed_signers file; the index must be signed by one of them",
                places.file,
                of=("--check",),
            ),
            Option(
                "--attest",
                "attest the wheels (PEP 740), if this machine has an identity for that, as CI jobs do",
                of=_INDEX,
            ),
            more=True,
        ),
        group(
            "taking away",
            Option(
                "--yank FILE",
                "mark a file, or name==version, so that installers skip it unless it is pinned",
                published_file,
                many=True,
                of=_INDEX,
            ),
            Option("--reason TEXT", "why it is yanked; installers show it", line, of=_INDEX),
            Option("--unyank FILE", "undo --yank", published_file, many=True, of=_INDEX),
            Option("--remove FILE", "remove a file, or name==version, for good", published_file, many=True, of=_INDEX),
            Option(
                "--keep N",
                "keep the newest N releases of each project named (or of all) and remove the rest",
                values.count,
                of=_INDEX,
            ),
            more=True,
        ),
    ),
    _publish,
    ways=("--check", "--upload"),
    refuse=_refuse,
)
