"""Options that several verbs take alike: machines, what a plan may contain, toolkits and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuwheel.cli import places, values
from cuwheel.cli.options import Option, group

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.machine.fleet import Refinement

_LOCK = "cuwheel.lock"

# Of verbs that change or install something nobody keeps a page.
HTML = Option("--html FILE", "also write the report as one self-contained page", places.new_file)
PLATFORM = Option(
    "--platform TAG", "with name==version: the wheel for this platform, such as win_amd64", values.platform
)
DROP_SIGNATURE = Option("--drop-signature", "also change signed Windows binaries, which lose their signature")
VARIANTS = Option("--variants", "also write variant wheels: uv chooses one by GPU and driver")
OUTPUT = Option("-o --output OUT", "the folder or file to write", places.new_file_or_folder)
INDEX = Option(
    "--index PLACE",
    "an index (URL or folder); packages that it has come only from there; repeatable",
    places.place,
    field="indexes",
    many=True,
)

# Machines: those that something is judged for, and those that something is made for.
ON = Option(
    "--on MACHINES",
    "GPU names, capabilities, machine profiles, fleet.toml or 'this'; with commas, or repeated",
    values.machines,
    many=True,
)
FOR = Option(
    "--for MACHINES",
    "GPU names, capabilities, profiles from doctor --save, fleet files, 'this' or 'all'; with commas, or repeated",
    values.machines_or_all,
    field="machines",
    many=True,
)
CUDA_VERSIONS = Option("--cuda VERSIONS", "CUDA versions; one wheel for each", values.toolkits, many=True)
REFINEMENT = group(
    "what else you know about the machines",
    Option("--driver VERSION", "the driver (570.86.10), or the CUDA that nvidia-smi shows (12.8)", values.driver),
    Option("--torch-cuda VERSION", "the CUDA that torch was built for", values.cuda_minor),
    Option(
        "--set KEY=VALUE",
        "a key of a fleet file, for all machines: python=3.11, torch=2.9, os=windows, cpu=aarch64, glibc=2.35, "
        "jax_cuda=12, l4t=36.4, jit=disabled; with commas, or repeated",
        values.machine_settings,
        many=True,
    ),
    more=True,
)


def refinement(args: Namespace) -> Refinement:
    from cuwheel.machine.fleet import Refinement

    known = {row.dest: getattr(args, row.dest) for row in REFINEMENT.rows if row.dest != "set"}
    if known["driver"] and values.is_cuda(known["driver"]):
        known["driver_cuda"] = known.pop("driver")
    return Refinement(**{**known, **dict(args.set)})


# Which parts of a toolkit, by whom, and exactly which files.
COMPONENTS = Option(
    "--with PARTS",
    "also install these libraries: cublas, cudnn, nccl ..., or torch for those that its extensions use; with commas, "
    "or repeated",
    values.components,
    field="components",
    many=True,
)
PROVIDERS = Option(
    "--provider NAMES",
    "only from these, in this order: system[=FOLDER] (a toolkit that is here, such as JetPack's), index, "
    "redist[=MIRROR], debian[=APT-FILE], conda, container[=IMAGE]",
    values.providers,
    field="providers",
    many=True,
)


def toolkit_sources(args: Namespace) -> dict[str, Any]:
    """The fields of a request that `--provider` fills: who, and where they look."""
    parted = [each.partition("=") for each in args.providers]
    places_of = {"system": "toolkit", "redist": "redist_url", "debian": "apt_sources", "container": "image"}
    found: dict[str, Any] = {
        "providers": [name for name, *_ in parted],
        **{places_of[name]: place for name, _, place in parted if place},
    }
    if place := args.lock_place:  # a folder that fetch filled has the files, too
        found |= {"fetched": place} if is_filled(place) else {"locked": Path(place)}
    return found


def is_filled(place: str) -> bool:
    """Not a lock file alone."""
    return "://" in place or places.is_folder(place)


def locked(text: str) -> str:
    """A lock file, or a folder or an address where `toolchain fetch` put one with its files."""
    return places.place(text) if is_filled(text) else str(places.file(text))


LOCK = Option("--lock [FILE]", "write the exact files used to a lock file", places.lock_file, gives=_LOCK)
LOCKED = Option(
    "--locked [PLACE]",
    "use exactly what a lock file lists, or a folder or URL that toolchain fetch filled",
    locked,
    field="lock_place",
    gives=_LOCK,
)


def cluster(what: str) -> Option:
    """`what`: what the workers do."""
    return Option("--cluster WHERE", f"{what}: tls://HOST:PORT, local or slurm", values.cluster)
