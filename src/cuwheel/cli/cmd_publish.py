from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, option_values, places
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.publish import Publish

EXAMPLES = """\
  cuwheel publish dist/*.whl --to index        make it, or add to it
  cuwheel publish dist/ --to index --dry-run   what would change
  cuwheel publish --to index --yank foo==1.0 --reason 'wrong results'
  cuwheel publish --to index --remove foo==0.9
  cuwheel publish dist/*.whl --to index --keep 3
  cuwheel publish --to index --catalogue shipped
  cuwheel publish dist/*.whl --to index --sign ~/.ssh/id_ed25519
  cuwheel publish --check https://wheels.example.com --signers signers.txt

The folder can be served by any web server, put into a bucket, or used as it is:
  pip install --index-url file:///srv/index/simple foo
  uv pip install --index https://wheels.example.com/cu130/simple foo

exit status: 0 done, or nothing to do, 1 a wheel was refused, or the check
found something wrong"""
_NOT_CHECKING = (
    *("to", "dry_run", "variants", "files_url", "platform", "sign", "attest", "existing", "catalogue"),
    *("yank", "reason", "unyank", "remove", "keep"),
    *("upload", "upload_limit"),
)
_NOT_UPLOADING = (
    *("to", "variants", "files_url", "sign", "signers", "attest", "existing", "catalogue"),
    *("yank", "reason", "unyank", "remove", "keep"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wheels", metavar="WHEEL", nargs="*", help="wheels, folders of wheels, or name==version, which is downloaded"
    )
    parser.add_argument("--to", metavar="FOLDER", type=places.new_folder, help="the folder of the index")
    parser.add_argument(
        "--check",
        metavar="PLACE",
        type=places.place,
        help="check an index instead, in a folder or at a URL: every page, link, hash, metadata and channel",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would change, write nothing")
    parser.add_argument(
        "--variants", action="store_true", help="also write variant wheels: uv chooses one by GPU and driver"
    )
    parser.add_argument(
        "--files-url",
        metavar="URL",
        type=_address,
        help="where the folder 'files' is served from, if not beside the pages, such as release assets",
    )
    parser.add_argument(
        "--existing",
        metavar="PLACE",
        type=places.place,
        help="bring along what this index has, in a folder or at a URL, if --to is not an index yet",
    )
    parser.add_argument(
        "--catalogue",
        metavar="PLACE",
        type=_catalogue,
        help="show on the page what a catalogue holds, in a folder or at a URL; 'shipped' for the one in cuwheel, "
        "'none' to remove it",
    )
    parser.add_argument(
        "--platform", metavar="TAG", type=option_values.platform, help="with name==version: the platform of the wheel"
    )
    _add_groups(parser)


def _add_groups(parser: argparse.ArgumentParser) -> None:
    upload = parser.add_argument_group("indexes that take uploads")
    upload.add_argument(
        "--upload",
        metavar="URL",
        type=_upload,
        help="send the wheels there with 'uv publish', after checking its rules; 'public' for the public index",
    )
    upload.add_argument(
        "--upload-limit",
        metavar="SIZE",
        type=numbers.size,
        help="the largest file it takes, if it raised its limit for your project, such as 300MB",
    )
    signing = parser.add_argument_group("signatures")
    signing.add_argument(
        "--sign", metavar="KEY", type=places.file, help="sign SHA256SUMS with this OpenSSH key (ssh-keygen -Y)"
    )
    signing.add_argument(
        "--signers",
        metavar="FILE",
        type=places.file,
        help="with --check: an allowed_signers file; one of them must have signed the index",
    )
    signing.add_argument(
        "--attest",
        action="store_true",
        help="attest the wheels (PEP 740) where this machine has an identity for it, as CI jobs have",
    )
    away = parser.add_argument_group("taking away")
    away.add_argument(
        "--yank",
        metavar="FILE",
        type=_file,
        action="append",
        default=[],
        help="mark a file, or name==version, so that installers take it only where it is pinned",
    )
    away.add_argument("--reason", metavar="TEXT", type=_line, help="why it is yanked; installers show it")
    away.add_argument("--unyank", metavar="FILE", type=_file, action="append", default=[], help="undo --yank")
    away.add_argument(
        "--remove",
        metavar="FILE",
        type=_file,
        action="append",
        default=[],
        help="remove a file, or name==version, for good",
    )
    away.add_argument(
        "--keep",
        metavar="N",
        type=numbers.count,
        help="remove all but the newest N releases of the projects given, or of all if none is",
    )


def _address(text: str) -> str:
    from cuwheel.delivery.request import must_be_address

    must_be_address(text)
    return text


def _upload(text: str) -> str:
    """With a login, if need be: it is handed to uv alone. `public`: the public index."""
    if text == "public":
        return text
    from cuwheel.network import addresses

    _address(addresses.parted(text)[0])
    return text


def _catalogue(text: str) -> str:
    return text if text in ("shipped", "none") else places.place(text)


def _file(text: str) -> str:
    from cuwheel.delivery.request import must_be_file

    must_be_file(text)
    return text


def _line(text: str) -> str:
    from cuwheel.delivery.request import must_be_line

    must_be_line(text)
    return text


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.check is not None:
        given = [f"--{name.replace('_', '-')}" for name in _NOT_CHECKING if getattr(args, name)]
        if args.wheels or given:
            raise UsageError(
                f"{' and '.join(given) or 'wheels'} cannot be used with --check", hint="cuwheel publish --check index"
            )
    elif args.upload is not None:
        given = [f"--{name.replace('_', '-')}" for name in _NOT_UPLOADING if getattr(args, name)]
        if given or not args.wheels:
            problem = f"{' and '.join(given)} cannot be used with --upload" if given else "no wheel to upload was given"
            raise UsageError(problem, hint="cuwheel publish dist/*.whl --upload URL")
    elif args.upload_limit is not None:
        raise UsageError("--upload-limit needs --upload", hint="cuwheel publish dist/*.whl --upload URL")
    elif args.signers is not None:
        raise UsageError("--signers needs --check", hint="cuwheel publish --check index --signers allowed_signers")
    elif args.to is None:
        raise UsageError("--to FOLDER is missing", hint="cuwheel publish dist/*.whl --to index")


def run(args: argparse.Namespace) -> Publish:
    from cuwheel import api

    if args.check is not None:
        return api.publish_check(args.check, signers=args.signers)
    if args.upload is not None:
        return api.publish_upload(
            *args.wheels, url=args.upload, limit=args.upload_limit, platform=args.platform, dry_run=args.dry_run
        )
    from cuwheel.delivery.request import PublishRequest

    return api.publish(request_of(PublishRequest, args))
