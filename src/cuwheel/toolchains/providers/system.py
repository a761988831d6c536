"""Toolkits that are on the machine already: every one that `doctor` finds, if nothing that is wanted is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.errors import UnavailableError
from cuwheel.facts import versions
from cuwheel.machine import compilers, python_environment
from cuwheel.toolchains.toolchain import Recipe
from cuwheel.toolchains.workplace import nvcc_version, processor_of, write_stub

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.machine.profile import Toolkit
    from cuwheel.machine.world import World
    from cuwheel.toolchains.toolchain import Installed, Wanted
    from cuwheel.toolchains.workplace import Surroundings, Workplace


def decide(wanted: Wanted, around: Surroundings) -> Recipe:
    machine = around.machine
    _, site_packages = python_environment.locate(machine, None)
    found = [
        each
        for each in compilers.probe_toolkits(machine, site_packages, folder=wanted.folder)
        if not Path(each.root).is_relative_to(around.store.folder.resolve())  # ours, by `toolchain env`
    ]
    reasons = []
    for toolkit in found:
        if reason := _unfit(toolkit, wanted, machine):
            reasons.append(f"{toolkit.root} {reason}")
            continue
        return Recipe(
            provider="system",
            cuda=wanted.cuda,
            release=toolkit.version,
            platform=wanted.platform,
            components=tuple(row.name for row in wanted.components),
            place=toolkit.root,
            found_via=f"{toolkit.root}, found by {', '.join(toolkit.found_via)}",
        )
    nothing = f"{wanted.folder} is no CUDA toolkit" if wanted.folder else "no toolkit was found on this machine"
    raise UnavailableError("; ".join(reasons) or nothing)


def _unfit(toolkit: Toolkit, wanted: Wanted, machine: World) -> str:
    if versions.minor(toolkit.version) != wanted.cuda:
        return f"is {toolkit.version}"
    if wanted.exact and toolkit.version != wanted.exact:
        return f"is {toolkit.version}, by its nvcc"
    if toolkit.nvcc is None:
        return "has no nvcc"
    # One of a Jetson may lie here, copied: it says its version in a file.
    if (of := processor_of(machine.path(toolkit.nvcc))) and of != wanted.cpu:
        return f"has an nvcc for {of}: use it on such a machine, a Jetson or an image of L4T"
    lacking = list(missing(machine.path(toolkit.root), wanted.components))
    return f"lacks {', '.join(lacking)}" if lacking else ""


def missing(root: Path, components: Iterable[Component]) -> Iterator[str]:
    """Files that a build would look for in vain."""
    includes = [folder for pattern in ("include", "targets/*/include") for folder in root.glob(pattern)]
    libraries = [folder for pattern in ("lib64", "lib", "targets/*/lib") for folder in root.glob(pattern)]
    if root.is_relative_to("/usr/lib"):  # a distribution's own, spread over the system
        includes.append(Path("/usr/include"))
        libraries += Path("/usr/lib").glob("*-linux-gnu")
    for row in components:
        if row.header and not any((folder / row.header).is_file() for folder in includes):
            yield row.header
        names = [f"lib{row.library}.so", f"x64/{row.library}.lib"]  # the second on Windows
        if row.library and not any((folder / name).exists() for folder in libraries for name in names):
            yield names[0]


def make(recipe: Recipe, workplace: Workplace) -> Installed:
    """Nothing but a note of where it is, and a libcuda to link with where it has none."""
    root = Path(recipe.place)
    if not any((root / folder / "libcuda.so").exists() for folder in ("lib64/stubs", "lib/stubs")):
        write_stub(root, workplace.scratch / "stubs", recipe.platform.rpartition("-")[2])
    version = nvcc_version(root / "bin" / "nvcc")
    return workplace.note(recipe, root=root, version=version)
