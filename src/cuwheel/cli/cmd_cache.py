from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import numbers, places
from cuwheel.cli.shared_options import request_of

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.cache import Cache

EXAMPLES = """\
  cuwheel cache                                    how much of each kind
  cuwheel cache --env .venv                        and what undoing needs there
  cuwheel cache --prune --older-than 30d --dry-run
  cuwheel cache --prune --older-than 30d           what nobody used for a month
  cuwheel cache --prune --most 5GB                 oldest first, until it fits

What an undo needs, the states of signed indexes and what a running build may
be using are never removed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache", metavar="FOLDER", type=places.folder, help="the folder, instead of CUWHEEL_CACHE or this user's"
    )
    parser.add_argument(
        "--env", metavar="FOLDER", type=places.environment, help="also show what is kept to undo changes to it"
    )
    group = parser.add_argument_group("removing")
    group.add_argument("--prune", action="store_true", help="remove what is old, or too much")
    group.add_argument(
        "--older-than", metavar="AGE", type=numbers.age, help="last used longer ago than this: 30d, 12h, 2w"
    )
    group.add_argument(
        "--most", metavar="SIZE", type=numbers.size, help="the oldest, until at most so much is left: 5GB"
    )
    group.add_argument("--dry-run", action="store_true", help="show what would be removed, remove nothing")


def refuse_conflicts(_args: argparse.Namespace) -> None:
    """The request does."""


def run(args: argparse.Namespace) -> Cache:
    from cuwheel import api
    from cuwheel.toolchains.request import CacheRequest

    return api.cache(request_of(CacheRequest, args))
