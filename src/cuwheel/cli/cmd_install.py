from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import INDEX, ON, REFINEMENT, refinement
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


# `install` looks for the same, in the same places.
NAME = Option("NAME", "a package, perhaps with versions: 'torch>=2.5'", values.package, field="wanted")
MACHINES = (
    ON._replace(kind=values.named_machines),
    Option("--env FOLDER", "the Python environment (default: the active one)", places.environment),
)
PLACES = group(
    "where to look",
    Option(
        "--find-links PLACE",
        "a folder of wheels, or a page that links to them; repeatable",
        places.links,
        many=True,
    ),
    Option(
        "--catalogue PLACE",
        "also look here before reading wheels: a folder or URL that cuwheel catalogue wrote; 'none' to use no "
        "catalogue; repeatable",
        places.catalogue,
        field="catalogues",
        many=True,
    ),
    Option("--pre", "also take pre-releases, as installers do with this option"),
    Option("--no-index", "do not use the configured indexes, only the places that are named"),
    Option("--budget SIZE", "download at most this much to read wheels (default: 300MB)", values.size),
    more=True,
)
_ALL = Option("--all", "judge every release, do not stop at the first that runs", field="all_releases")


def _find(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.delivery.request import FindRequest

    return api.find(request_of(FindRequest, args, refine=refinement(args)))


FIND = Command(
    """\
  cuwheel find bitsandbytes                for this machine
  cuwheel find torch --on 'gtx 1080 ti'    the newest release with code for it
  cuwheel find 'cupy-cuda12x>=13' --on fleet.toml
  cuwheel find foo --index https://wheels.example.com/simple
  cuwheel find foo --no-index --find-links dist

An index made by `cuwheel publish` has the facts of every wheel. From others it
reads the libraries in the wheels (the start of large ones, and the answer says
so), newest release first, until one runs or --budget is spent. Ctrl-C ends that
with what is known so far.

exit status: 0 there is one that runs, 1 there is none""",
    (NAME, *MACHINES, INDEX, PLACES._replace(rows=(*PLACES.rows, _ALL)), REFINEMENT),
    _find,
)


def pin(text: str) -> str:
    """A place for settings: `activate`, `env-file=PATH` and so on."""
    from cuwheel.delivery import pin_files

    pin_files.parse_place(text)
    return text


def lock_format(text: str) -> str:
    """How a lock is written."""
    if text not in ("pylock", "requirements", "uv"):
        raise values.wrong(text, "a format of locks: pylock, requirements or uv")
    return text


lock_formats = values.each(lock_format)


def fallbacks(text: str) -> list[str]:
    """What `install` may take, with commas; `none` alone for nothing."""
    from cuwheel.delivery.request import FALLBACKS

    return [] if text.strip() == "none" else values.each_of(values.parts(text), values.one_of(*FALLBACKS))


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.undo and (args.wanted or args.dry_run or args.allow or args.pin):
        yield UsageError("--undo takes no other option than --env", hint="cuwheel install --undo")
    elif args.lock and (args.locked or args.on or args.env):
        yield UsageError("--lock-for is for the machines of its file: it cannot be used with --locked, --on or --env")


def _install(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.delivery.request import InstallRequest

    if args.undo:
        return api.install_undo(args.env)
    return api.install(request_of(InstallRequest, args, refine=refinement(args)))


INSTALL = Command(
    """\
  cuwheel install bitsandbytes --dry-run     what would change, nothing more
  cuwheel install bitsandbytes               into the active environment
  cuwheel install 'foo>=2' --env .venv --index https://wheels.example.com/simple
  cuwheel install xformers --allow torch     torch may be replaced
  cuwheel install --undo --env .venv         as it was before the last install

It installs what `cuwheel find` puts first, by exact address and hash, imports
it as `cuwheel verify` does, and puts the environment back if that fails.

exit status: 0 installed, 1 nothing runs, a change was refused, or put back""",
    (
        NAME._replace(spelled="[NAME]"),
        *MACHINES,
        INDEX,
        PLACES._replace(rows=tuple(each for each in PLACES.rows if each.name != "--catalogue")),
        REFINEMENT,
        Option(
            "-r --requirement FILE",
            "install what a requirements file lists",
            places.file,
            field="requirements",
        ),
        Option("--dry-run", "show what would change, and change nothing"),
        Option(
            "--allow NAMES",
            "packages that may be replaced: torch,triton",
            values.distributions,
            many=True,
        ),
        Option("--undo", "put the environment back as it was before"),
        group(
            "settings, signatures and size",
            Option(
                "--pin WHERE",
                "where to write settings that the package needs: activate, env-file=PATH, systemd=FOLDER, "
                "dockerfile=PATH",
                pin,
                many=True,
            ),
            Option(
                "--signers FILE",
                "install only from an index that one of these signed (ssh-keygen's ALLOWED SIGNERS)",
                places.file,
            ),
            Option("--slim", "install wheels without the device code that this GPU never loads"),
            Option("--compile", "compile PTX now, where the driver would do it at the first start"),
            more=True,
        ),
        group(
            "where no wheel of the newest release runs",
            Option(
                "--fallback WHAT",
                "what to try then: older, source (build it for this machine), cpu, any-version (also versions that "
                "you did not ask for), or none (default: older,source,cpu)",
                fallbacks,
                default=None,
            ),
            more=True,
        ),
        group(
            "for a fleet",
            Option(
                "--lock-for FLEET",
                "write a lock for each kind of machine of a fleet file: pylock.MACHINE.toml, for pip and uv too",
                values.fleet,
                field="lock",
            ),
            Option("-o --output FOLDER", "where the locks are written (default: here)", places.new_folder),
            Option(
                "--lock-as FORMATS",
                "pylock, requirements (with hashes), uv (for [tool.uv.sources]); with commas, or repeated",
                lock_formats,
                many=True,
            ),
            Option(
                "--locked [PLACE]",
                "install this machine's lock: a file, or a folder of them (default: here)",
                places.file_or_folder,
                gives=".",
            ),
            Option(
                "--download FOLDER",
                "download all files of the lock into FOLDER, for --locked --no-index --find-links FOLDER",
                places.new_folder,
            ),
            more=True,
        ),
    ),
    _install,
    refuse=_refuse,
)
