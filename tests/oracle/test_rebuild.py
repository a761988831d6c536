"""The committed binaries are what their recipes make."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.fixtures import make, manifest, recipes
from tests.fixtures.damage import elf

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES = {fixture.file: fixture for fixture in manifest.load()}
RECIPES = [recipe for recipe in recipes.load() if recipe.committed]


def test_every_recipe_has_its_fixture_and_no_file_is_left_over() -> None:
    names = [recipe.file for recipe in RECIPES]
    assert list(FIXTURES) == names
    assert sorted(path.name for path in (manifest.HERE / "bin").iterdir()) == sorted(names)


def test_recipes_and_manifest_agree() -> None:
    assert [(each.about, each.commands) for each in FIXTURES.values()] == [(each.about, each.steps) for each in RECIPES]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda each: each.file)
def test_rebuilt(recipe: recipes.Recipe) -> None:
    """The same device code always; the same bytes with the same host compiler."""
    kept, made = FIXTURES[recipe.file], make.build(recipe)
    again = make.describe(recipe, made)
    assert (again.entries, again.kernels) == (kept.entries, kept.kernels)
    assert device_sections(made) == device_sections(kept.path)
    if again.host == kept.host:
        assert hashlib.sha256(made.read_bytes()).hexdigest() == kept.sha256


def device_sections(path: Path) -> list[bytes]:
    """The bytes of the sections with device code, wherever the linker put them."""
    if FIXTURES[path.name].format != "elf":
        return []
    data = path.read_bytes()
    places = [elf.extent(data, name) for name in elf.sections(data) if name in (".nv_fatbin", "__nv_relfatbin")]
    return [data[start : start + size] for start, size in places]
