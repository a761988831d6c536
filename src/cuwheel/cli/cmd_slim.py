from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import DROP_SIGNATURE, FOR, OUTPUT
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


def environment(text: str) -> Path:
    """One that was slimmed before is known by its journal, whatever is left of it."""
    return places.folder(text) if places.exists(f"{text}/.cuwheel") else places.environment(text)


def _cuts(args: Namespace) -> bool:
    return bool(args.machines or args.used)


def _in_place(args: Namespace) -> list[Path]:
    """The environment or folder whose originals come back, or are given up."""
    return [*([args.env] if args.env else []), *map(Path, args.targets)]


def _refuse(args: Namespace) -> Iterator[UsageError]:
    hint = "cuwheel slim --undo --env .venv"
    if args.undo and (args.commit or _cuts(args)):
        yield UsageError("--undo cannot be used with --commit, --for or --used", hint)
    elif (args.undo or (args.commit and not _cuts(args))) and len(_in_place(args)) != 1:
        yield UsageError("give one environment or folder", hint)


def _slim(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.changes.slim.request import SlimRequest

    if args.undo:
        return api.slim_undo(*_in_place(args))
    if args.commit and not _cuts(args):
        return api.slim_commit(*_in_place(args))
    return api.slim(request_of(SlimRequest, args))


SLIM = Command(
    """\
  cuwheel slim torch-2.11.0.whl --for h100,l40 -o slim/
  cuwheel slim bitsandbytes==0.50.2 --for h100 --cuda 12.8 -o slim/
  cuwheel slim foo==1.0 --for b200 --compile -o slim/   of its PTX, too
  cuwheel slim --env .venv --for this           in place; then either
  cuwheel slim --env .venv --undo               restore every byte, or
  cuwheel slim --env .venv --commit             delete the originals
  cuwheel slim --env .venv --used trace.json    only what a workload loads
  cuwheel slim x.whl --for all --recompress -o small/

exit status: 0 done, 1 refused: a GPU would lose code that it can run""",
    (
        Option(
            "[TARGET...]",
            "a wheel, name==version, libraries or a folder; with --env, names of installed packages",
            field="targets",
        ),
        FOR._replace(
            help="GPUs, capabilities, machine profiles, fleet.toml; 'this' machine; 'all' (with --recompress)"
        ),
        Option("--env FOLDER", "the Python environment to slim in place", environment),
        OUTPUT,
        Option("--compile", "make machine code where it has only PTX for these GPUs"),
        Option("--dry-run", "report estimates, write nothing"),
        Option("--undo", "restore every original"),
        Option("--commit", "delete the originals; with --for, keep none"),
        Option(
            "--used TRACE",
            "keep only the code that this trace (cuwheel trace -o) shows being loaded; all other code will fail",
            places.file,
            many=True,
        ),
        Option("--future", "keep PTX for future GPUs"),
        group(
            "what to remove",
            Option(
                "--cuda VERSION",
                "if the package has a library for each CUDA version, keep only the one for this version",
                values.toolkit,
            ),
            Option("--drop-relocatable", "also remove relocatable code where linked code does the same"),
            Option("--recompress", "compress device code better (lossless)"),
            Option("--strip-debug", "also remove debug information and symbols that debuggers alone read"),
            Option("--force", "slim even if a GPU loses code that it can run"),
            DROP_SIGNATURE,
            Option("--version VERSION", "version of the new wheel, instead of adding +slim", values.version),
            more=True,
        ),
    ),
    _slim,
    refuse=_refuse,
)
