from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.common import (
    COMPONENTS,
    CUDA_VERSIONS,
    FOR,
    LOCK,
    LOCKED,
    PROVIDERS,
    TOOLKIT_PLACES,
    TWO_LOCKS,
    VARIANTS,
    WISHES,
    cluster,
)
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.report.answer import Answer


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.env and not args.editable:
        yield UsageError("--env is for --editable; wheels are built in environments of their own")
    subdirectory = getattr(args, "settings.subdirectory")
    below = f"{args.source}/{subdirectory}"
    if subdirectory and places.is_folder(args.source) and not places.is_folder(below):
        yield UsageError(f"--subdirectory: no such folder: {places.shortened(below)}", hint="cuwheel build --help")


def _build(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.building.request import BuildRequest

    for name in ("settings.environment", "settings.config_settings"):
        setattr(args, name, dict(each.split("=", 1) for each in getattr(args, name)))
    request = request_of(BuildRequest, args)
    return api.build_editable(request, args.env) if args.editable else api.build(request)


# A field `settings.…` is a key of the configuration: what is said goes over it, and nothing that is not said.
BUILD = Command(
    """\
  cuwheel build --for h100,l40 --cuda 13.0      this folder, into dist/
  cuwheel build . --for h100 --cuda 13.0,13.4 --python 3.10,3.12 --naming local
  cuwheel build --dry-run                       the plan and every setting
  cuwheel build flash-attn==2.7.4.post1 --for h100 --require torch==2.11.0
  cuwheel build --editable . --env .venv        to work on the source
  cuwheel build --locked --offline              as cuwheel.lock says
  cuwheel build --cluster tls://build01:8786    on the workers of a cluster

exit status: 0 every wheel was built and passed the gate, 1 one did not,
11 no provider has the toolkit, 12 no host compiler fits""",
    (
        Option("[SOURCE]", "a folder (.), an sdist, or name==version", default="."),
        FOR,
        CUDA_VERSIONS,
        Option("--python VERSIONS", "Python versions; one wheel for each", values.python_minors, many=True),
        Option("-o --output FOLDER", "where wheels go (default: dist)", places.new_folder),
        Option("--config FILE", "a cuwheel.toml to use instead of the source's own", places.file),
        group(
            "to work on the source",
            Option(
                "--editable",
                "install the folder into an environment, for the GPU here; make no wheel. Undo: cuwheel install --undo",
            ),
            Option("--env FOLDER", "the environment (default: the active one)", places.environment),
        ),
        Option("--dry-run", "print the plan and every setting, build nothing"),
        group(
            "how it is built",
            Option(
                "--no-recipe", "do not use the built-in recipe for this package", field="settings.recipe", gives=False
            ),
            Option(
                "--subdirectory DIR",
                "the folder in SOURCE that has the pyproject.toml",
                places.folder_below,
                field="settings.subdirectory",
            ),
            Option(
                "--force-archs",
                "make nvcc compile the plan's list, whatever the build passes it",
                field="settings.force_archs",
            ),
            Option(
                "--backend KIND",
                "scikit-build-core, cmake, torch, setuptools, cargo or other; default: detected from its files",
                ("auto", "scikit-build-core", "cmake", "torch", "setuptools", "cargo", "other"),
                field="settings.backend",
            ),
            Option(
                "--require NAME",
                "an extra build requirement, such as torch",
                values.requirement,
                field="settings.requires",
                many=True,
            ),
            Option(
                "--variable NAME=VALUE",
                "an environment variable for the build: USE_CUDA=1",
                values.assignment,
                field="settings.environment",
                many=True,
            ),
            Option(
                "--config-setting KEY=VALUE",
                "passed to its backend, like pip's -C",
                values.setting,
                field="settings.config_settings",
                many=True,
            ),
            Option("--cache", "use a compiler cache (sccache), kept between builds", field="settings.cache"),
            Option("--jobs N", "compilers to run at once; default: by cores and memory", values.count),
            Option("--at-once N", "wheels to build at once (default: 1)", values.count),
            Option(
                "--timeout SECONDS",
                "time limit for one wheel (default: 7200)",
                values.seconds,
                field="settings.timeout",
            ),
            Option("--resume", "continue an earlier run (what has not changed is always reused)"),
            cluster("build on the workers of a cluster"),
            Option(
                "--shares",
                "compile each architecture by itself, keep it, and graft them together (default: where it pays)",
                default=None,
            ),
            Option("--no-shares", "compile all architectures at once", field="shares", gives=False, default=None),
            Option("--rebuild", "build everything, also what has not changed"),
            Option("--keep", "keep the sources and the environment of each job"),
            more=True,
        ),
        group(
            "the wheels",
            Option(
                "--naming HOW",
                "how CUDA appears in the name: none, local (1.0+cu130) or suffix (name-cu13)",
                ("none", "local", "suffix"),
                field="settings.naming",
            ),
            Option(
                "--label TEXT",
                "a number or commit of this build, for its version: 1.0+42; for builds published more than once",
                values.label,
                field="settings.label",
            ),
            Option("--merge", "merge the wheels of all CUDA versions into one", field="settings.merge"),
            VARIANTS._replace(field="settings.variants"),
            *(wish._replace(field=f"settings.plan.{wish.dest}") for wish in WISHES),
            Option(
                "--guard HOW",
                "inject: the import fails, with the reason, where no GPU fits",
                ("inject",),
                field="settings.guard",
            ),
            Option(
                "--no-repair", "leave the wheel as the backend made it", field="settings.repair.enabled", gives=False
            ),
            Option(
                "--allow ARCHS",
                "extra architectures to accept",
                values.allowed_archs,
                field="settings.gate.allow",
                many=True,
            ),
            Option(
                "--host-only",
                "accept a wheel without device code, such as a driver wrapper",
                field="settings.gate.device_code",
                gives=False,
            ),
            more=True,
        ),
        group(
            "toolchain",
            COMPONENTS._replace(field="settings.components"),
            PROVIDERS,
            Option("--host-compiler PROGRAM", "use only this compiler", places.program),
            Option(
                "--toolkit-cache FOLDER",
                "where to keep toolkits and builds (or CUWHEEL_CACHE)",
                places.new_folder,
                field="cache",
            ),
            Option("--from PLACE", "a folder filled by toolchain fetch", places.place, field="fetched"),
            *TOOLKIT_PLACES,
            Option("--offline", "do not use the network, only earlier downloads"),
            LOCK,
            LOCKED,
            more=True,
        ),
    ),
    _build,
    conflicts=(TWO_LOCKS,),
    refuse=_refuse,
)
