"""Toolkits that are on the machine already: every one that `doctor` finds, if nothing that is wanted is missing.

For another processor their headers and libraries for it are taken: JetPack's (`targets/aarch64-linux`), or those for
arm64 servers (`targets/sbsa-linux`). The programs beside them are used where they run here, else those of an archive.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.machine import compilers, python_environment
from cuwheel.toolchains import archives as unpacking
from cuwheel.toolchains import providers
from cuwheel.toolchains import workplace as workplace_of
from cuwheel.toolchains.driver_stub import processor_of
from cuwheel.toolchains.toolchain import Recipe, processors_of
from cuwheel.toolchains.workplace import nvcc_version, write_stub
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import toolkits, versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.machine.profile import Toolkit
    from cuwheel.machine.world import World
    from cuwheel.toolchains.toolchain import Archive, Installed, Wanted
    from cuwheel.toolchains.workplace import Surroundings, Workplace

TARGETS = {"sbsa-linux": False, "aarch64-linux": True}  # whether that is L4T's


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
        if wanted.target:
            recipe = _for_another(toolkit, wanted, around)
            if isinstance(recipe, Recipe):
                return recipe
            reasons.append(f"{toolkit.root} {recipe}")
            continue
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


def _for_another(toolkit: Toolkit, wanted: Wanted, around: Surroundings) -> Recipe | str:
    """A recipe with the headers and libraries of one of its targets, or why it has none that will do."""
    machine = around.machine
    if reason := _other_release(toolkit, wanted):
        return reason
    root = machine.path(toolkit.root)
    places = [root] if root.name in TARGETS else [root / "targets" / each for each in TARGETS]
    there = [each for each in places if (each / "include").is_dir()]
    # From CUDA 13 on the one for servers is that of both.
    wished = None if toolkits.one_arm64(wanted.toolkit) else wanted.l4t
    fitting = [each for each in there if wished in (None, TARGETS[each.name])]
    if not fitting:
        if there:
            of = "Jetson (L4T)" if TARGETS[there[0].name] else "servers"
            return f"has {there[0].name} alone, which is for {of}"
        return f"has no folder targets/{' or targets/'.join(TARGETS)}"
    place = fitting[0]
    if lacking := list(missing(place, wanted.components)):
        return f"lacks {', '.join(lacking)} in {place.name}"
    chosen = replace(wanted, l4t=TARGETS[place.name] and not toolkits.one_arm64(wanted.toolkit))
    archives: tuple[Archive, ...] = ()
    by = "its own programs"
    own = root / "bin" / "nvcc"
    if processor_of(own) != wanted.cpu:
        try:
            programs = _programs(wanted, around)
        except CuwheelError as error:
            return f"has no nvcc for {wanted.cpu}, and none can be had: {error.message}"
        archives, by = programs.archives, f"programs from {programs.provider}"
    return Recipe(
        provider="system",
        cuda=wanted.cuda,
        release=toolkit.version,
        platform=chosen.platform,
        components=tuple(row.name for row in wanted.components),
        archives=archives,
        place=str(place),
        found_via=f"{place}, with {by}",
    )


def _programs(wanted: Wanted, around: Surroundings) -> Recipe:
    """nvcc and what it calls, for this machine, of the same release as near as it can be had."""
    rows = tuple(row for row in wanted.components if row.programs)
    alone = replace(wanted, components=rows, target=None, l4t=None, exact=None)
    return providers.first_recipe(("index", "redist", "debian"), alone, around)


def _other_release(toolkit: Toolkit, wanted: Wanted) -> str:
    if versions.minor(toolkit.version) != wanted.cuda:
        return f"is {toolkit.version}"
    if wanted.exact and toolkit.version != wanted.exact:
        return f"is {toolkit.version}, by its nvcc"
    return ""


def _unfit(toolkit: Toolkit, wanted: Wanted, machine: World) -> str:
    if reason := _other_release(toolkit, wanted):
        return reason
    if toolkit.nvcc is None:
        return "has no nvcc"
    # One of a Jetson may lie here, copied: it says its version in a file.
    if (of := processor_of(machine.path(toolkit.nvcc))) and of != wanted.cpu:
        return f"has an nvcc for {of}: to compile for {of} here, add --cpu {of}"
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
    """Nothing but a note of where it is, and a libcuda to link with where it has none.

    One for another processor is put together: its own headers and libraries, by links, beside programs for this one.
    """
    if processors_of(recipe.platform)[1]:
        return workplace_of.install_archives(recipe, workplace, partial(_join, place=Path(recipe.place)))
    root = Path(recipe.place)
    if not any((root / folder / "libcuda.so").exists() for folder in ("lib64/stubs", "lib/stubs")):
        write_stub(root, workplace.scratch / "stubs", processors_of(recipe.platform)[0])
    version = nvcc_version(root / "bin" / "nvcc")
    return workplace.note(recipe, root=root, version=version)


def _join(root: Path, place: Path) -> None:
    """Programs in `root`, of archives or else those beside the target, with its headers and libraries linked in."""
    if not (root / "bin" / "nvcc").exists():
        unpacking.copy_programs(place.parent.parent, root)
    kept = root / "nvvm" / "lib64"  # what archives of programs have in lib, nvlink's libnvvm, is for this processor
    if kept.is_symlink():
        kept.unlink()
    (root / "lib64").unlink(missing_ok=True)
    if (root / "lib").is_dir():
        (root / "nvvm").mkdir(exist_ok=True)
        if kept.exists():
            shutil.rmtree(root / "lib")
        else:
            (root / "lib").rename(kept)
    (root / "lib").symlink_to(place / "lib")
    (root / "lib64").symlink_to("lib")
    (root / "include").mkdir(exist_ok=True)
    for path in (place / "include").iterdir():
        mine = root / "include" / path.name
        if mine.is_dir() and not mine.is_symlink():
            shutil.rmtree(mine)
        mine.unlink(missing_ok=True)
        mine.symlink_to(path)
    if not (place / "lib" / "stubs" / "libcuda.so").exists():
        write_stub(root, root.parent / "stubs", "aarch64")
