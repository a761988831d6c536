"""`toolchain` and `cache`: toolkits, and all else that is kept on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import (
    COMPONENTS,
    LOCK,
    LOCKED,
    PROVIDERS,
    is_filled,
    toolkit_sources,
)
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError
from cuwheel_core.support import bounded

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer

_UNITS_S = {"h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}
_AGE_DIGITS = 5


def age(text: str) -> float:
    """`30d`, `12h`, `2w` in seconds."""
    number, unit = text.strip()[:-1], text.strip()[-1:].lower()
    if unit not in _UNITS_S or not (number.isascii() and number.isdecimal()) or len(number) > _AGE_DIGITS:
        raise values.wrong(text, "an age, such as 30d, 12h or 2w")
    return bounded.digits(number) * _UNITS_S[unit]


_ACTIONS = {
    "install": "install a toolkit, from the first provider that has it",
    "list": "list the toolkits that are installed",
    "env": "print the variables that lead build systems to a toolkit",
    "verify": "compile and link for every architecture of a toolkit",
    "fetch": "bring a toolkit's files into a folder, for another machine",
    "remove": "remove toolkits, or their downloads",
}
_CHOOSE = ("install", "env", "verify", "fetch", "remove")
_GET, _CHOSEN = ("install", "fetch"), ("env", "verify", "remove")
_ALL, _DOWNLOADS = "all", "downloads"
_GOT = "0 done, 11 no provider has it, 12 no host compiler fits"
_VERSION = "the CUDA version: 13.0, 12.4.1, cu128"


def compiler(text: str) -> str:
    """A program; `none` is told apart from what was not said."""
    return "" if text == "none" else str(places.program(text))


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.action == "fetch" and not args.to:
        yield UsageError("fetch needs --to FOLDER", hint="cuwheel toolchain fetch 13.0 --to kit")
    if args.action == "fetch" and args.lock_place and is_filled(args.lock_place):
        yield UsageError("fetch takes a lock file, not a folder", hint="cuwheel toolchain fetch 13.0 --locked --to kit")


def _toolchain(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.toolchains.request import ToolchainRequest

    if args.action == "list":
        return api.toolchain_list()
    if args.action == "remove":
        return api.toolchain_remove(
            None if args.version in (_ALL, _DOWNLOADS) else args.version,
            components=args.components,
            cpu=args.cpu,
            providers=toolkit_sources(args)["providers"],
            every=args.version == _ALL,
            downloads=args.version == _DOWNLOADS,
        )
    request = request_of(ToolchainRequest, args, **toolkit_sources(args))
    if args.action == "fetch":
        return api.toolchain_fetch(request, to=args.to)
    acts = {"install": api.toolchain, "env": api.toolchain_env, "verify": api.toolchain_verify}
    return acts[args.action](request)


TOOLCHAIN = Command(
    """\
  cuwheel toolchain install 13.0               from any provider
  cuwheel toolchain install 13.0 --with cublas,cudnn --provider index
  cuwheel toolchain install 12.4 --provider redist,debian --dry-run
  eval "$(cuwheel toolchain env 13.0)"         CUDA_HOME, CUDACXX, PATH ...
  cuwheel toolchain verify 13.0                compile for every architecture
  cuwheel toolchain fetch 13.0 --to kit/       for a machine without a network
  cuwheel toolchain install 13.0 --locked kit/
  cuwheel toolchain install 13.0 --lock        write cuwheel.lock, then
  cuwheel toolchain install 13.0 --locked      install exactly that
  cuwheel toolchain install 13.2 --cpu aarch64   to compile for arm64 on x86-64
  cuwheel toolchain list
  cuwheel toolchain remove 13.0

exit status: 0 done, 1 the toolkit is broken (verify), 11 no provider has it,
12 no host compiler fits""",
    (
        Option("VERSION", _VERSION, of=("install", "env", "verify", "fetch")),
        Option("VERSION", f"{_VERSION}; '{_ALL}'; or '{_DOWNLOADS}' for the files they were made from", of=("remove",)),
        COMPONENTS._replace(of=_GET),
        COMPONENTS._replace(help="only one with these libraries, such as cublas", of=_CHOSEN),
        PROVIDERS._replace(of=_GET),
        PROVIDERS._replace(help="only one that came from these: index, system=FOLDER …", of=_CHOSEN),
        Option("--dry-run", "show what would be fetched, fetch nothing", of=_GET),
        Option(
            "--host-compiler PROGRAM",
            "only this; 'none': go on if no compiler fits",
            compiler,
            of=("install", "env", "verify"),
        ),
        group(
            "for another processor",
            Option("--cpu CPU", "compile for this processor: aarch64, on x86-64", values.cpu, of=_CHOOSE),
            Option(
                "--glibc VERSION",
                "with --cpu: the oldest glibc that the result must run with, such as 2.31",
                values.glibc,
                of=_CHOOSE[:-1],
            ),
            more=True,
        ),
        group(
            "offline and reproducible installs",
            Option("--offline", "do not use the network, only what is installed or downloaded", of=_GET),
            Option("--to FOLDER", "where fetch puts the files", places.new_folder, of=("fetch",)),
            LOCK._replace(of=("install",)),
            LOCKED._replace(of=_GET),
            more=True,
        ),
    ),
    _toolchain,
    actions=_ACTIONS,
    exits={
        **dict.fromkeys(("install", "env", "fetch"), _GOT),
        "verify": "0 it works, 1 it is broken, 11 and 12 as with install",
    },
    refuse=_refuse,
)


def _cache(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.toolchains.request import CacheRequest

    return api.cache(request_of(CacheRequest, args))


CACHE = Command(
    """\
  cuwheel cache                                    how much of each kind
  cuwheel cache --env .venv                        and what undoing needs there
  cuwheel cache --prune --older-than 30d --dry-run
  cuwheel cache --prune --older-than 30d           what nobody used for a month
  cuwheel cache --prune --most 5GB                 oldest first, until it fits
  cuwheel cache --prune --most 0                   all that may go

Never removed: what an undo needs, the states of signed indexes, and what a
running build may be using.""",
    (
        Option("--env FOLDER", "also show what is kept to undo changes to it", places.environment),
        group(
            "removing",
            Option("--prune", "remove what is old, or too much"),
            Option("--older-than AGE", "last used longer ago than this: 30d, 12h, 2w", age),
            Option("--most SIZE", "the oldest, until at most so much is left: 5GB, or 0", values.size_or_nothing),
            Option("--dry-run", "show what would be removed, remove nothing"),
        ),
    ),
    _cache,
)
