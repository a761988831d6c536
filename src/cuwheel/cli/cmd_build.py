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
    cluster,
    toolkit_sources,
)
from cuwheel.cli.options import Command, Option, group, request_of
from cuwheel.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from cuwheel.support.answer import Answer


def build_setting(text: str) -> str:
    """A key of the configuration of a build, and its value."""
    from cuwheel.building import config

    values.asked(lambda: config.settings_of([text]), config.hint_of_keys())
    return text


def _refuse(args: Namespace) -> Iterator[UsageError]:
    if args.env and not args.editable:
        yield UsageError("--env is for --editable; wheels are built in environments of their own")


def _build(args: Namespace) -> Answer:
    from cuwheel import api
    from cuwheel.building import config
    from cuwheel.building.request import BuildRequest

    shares = args.shares and args.shares == "yes"
    settings = config.settings_of(args.set)
    request = request_of(BuildRequest, args, settings=settings, shares=shares, **toolkit_sources(args))
    return api.build_editable(request, args.env) if args.editable else api.build(request)


# A field `settings.…` is a key of the configuration: what is said goes over it, and nothing that is not said.
BUILD = Command(
    """\
  cuwheel build --for h100,l40 --cuda 13.0      this folder, into dist/
  cuwheel build . --for h100 --cuda 13.0,13.4 --python 3.10,3.12
  cuwheel build --dry-run                       the plan and every setting
  cuwheel build --set plan.future=true --set environment.USE_CUDA=1
  cuwheel build flash-attn==2.7.4.post1 --for h100 --require torch==2.11.0
  cuwheel build --cpu aarch64 --for gh200,orin  for arm64, on x86-64

exit status: 0 every wheel was built and passed the gate, 1 one did not,
11 no provider has the toolkit, 12 no host compiler fits""",
    (
        Option("[SOURCE]", "a folder (.), an sdist, or name==version", default="."),
        FOR._replace(kind=values.machine_words),
        CUDA_VERSIONS,
        Option("--python VERSIONS", "Python versions; one wheel for each", values.python_minors, many=True),
        Option("-o --output FOLDER", "where wheels go (default: dist)", places.new_folder),
        Option("--config FILE", "a cuwheel.toml to use instead of the source's own", places.file),
        group(
            "to work on the source",
            Option("--editable", "install the folder into an environment instead, for the GPU here"),
            Option("--env FOLDER", "the environment (default: the active one)", places.environment),
        ),
        Option(
            "--set KEY=VALUE",
            "a configuration key, such as merge=true; repeatable",
            build_setting,
            field="set",
            many=True,
        ),
        Option("--dry-run", "print the plan and every setting, build nothing"),
        group(
            "how it is built",
            Option(
                "--require NAME",
                "an extra build requirement, such as torch",
                values.requirement,
                field="settings.requires",
                many=True,
            ),
            Option("--jobs N", "compilers to run at once (default: as cores and memory allow)", values.count),
            cluster("build on the workers of a cluster"),
            Option(
                "--shares {yes,no}",
                "compile each architecture separately, keep it for later builds, and graft them together (default: "
                "where that saves time)",
            ),
            Option("--rebuild", "build everything again, also what has not changed"),
            Option("--keep", "keep the sources and the environment of each job"),
            more=True,
        ),
        group(
            "toolchain",
            Option("--cpu CPU", "build for this processor: aarch64, on x86-64", values.cpu),
            COMPONENTS._replace(field="settings.components"),
            PROVIDERS,
            Option("--host-compiler PROGRAM", "use only this compiler", places.program),
            Option("--offline", "do not use the network, only earlier downloads"),
            LOCK,
            LOCKED,
            more=True,
        ),
    ),
    _build,
    refuse=_refuse,
)
