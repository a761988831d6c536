from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import option_values, places, shared_options
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.toolchain import Toolchain

EXAMPLES = """\
  cuwheel toolchain install 13.0               from any provider
  cuwheel toolchain install 13.0 --with cublas,cudnn --provider index
  cuwheel toolchain install 12.4 --provider redist,debian --dry-run
  eval "$(cuwheel toolchain env 13.0)"         CUDA_HOME, CUDACXX, PATH ...
  cuwheel toolchain verify 13.0                compile for every architecture
  cuwheel toolchain fetch 13.0 --to kit/       for a machine without a network
  cuwheel toolchain install 13.0 --from kit/
  cuwheel toolchain install 13.0 --lock        write cuwheel.lock, then
  cuwheel toolchain install 13.0 --locked      install exactly that
  cuwheel toolchain list
  cuwheel toolchain remove 13.0

exit status: 0 done, 1 the toolkit is broken (verify), 11 no provider has it,
12 no host compiler fits"""

_ACTIONS = ("install", "list", "env", "verify", "fetch", "remove")
_CHOICE = ("components", "providers", "offline")
_SOURCES = ("redist_url", "apt_sources", "image", "upgrade")
# Options that mean something to each action, beside --cache.
_TAKES = {
    "install": (*_CHOICE, *_SOURCES, "dry_run", "source", "lock", "locked", "host_compiler", "no_host_compiler"),
    "list": (),
    "env": ("components", "providers", "host_compiler", "no_host_compiler"),
    "verify": ("components", "providers", "host_compiler"),
    "fetch": (*_CHOICE, *_SOURCES, "dry_run", "to", "locked"),
    "remove": ("components", "providers", "all", "downloads"),
}
_SPELLED = {"components": "--with", "providers": "--provider", "source": "--from"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=_ACTIONS, help=", ".join(_ACTIONS))
    parser.add_argument("version", metavar="VERSION", nargs="?", help="the CUDA version: 13.0, 12.4.1, cu128")
    shared_options.add_toolkit(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be fetched, fetch nothing")
    parser.add_argument("--upgrade", action="store_true", help="look for a newer patch release than the installed one")
    _add_compiler(parser)
    _add_places(parser)
    _add_repeatable(parser)
    removing = parser.add_argument_group("remove")
    removing.add_argument("--all", action="store_true", help="remove every toolkit")
    removing.add_argument(
        "--downloads", action="store_true", help="remove all downloads; the toolkits made from them stay unless named"
    )


def _add_compiler(parser: argparse.ArgumentParser) -> None:
    compiler = parser.add_argument_group("host compiler")
    compiler.add_argument(
        "--host-compiler", metavar="PROGRAM", type=places.program, help="use this host compiler and no other"
    )
    compiler.add_argument("--no-host-compiler", action="store_true", help="install even if no host compiler fits")


def _add_places(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("places")
    group.add_argument(
        "--cache", metavar="FOLDER", type=places.new_folder, help="where to keep toolkits (or CUWHEEL_CACHE)"
    )
    shared_options.add_sources(group)


def _add_repeatable(parser: argparse.ArgumentParser) -> None:
    offline = parser.add_argument_group("offline and reproducible installs")
    offline.add_argument(
        "--offline", action="store_true", help="do not use the network, only installed or downloaded files"
    )
    offline.add_argument("--to", metavar="FOLDER", type=places.new_folder, help="where fetch puts the files")
    offline.add_argument(
        "--from", dest="source", metavar="PLACE", type=places.place, help="the folder that fetch filled, or its URL"
    )
    shared_options.add_lock(offline)


def run(args: argparse.Namespace) -> Toolchain:
    from cuwheel import api
    from cuwheel.toolchains.request import ToolchainRequest

    parts, named = option_values.all_parts(args.components), option_values.all_parts(args.providers)
    if args.action == "list":
        return api.toolchains(cache=args.cache)
    if args.action == "remove":
        return api.toolchain_remove(
            args.version,
            components=parts,
            providers=named,
            every=args.all,
            downloads=args.downloads,
            cache=args.cache,
        )
    request = ToolchainRequest(
        args.version,
        components=parts,
        providers=named,
        cache=args.cache,
        host_compiler="" if args.no_host_compiler else args.host_compiler,
        fetched=args.source,
        **{name: getattr(args, name) for name in (*_SOURCES, "offline", "lock", "locked", "dry_run")},
    )
    if args.action == "fetch":
        return api.toolchain_fetch(request, to=args.to)
    acts = {"install": api.toolchain, "env": api.toolchain_env, "verify": api.toolchain_verify}
    return acts[args.action](request)


def refuse_conflicts(args: argparse.Namespace) -> None:
    """Everything that is wrong with the options, at once."""
    every = dict.fromkeys(name for names in _TAKES.values() for name in names)
    given = [name for name in every if getattr(args, name) and name not in _TAKES[args.action]]
    shown = [_SPELLED.get(name, "--" + name.replace("_", "-")) for name in given]
    problems = [f"{', '.join(shown)} cannot be used with {args.action}"] if given else []
    if args.action == "remove":
        if args.all == bool(args.version) and not (args.downloads and not args.all):
            problems.append("remove needs a version or --all")
    elif args.action == "list":
        problems += ["list takes no version"] if args.version else []
    elif not args.version:
        problems.append(f"{args.action} needs a CUDA version")
    if args.action == "fetch" and not args.to:
        problems.append("fetch needs --to FOLDER")
    if args.source and args.locked:
        from cuwheel.toolchains.request import TWO_LOCKS

        problems.append(TWO_LOCKS)
    if args.host_compiler and args.no_host_compiler:
        problems.append("--host-compiler and --no-host-compiler cannot be used together")
    if problems:
        raise UsageError("; ".join(problems), hint="cuwheel toolchain --help")
