"""Archives into a folder, to be carried to a machine without a network."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cuwheel.errors import UnavailableError
from cuwheel.support import quoting
from cuwheel.toolchains import archives, downloads, lock, provide, providers
from cuwheel.toolchains.toolchain import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.toolchains.request import ToolchainRequest
    from cuwheel.toolchains.toolchain import Installed

# A toolkit of the system, of conda or in an image is not a set of archives.
_IN_ARCHIVES = ("index", "redist", "debian")


def fetch(request: ToolchainRequest, folder: Path) -> tuple[Recipe, tuple[Path, ...]]:
    chosen = tuple(name for name in request.providers or providers.ORDER if name in _IN_ARCHIVES)
    if not chosen:
        words = ("cuwheel", "toolchain", "fetch", request.version, "--provider", ",".join(_IN_ARCHIVES))
        raise UnavailableError(
            f"{', '.join(request.providers)} cannot be fetched into a folder",
            hint=quoting.here([*words, "--to", str(folder)]),
        )
    decision = provide.decide(dataclasses.replace(request, providers=chosen))  # noqa: TID251 - a request
    recipe = _recipe(decision.chosen)
    if request.dry_run:
        return recipe, ()
    files = downloads.copy_to(folder, recipe.archives, decision.supply)
    sized = zip(recipe.archives, files, strict=True)
    recipe = replace(recipe, archives=tuple(replace(each, size=path.stat().st_size) for each, path in sized))
    more = lock.all_requirements(recipe.cuda, recipe.platform, request.locked)
    for each in more:
        wanted = archives.with_addresses(each.archive, offline=request.offline)
        files += downloads.copy_to(folder, wanted, decision.supply)
    lock.update(folder / lock.NAME, lock.locked(recipe), *more)
    return recipe, tuple(dict.fromkeys(files))


def _recipe(chosen: Recipe | Installed) -> Recipe:
    if isinstance(chosen, Recipe):
        return chosen
    return replace(lock.locked(chosen).recipe(), archives=chosen.archives)  # with addresses on this machine, too
