"""Options that several verbs take alike: machines, what a plan may contain, toolkits and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.cli import places, values
from cuwheel.cli.options import Conflict, Option, group

if TYPE_CHECKING:
    from argparse import Namespace

    from cuwheel.machine.fleet import Refinement

_LOCK = "cuwheel.lock"

HTML = Option("--html FILE", "also write the report as one self-contained page", places.new_file)
PLATFORM = Option(
    "--platform TAG", "with name==version: the wheel for this platform, such as win_amd64", values.platform
)
DROP_SIGNATURE = Option("--drop-signature", "also change signed Windows binaries, which lose their signature")
VARIANTS = Option("--variants", "also write variant wheels: uv chooses one by GPU and driver")
OUTPUT = Option("-o --output OUT", "the folder or file to write", places.new_file_or_folder)
INDEX = Option(
    "--index PLACE",
    "an index, URL or folder: what it has comes from there alone, all else as pip is configured; repeatable",
    places.place,
    field="indexes",
    many=True,
)

# Machines: those that something is judged for, and those that something is made for.
ON = Option(
    "--on WHAT",
    "GPUs, capabilities, machine profiles, fleet.toml, 'this'; repeatable, or with commas",
    values.machines,
    many=True,
)
FOR = Option(
    "--for MACHINES",
    "GPUs, capabilities, profiles from doctor --save, fleet files, 'this', 'all'; repeatable, or with commas",
    values.machines_or_all,
    field="machines",
    many=True,
)
CUDA_VERSIONS = Option("--cuda VERSIONS", "CUDA versions; one wheel for each", values.toolkits, many=True)
REFINEMENT = group(
    "what else you know about the machines",
    Option("--driver VERSION", "version of the NVIDIA driver, such as 570.86.10", values.driver),
    Option("--driver-cuda VERSION", "the CUDA version that nvidia-smi shows", values.cuda),
    Option("--torch VERSION", "the installed torch", values.torch),
    Option("--torch-cuda VERSION", "the CUDA that torch was built for", values.cuda_minor),
    Option("--jax-cuda VERSION", "the CUDA that jax's plugin was built for", values.cuda),
    Option("--python VERSION", "version of Python, such as 3.11 or 3.13t", values.python),
    Option("--glibc VERSION", "version of glibc, such as 2.35", values.glibc),
    Option("--os {linux,windows}", "the operating system"),
    Option("--cpu NAME", "x86_64 or aarch64", values.cpu),
    Option("--l4t RELEASE", "release on a Jetson, such as 36.4", values.l4t),
    Option("--no-jit", "CUDA_DISABLE_PTX_JIT is set"),
    Option("--force-jit", "CUDA_FORCE_PTX_JIT is set"),
    more=True,
)
REFINEMENT_CONFLICTS = (Conflict(("--no-jit", "--force-jit")),)


def refinement(args: Namespace) -> Refinement:
    from cuwheel.machine.fleet import Refinement

    known = {row.dest: getattr(args, row.dest) for row in REFINEMENT.rows if row.value}
    return Refinement(**known, jit="disabled" if args.no_jit else "forced" if args.force_jit else None)


# What a plan may contain.
PLAN_OPTIONS = (
    Option("--future", "add PTX for future GPUs"),
    Option("--native", "machine code of its own architecture for every GPU"),
    Option("--specific", "use 'a' architectures (90a) where they exist"),
    Option("--family", "use 'f' architectures (100f) where they exist"),
    Option("--no-ptx", "do not rely on PTX for any GPU", field="ptx", gives=False),
)

# Which parts of a toolkit, by whom, from where in place of where providers would look, and exactly which files.
COMPONENTS = Option(
    "--with PARTS",
    "libraries to install too: cublas, cudnn, nccl ..., or torch for those its extensions use; repeatable, or with "
    "commas",
    values.components,
    field="components",
    many=True,
)
PROVIDERS = Option(
    "--provider NAMES",
    "only try these, in this order: system, index, redist, debian, conda, container",
    values.providers,
    field="providers",
    many=True,
)
TOOLKIT_PLACES = (
    Option("--redist-url PLACE", "a mirror of NVIDIA's archives: URL or folder", places.place),
    Option("--apt-sources FILE", "an apt sources file to use instead of the system's", places.file_name),
    Option("--image IMAGE", "a container image to use instead of NVIDIA's", values.image),
)
LOCK = Option("--lock [FILE]", "write the exact files used to a lock file", places.lock_file, gives=_LOCK)
LOCKED = Option("--locked [FILE]", "use exactly what the lock file lists", places.file, gives=_LOCK)
TWO_LOCKS = Conflict(("--from", "--locked"), "--from and --locked cannot be used together: the folder has its own lock")


def cluster(what: str) -> Option:
    """`what`: what the workers do."""
    return Option("--cluster WHERE", f"{what}: tls://HOST:PORT, local or slurm", values.cluster)
