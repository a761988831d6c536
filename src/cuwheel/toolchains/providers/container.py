"""An image with the toolkit in it, or one without (manylinux) that a toolkit of the store is shown to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.machine.compilers import nvcc_version_in
from cuwheel.support import process
from cuwheel.toolchains import providers, toolchain
from cuwheel.toolchains import workplace as _workplace
from cuwheel.toolchains.toolchain import HostCompiler, Recipe
from cuwheel_core.errors import CuwheelError, MalformedError

if TYPE_CHECKING:
    from cuwheel.toolchains.toolchain import Installed, Wanted
    from cuwheel.toolchains.workplace import Surroundings, Workplace

_ENGINES = ("docker", "podman")
_ASK_S = 60.0
_PULL_S = 3600.0


def decide(wanted: Wanted, around: Surroundings) -> Recipe:
    engine = _engine(around)
    release = wanted.exact or toolchain_parts.release_of(wanted.cuda, "container")
    image = wanted.image or toolchain_parts.image_of(release or wanted.cuda)
    base = Recipe(
        provider="container",
        cuda=wanted.cuda,
        release=release or wanted.cuda,
        platform=f"linux-{wanted.cpu}",
        components=tuple(row.name for row in wanted.components),
        commands=((engine, "pull", image),),
        prefix=(engine, "run", "--rm", "--init", *toolchain.run_as_caller(), image),
        place=tables().toolchains.container.root,
        found_via=f"{engine}, image {image}",
    )
    # Whether an image has a toolkit, by its name: it may not be here yet, and NVIDIA's and their offspring say so.
    if "cuda" in image.rpartition("/")[2] or "nvidia" in image:
        return base
    mounted = providers.first_recipe(("index", "redist"), wanted, around)
    return replace(base, archives=mounted.archives, release=mounted.release, place="")


def _engine(around: Surroundings) -> str:
    """One that answers: a client without its service is not enough."""
    reasons = []
    for name in _ENGINES:
        for path in around.machine.which_all(name)[:1]:
            try:
                process.run([path, "version"], timeout=_ASK_S)
            except CuwheelError as error:
                reasons.append(f"{name} does not answer: {error.message.splitlines()[-1].strip(' |')}")
            else:
                return name
    raise UnavailableError("; ".join(reasons) or f"no {' or '.join(_ENGINES)} was found on PATH")


def make(recipe: Recipe, workplace: Workplace) -> Installed:
    for command in recipe.commands:
        process.run(command, timeout=_PULL_S)
    if recipe.archives:
        mounted = _workplace.install_archives(recipe, workplace)
        mount = ("--volume", f"{mounted.root}:{mounted.root}:ro")
        # Asked without the toolkit, which is not at its place yet: an engine would make a folder of its own there.
        compiler = _compiler(mounted)
        return replace(mounted, prefix=(*recipe.prefix[:-1], *mount, recipe.prefix[-1]), host_compiler=compiler)
    noted = workplace.note(recipe, root=Path(recipe.place), version="")
    nvcc = f"{recipe.place}/bin/nvcc"
    output = process.run(toolchain.command_where_toolkit_is(noted, [nvcc, "--version"]), timeout=_ASK_S).stdout
    version = nvcc_version_in(output)
    if version is None or not version.startswith(f"{recipe.cuda}."):
        raise MalformedError(recipe.prefix[-1], f"its nvcc is {version or 'none'}, not {recipe.cuda}")
    return replace(noted, version=version, host_compiler=_compiler(noted))


def _compiler(noted: Installed) -> HostCompiler:
    words = toolchain.command_where_toolkit_is(noted, ["g++", "-dumpfullversion", "-dumpversion"])
    version = process.run(words, timeout=_ASK_S).stdout.strip()
    return HostCompiler(kind="gcc", version=version, path="g++", found_via="the image's own")
