"""Workplace a toolkit from archives: what index, redist and debian share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.support import log
from cuwheel.toolchains import downloads, finish, store, unpack
from cuwheel.toolchains.downloads import Supply
from cuwheel.toolchains.toolchain import Installed

if TYPE_CHECKING:
    from cuwheel.toolchains.toolchain import HostCompiler, Recipe


class Workplace(Struct, frozen=True, kw_only=True):
    """`scratch` is filled, and then becomes `final`."""

    scratch: Path
    final: Path
    supply: Supply


def from_archives(recipe: Recipe, workplace: Workplace) -> Installed:
    root = workplace.scratch.resolve() / "root"
    root.mkdir()
    for archive, path in zip(recipe.archives, downloads.obtain(recipe.archives, workplace.supply), strict=True):
        unpack.unpack(archive, path, root)
    finish.finish(root, recipe.platform.rpartition("-")[2])
    log.debug("asking the new nvcc for its version")
    return installed(
        recipe, workplace, root=workplace.final / "root", version=finish.nvcc_version(root / "bin" / "nvcc")
    )


def installed(
    recipe: Recipe,
    workplace: Workplace,
    *,
    root: Path,
    version: str,
    host_compiler: HostCompiler | None = None,
    prefix: tuple[str, ...] = (),
) -> Installed:
    return Installed(
        identity=recipe.identity,
        provider=recipe.provider,
        cuda=recipe.cuda,
        release=recipe.release,
        version=version,
        platform=recipe.platform,
        components=recipe.components,
        folder=str(workplace.final),
        root=str(root),
        size=store.size_of(workplace.scratch),
        archives=recipe.archives,
        prefix=prefix,
        host_compiler=host_compiler,
        found_via=recipe.found_via,
    )
