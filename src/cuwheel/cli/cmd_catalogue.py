from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import INDEX, ON, PLATFORM, cluster
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_ADD = ("add",)


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.action == "add" and not args.to:
        yield UsageError("add needs --to", hint="cuwheel catalogue add torch --to catalogue")


def _catalogue(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.delivery.request import CatalogueRequest

    if args.action == "list":
        return api.catalogue_list(args.place, on=args.on)
    return api.catalogue(request_of(CatalogueRequest, args))


CATALOGUE = Command(
    """\
  cuwheel catalogue list                       what ships with cuwheel
  cuwheel catalogue list --on 'gtx 1080 ti'    the last release with code for it
  cuwheel catalogue add torch vllm --to facts  collect, or go on after a break
  cuwheel catalogue add --to facts             what is new of the packages in it
  cuwheel catalogue list facts
  cuwheel find torch --on h100 --catalogue facts

It takes the newest and the oldest release of each minor version, and of each
one wheel for the platform. Only its libraries are downloaded, once, and only
facts about them are kept.

exit status: 0 done, 1 some wheels could not be read""",
    (
        Option("[NAME...]", "packages, perhaps with versions (default: those that are in it)", field="names", of=_ADD),
        Option("[PLACE]", "a folder or URL of a catalogue (default: the one in cuwheel)", of=("list",)),
        Option("--to FOLDER", "the catalogue's folder", places.new_folder, of=_ADD),
        ON._replace(of=("list",)),
        group(
            "what is added",
            INDEX._replace(of=_ADD),
            PLATFORM._replace(help="platform of the wheels (default: Linux x86-64)", of=_ADD),
            Option("--budget SIZE", "download at most this much (default: no limit)", values.size, of=_ADD),
            cluster("let the workers of a cluster read them")._replace(of=_ADD),
        ),
    ),
    _catalogue,
    actions={
        "add": "collect the facts of packages' releases into a folder",
        "list": "list the newest release of each package that runs on machines",
    },
    refuse=_refuse,
    exits={"add": "0 done, 1 some wheels could not be read"},
)
