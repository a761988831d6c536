"""How known packages are built: what nobody should have to find out again. Each is one file beside this one.

`names`: of the project, as an index normalises them. `why`: what the settings are for. `versions`: the releases that it
holds for. `tried`: what was really built with it. `settings`: as in `[tool.cuwheel]`, which goes before them. If they
require torch, they say from which release on, `torch` says who says so, and each trial which release it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier
from packaging.version import InvalidVersion

from cuwheel.building import config
from cuwheel.support import codec, limited
from cuwheel.wheel import requirements
from cuwheel_core.errors import FactsError
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.building.tables import Table

FOLDER = Path(__file__).parent


class Trial(Struct, frozen=True, kw_only=True):
    """`outcome`: built, or how far it came."""

    version: str
    cuda: str
    archs: tuple[str, ...]
    outcome: str
    torch: str = ""


class Recipe(Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    why: str
    tried: tuple[Trial, ...]
    versions: str = ""
    torch: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.names[0]


def find_recipe(name: str, version: str) -> Recipe | None:
    """The recipe of a project by its name; a version that is not known is taken to be one that fits."""
    wanted = f'"{normalised(name)}"'
    named = (path for path in sorted(FOLDER.glob("*.toml")) if wanted in path.read_text(encoding="utf-8"))
    return next((each for path in named if fits(each := _known(path), name, version)), None)


def fits(recipe: Recipe, name: str, version: str) -> bool:
    if normalised(name) not in recipe.names:
        return False
    try:
        return not version or limited.specifiers(recipe.versions).contains(limited.version(version), prereleases=True)
    except InvalidVersion:
        return True


@cache
def _known(path: Path) -> Recipe:
    return _load([path])[0]


def load_recipes(folder: Path) -> tuple[Recipe, ...]:
    """Every recipe of a folder; raises FactsError with every mistake of every file."""
    return _load(sorted(folder.glob("*.toml")))


def _load(paths: Iterable[Path]) -> tuple[Recipe, ...]:
    problems: list[str] = []
    found = [_read(path, problems) for path in paths]
    if problems:
        raise FactsError(problems)
    return tuple(each for each in found if each)


def _read(path: Path, problems: list[str]) -> Recipe | None:
    data = codec.checked_table(path, problems)
    if data is None:
        return None
    written = data.pop("settings", {})
    recipe = codec.convert_or_list_problems(data, Recipe, path.name, problems)
    if recipe is None:
        return None
    settings = config.read_recipe_settings(written, f"{path.name}: settings", problems)
    recipe = replace(recipe, settings=settings)
    problems += [f"{path.name}: {each}" for each in (*_problems(recipe), *_torch_problems(recipe))]
    return recipe


def _problems(recipe: Recipe) -> Iterator[str]:
    if not recipe.names or any(each != normalised(each) for each in recipe.names):
        yield "the name must be normalised"
    if not recipe.tried:
        yield "it was never tried"
    try:
        limited.specifiers(recipe.versions)
    except InvalidSpecifier:
        yield f"versions: {recipe.versions!r} is not a specifier such as >=1.2"


def _torch_problems(recipe: Recipe) -> Iterator[str]:
    """An extension is compiled for one release of torch: which ones will do is part of how it is built."""
    given = map(requirements.parse, recipe.settings.get("requires") or ())
    needed = next((each for each in given if each and normalised(each.name) == "torch"), None)
    if needed is None:
        if recipe.torch or any(each.torch for each in recipe.tried):
            yield "it speaks of torch, which its settings do not require"
        return
    if not needed.specifier:
        yield "the torch that it requires has no release from which on it fits"
    if not recipe.torch:
        yield "torch: where the releases that fit are from is missing"
    for each in recipe.tried:
        if not each.torch or not needed.specifier.contains(each.torch, prereleases=True):
            yield f"tried {each.version}: torch {each.torch or '(not named)'} is not a release that it is for"


def in_effect(recipe: Recipe, table: Table) -> tuple[str, ...]:
    """Its settings as a person writes them, without those that somebody's own took the place of."""
    return tuple(_lines(recipe.settings, codec.builtins(table), ""))


def _lines(settings: dict[str, Any], in_effect: dict[str, Any], where: str) -> Iterator[str]:
    for name, value in settings.items():
        now = in_effect.get(name)
        if isinstance(value, dict):
            yield from _lines(value, now if isinstance(now, dict) else {}, f"{where}{name}.")
        elif isinstance(value, list):
            if kept := [str(each) for each in value if isinstance(now, list | tuple) and each in now]:
                yield f"{where}{name} = {', '.join(kept)}"
        elif value == now:
            yield f"{where}{name} = {str(value).lower() if isinstance(value, bool) else value}"
