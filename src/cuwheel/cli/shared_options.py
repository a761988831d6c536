"""Options that several verbs take alike: machines, what a plan may contain, toolkits and where they come from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from cuwheel.cli import names, option_values, places

if TYPE_CHECKING:
    import argparse

    Group = argparse._ArgumentGroup | argparse.ArgumentParser  # noqa: SLF001 - argparse has no other name for it

T = TypeVar("T")
_LOCK = "cuwheel.lock"


def add_on(parser: Group) -> None:
    """The machines that are asked about."""
    parser.add_argument(
        "--on",
        metavar="WHAT",
        type=names.machines(),
        action="append",
        default=[],
        help="GPUs, capabilities, machine profiles, fleet.toml, 'this'; repeatable, or with commas",
    )


def add_indexes(group: Group) -> None:
    """Where packages are looked for, in place of where installers would."""
    group.add_argument(
        "--index",
        dest="indexes",
        metavar="PLACE",
        type=places.place,
        action="append",
        default=[],
        help="an index, URL or folder: what it has comes from there alone, all else as pip is configured; repeatable",
    )


def add_for(parser: Group, meaning: str) -> None:
    """`--for`; `meaning`: what the machines are to the verb."""
    parser.add_argument(
        "--for",
        dest="machines",
        metavar="MACHINES",
        type=names.machines("all"),
        action="append",
        default=[],
        help=meaning,
    )


def add_machines(parser: Group, cuda: str) -> None:
    """`--for` and `--cuda`; `cuda`: what its versions mean to the verb."""
    add_for(
        parser,
        "GPUs, capabilities, profiles from doctor --save, fleet files, 'this', 'all'; repeatable, or with commas",
    )
    parser.add_argument(
        "--cuda",
        metavar="VERSIONS",
        type=option_values.each(option_values.toolkit),
        action="append",
        default=[],
        help=cuda,
    )


def add_wishes(group: Group) -> None:
    group.add_argument("--future", action="store_true", help="add PTX for future GPUs")
    group.add_argument("--native", action="store_true", help="machine code of its own architecture for every GPU")
    group.add_argument("--specific", action="store_true", help="use 'a' architectures (90a) where they exist")
    group.add_argument("--family", action="store_true", help="use 'f' architectures (100f) where they exist")
    group.add_argument("--no-ptx", action="store_true", help="do not rely on PTX for any GPU")


def add_toolkit(group: Group) -> None:
    """Which parts of a toolkit, and by whom."""
    group.add_argument(
        "--with",
        dest="components",
        metavar="PARTS",
        type=option_values.each(names.component),
        action="append",
        default=[],
        help="libraries to install too: cublas, cudnn, nccl ..., or torch for those its extensions use; repeatable, "
        "or with commas",
    )
    group.add_argument(
        "--provider",
        dest="providers",
        metavar="NAMES",
        type=option_values.each(names.provider),
        action="append",
        default=[],
        help="only try these, in this order: system, index, redist, debian, conda, container",
    )


def add_sources(group: Group) -> None:
    """Where providers look, in place of where they would."""
    group.add_argument(
        "--redist-url", metavar="PLACE", type=places.place, help="a mirror of NVIDIA's archives: URL or folder"
    )
    group.add_argument(
        "--apt-sources",
        metavar="FILE",
        type=places.file_name,
        help="an apt sources file to use instead of the system's",
    )
    group.add_argument(
        "--image", metavar="IMAGE", type=option_values.image, help="a container image to use instead of NVIDIA's"
    )


def add_lock(group: Group) -> None:
    group.add_argument(
        "--lock",
        metavar="FILE",
        type=places.lock_file,
        nargs="?",
        const=_LOCK,
        help="write the exact files used to a lock file",
    )
    group.add_argument(
        "--locked",
        metavar="FILE",
        type=places.file,
        nargs="?",
        const=_LOCK,
        help="use exactly what the lock file lists",
    )


def command(args: argparse.Namespace) -> list[str]:
    """What stands behind `--`, or where the options end."""
    return list(args.command[1:] if args.command[:1] == ["--"] else args.command)


def request_of(make: type[T], args: argparse.Namespace, *, without: tuple[str, ...] = (), **given: object) -> T:
    """A request of the options that are called like its fields.

    `given`: fields whose options are called otherwise, or mean something else. `without`: those that have no option.
    """
    named = [each.name for each in dataclasses.fields(make) if each.name not in (*given, *without)]  # type: ignore[arg-type]
    return make(**{name: getattr(args, name) for name in named}, **given)


def add_cluster(parser: Group, meaning: str) -> None:
    """`meaning`: what the workers do."""
    parser.add_argument(
        "--cluster",
        metavar="WHERE",
        type=option_values.cluster,
        help=f"{meaning}: tls://HOST:PORT, local or slurm",
    )
