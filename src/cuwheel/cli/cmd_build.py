from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.cli import names, numbers, option_values, places, shared_options
from cuwheel.cli.shared_options import request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from cuwheel.report.build import Build
    from cuwheel.report.install import Install

EXAMPLES = """\
  cuwheel build --for h100,l40 --cuda 13.0      this folder, into dist/
  cuwheel build . --for h100 --cuda 13.0,13.4 --python 3.10,3.12 --naming local
  cuwheel build --dry-run                       the plan and every setting
  cuwheel build flash-attn==2.7.4.post1 --for h100 --require torch==2.11.0
  cuwheel build --force-archs                   ignore the list it hard-codes
  cuwheel build --editable . --env .venv        to work on the source
  cuwheel build --rebuild                       also what has not changed
  cuwheel build --locked --offline              as cuwheel.lock says
  cuwheel build --cluster tls://build01:8786    on the workers of a cluster

exit status: 0 every wheel was built and passed the gate, 1 one did not,
11 no provider has the toolkit, 12 no host compiler fits"""

_TABLE = ("subdirectory", "backend", "naming", "label", "timeout")  # options that are keys of the configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", default=".", help="a folder (.), an sdist, or name==version"
    )
    shared_options.add_machines(parser, cuda="CUDA versions; one wheel for each")
    parser.add_argument(
        "--python",
        metavar="VERSIONS",
        type=option_values.each(option_values.python_minor),
        action="append",
        default=[],
        help="Python versions; one wheel for each",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        type=places.new_folder,
        default=Path("dist"),
        help="where wheels go (default: dist)",
    )
    parser.add_argument(
        "--config", metavar="FILE", type=places.file, help="a cuwheel.toml to use instead of the source's own"
    )
    parser.add_argument("--no-recipe", action="store_true", help="do not use the built-in recipe for this package")
    parser.add_argument(
        "--subdirectory",
        metavar="DIR",
        type=places.folder_below,
        help="the folder in SOURCE that has the pyproject.toml",
    )
    _add_editable(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the plan and every setting, build nothing")
    _add_how(parser)
    _add_wheels(parser)
    _add_toolchain(parser)


def _add_editable(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("to work on the source")
    group.add_argument(
        "--editable",
        action="store_true",
        help="install the folder into an environment, for the GPU here; make no wheel. Undo: cuwheel install --undo",
    )
    group.add_argument(
        "--env", metavar="FOLDER", type=places.environment, help="the environment (default: the active one)"
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how it is built")
    how.add_argument(
        "--force-archs", action="store_true", help="make nvcc compile the plan's list, whatever the build passes it"
    )
    how.add_argument(
        "--backend",
        metavar="KIND",
        choices=("auto", "scikit-build-core", "cmake", "torch", "setuptools", "cargo", "other"),
        help="scikit-build-core, cmake, torch, setuptools, cargo or other; default: detected from its files",
    )
    how.add_argument(
        "--require",
        metavar="NAME",
        type=option_values.requirement,
        action="append",
        default=[],
        help="an extra build requirement, such as torch",
    )
    how.add_argument(
        "--variable",
        metavar="NAME=VALUE",
        type=option_values.assignment,
        action="append",
        default=[],
        help="an environment variable for the build: USE_CUDA=1",
    )
    how.add_argument(
        "--config-setting",
        metavar="KEY=VALUE",
        type=option_values.setting,
        action="append",
        default=[],
        help="passed to its backend, like pip's -C",
    )
    _add_where(how)


def _add_where(how: argparse._ArgumentGroup) -> None:
    how.add_argument("--cache", action="store_true", help="use a compiler cache (sccache), kept between builds")
    how.add_argument(
        "--jobs", metavar="N", type=numbers.count, help="compilers to run at once; default: by cores and memory"
    )
    how.add_argument(
        "--at-once", metavar="N", type=numbers.count, default=1, help="wheels to build at once (default: 1)"
    )
    how.add_argument(
        "--timeout", metavar="SECONDS", type=numbers.seconds, help="time limit for one wheel (default: 7200)"
    )
    how.add_argument(
        "--resume", action="store_true", help="continue an earlier run (what has not changed is always reused)"
    )
    shared_options.add_cluster(how, "build on the workers of a cluster")
    how.add_argument(
        "--shares",
        action="store_true",
        default=None,
        help="compile each architecture by itself, keep it, and graft them together (default: where it pays)",
    )
    how.add_argument("--no-shares", dest="shares", action="store_false", help="compile all architectures at once")
    how.add_argument("--rebuild", action="store_true", help="build everything, also what has not changed")
    how.add_argument("--keep", action="store_true", help="keep the sources and the environment of each job")


def _add_wheels(parser: argparse.ArgumentParser) -> None:
    wheels = parser.add_argument_group("the wheels")
    wheels.add_argument(
        "--naming",
        metavar="HOW",
        choices=("none", "local", "suffix"),
        help="how CUDA appears in the name: none, local (1.0+cu130) or suffix (name-cu13)",
    )
    wheels.add_argument(
        "--label",
        metavar="TEXT",
        type=option_values.label,
        help="a number or commit of this build, for its version: 1.0+42; for builds published more than once",
    )
    wheels.add_argument("--merge", action="store_true", help="merge the wheels of all CUDA versions into one")
    wheels.add_argument(
        "--variants", action="store_true", help="also write variant wheels: uv chooses one by GPU and driver"
    )
    shared_options.add_wishes(wheels)
    wheels.add_argument(
        "--guard",
        metavar="HOW",
        choices=("inject",),
        help="inject: the import fails, with the reason, where no GPU fits",
    )
    wheels.add_argument("--no-repair", action="store_true", help="leave the wheel as the backend made it")
    wheels.add_argument(
        "--allow",
        metavar="ARCHS",
        type=option_values.each(names.allowed),
        action="append",
        default=[],
        help="extra architectures to accept",
    )
    wheels.add_argument(
        "--host-only", action="store_true", help="accept a wheel without device code, such as a driver wrapper"
    )


def _add_toolchain(parser: argparse.ArgumentParser) -> None:
    tools = parser.add_argument_group("toolchain")
    shared_options.add_toolkit(tools)
    tools.add_argument("--host-compiler", metavar="PROGRAM", type=places.program, help="use only this compiler")
    tools.add_argument(
        "--toolkit-cache",
        metavar="FOLDER",
        type=places.new_folder,
        help="where to keep toolkits and builds (or CUWHEEL_CACHE)",
    )
    tools.add_argument(
        "--from", dest="toolkit_source", metavar="PLACE", type=places.place, help="a folder filled by toolchain fetch"
    )
    shared_options.add_sources(tools)
    tools.add_argument("--offline", action="store_true", help="do not use the network, only earlier downloads")
    shared_options.add_lock(tools)


def refuse_conflicts(args: argparse.Namespace) -> None:
    if args.env and not args.editable:
        raise UsageError("--env is for --editable; wheels are built in environments of their own")
    if args.toolkit_source and args.locked:
        from cuwheel.toolchains.request import TWO_LOCKS

        raise UsageError(TWO_LOCKS)
    below = f"{args.source}/{args.subdirectory}"
    if args.subdirectory and places.is_folder(args.source) and not places.is_folder(below):
        raise UsageError(
            f"--subdirectory: no such folder: {option_values.shortened(below)}", hint="cuwheel build --help"
        )


def run(args: argparse.Namespace) -> Build | Install:
    from cuwheel import api
    from cuwheel.building.request import BuildRequest

    request = request_of(
        BuildRequest,
        args,
        without=("fit",),
        machines=option_values.all_parts(args.machines),
        cuda=option_values.all_parts(args.cuda),
        python=option_values.all_parts(args.python),
        settings=_settings(args),
        providers=option_values.all_parts(args.providers),
        cache=args.toolkit_cache,
        fetched=args.toolkit_source,
    )
    return api.build_editable(request, args.env) if args.editable else api.build(request)


def _settings(args: argparse.Namespace) -> dict[str, object]:
    """What was said, and nothing that was not: the rest is the configuration's."""
    given: dict[str, object] = {name: getattr(args, name) for name in _TABLE if getattr(args, name) is not None}
    given |= {name: True for name in ("force_archs", "cache", "merge", "variants") if getattr(args, name)}
    given |= {"recipe": False} if args.no_recipe else {}
    given |= {"requires": args.require} if args.require else {}
    given |= {"environment": _pairs(args.variable)} if args.variable else {}
    given |= {"config_settings": _pairs(args.config_setting)} if args.config_setting else {}
    given |= {"components": option_values.all_parts(args.components)} if args.components else {}
    plan = {name: True for name in ("future", "native", "specific", "family") if getattr(args, name)}
    plan |= {"ptx": False} if args.no_ptx else {}
    given |= {"plan": plan} if plan else {}
    gate: dict[str, object] = {"allow": option_values.all_parts(args.allow)} if args.allow else {}
    gate |= {"device_code": False} if args.host_only else {}
    given |= {"gate": gate} if gate else {}
    given |= {"guard": args.guard} if args.guard else {}
    given |= {"repair": {"enabled": False}} if args.no_repair else {}
    return given


def _pairs(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in words)}
