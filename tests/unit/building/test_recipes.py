"""Recipes of known packages: sound files, found by name, and below whatever somebody says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.building import config, recipes
from cuwheel.building.recipes import Recipe, Trial
from cuwheel_core.errors import FactsError

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.building.tables import Table

TRIAL = Trial(version="1.0", cuda="13.0", archs=("sm_90",), outcome="built")


def recipe(**settings: Any) -> Recipe:
    problems: list[str] = []
    made = Recipe(
        names=("foo",), why="", tried=(TRIAL,), settings=config.read_recipe_settings(settings, "foo", problems)
    )
    assert problems == []
    return made


def over(below: Recipe, tmp_path: Path, text: str = "", **told: Any) -> Table:
    (tmp_path / "cuwheel.toml").write_text(text)
    return config.over_recipe(below.settings, config.find_configuration(tmp_path, None, told))


def test_every_recipe_is_sound_and_names_are_unique() -> None:
    names = [name for each in recipes.load_recipes(recipes.FOLDER) for name in each.names]
    assert len(names) == len(set(names))
    assert {"bitsandbytes", "flash-attn", "xformers", "llama-cpp-python", "torch-scatter"} <= set(names)
    for each in recipes.load_recipes(recipes.FOLDER):
        assert recipes.find_recipe(each.name, "") == each


@pytest.mark.parametrize("name", ["llama-cpp-python", "llama_cpp_python", "Llama.CPP.Python"])
def test_names_are_compared_as_an_index_does(name: str) -> None:
    found = recipes.find_recipe(name, "0.3.16")
    assert found
    assert found.name == "llama-cpp-python"


def test_versions_that_it_holds_for(tmp_path: Path) -> None:
    head = 'names = ["foo"]\nwhy = ""\n[[tried]]\nversion = "2"\ncuda = "13.0"\narchs = ["sm_90"]\noutcome = "built"\n'
    (tmp_path / "foo.toml").write_text('versions = ">=2"\n' + head)
    (found,) = recipes.load_recipes(tmp_path)
    assert recipes.fits(found, "foo", "2.1.dev0")
    assert recipes.fits(found, "foo", "")
    assert recipes.fits(found, "foo", "whatever")
    assert not recipes.fits(found, "foo", "1.9")
    assert not recipes.fits(found, "bar", "2.1")


def test_all_mistakes_of_all_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('names = ["A_b"]\nwhy = ""\ntried = []\nversions = "new"\n')
    head = 'names = ["b"]\nwhy = ""\ntried = [{ version = "1", cuda = "13.0", archs = [], outcome = "" }]\n'
    (tmp_path / "b.toml").write_text(head + '[settings]\nno-such-key = 1\ncomponents = ["nothing"]\n')
    (tmp_path / "c.toml").write_text("not TOML")
    with pytest.raises(FactsError) as caught:
        recipes.load_recipes(tmp_path)
    told = "\n".join(caught.value.problems)
    for words in (
        "a.toml: the name must be",
        "a.toml: it was never",
        "a.toml: versions",
        "no-such-key",
        "nothing",
        "c.toml: ",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("requires", "source", "torch", "problem"),
    [
        ("torch>=2.2", "its README", "2.11.0", ""),
        ("torch>=2.2", "its README", "", "is not a release that it is for"),
        ("torch>=2.2", "its README", "2.1.0", "is not a release that it is for"),
        ("torch>=2.2", "", "2.11.0", "where the releases that fit are from is missing"),
        ("torch", "its README", "2.11.0", "no release from which on it fits"),
        ("psutil", "", "2.11.0", "which its settings do not require"),
        ("psutil", "", "", ""),
    ],
)
def test_which_torch_it_fits_and_was_tried_with(
    tmp_path: Path, requires: str, source: str, torch: str, problem: str
) -> None:
    trial = f'{{ version = "1", cuda = "13.0", archs = ["sm_90"], outcome = "built", torch = "{torch}" }}'
    text = f'names = ["foo"]\nwhy = ""\ntorch = "{source}"\ntried = [{trial}]\n[settings]\nrequires = ["{requires}"]\n'
    (tmp_path / "foo.toml").write_text(text)
    if not problem:
        (found,) = recipes.load_recipes(tmp_path)
        assert found.tried[0].torch == torch
        return
    with pytest.raises(FactsError, match=problem):
        recipes.load_recipes(tmp_path)


def test_somebodys_own_configuration_goes_before_it(tmp_path: Path) -> None:
    below = recipe(components=["cublas"], timeout=60.0, environment={"A": "1", "B": "1"}, gate={"size": "1 MB"})
    table = over(below, tmp_path, 'timeout = 7.0\nenvironment = { B = "2" }\n', components=("cufft",))
    assert table.timeout == 7.0
    assert table.environment == {"A": "1", "B": "2"}
    assert table.gate.size == "1 MB"
    assert set(table.components) == {"cublas", "cufft"}
    assert recipes.in_effect(below, table) == ("components = cublas", "environment.A = 1", "gate.size = 1 MB")


def test_requirements_add_up_by_name(tmp_path: Path) -> None:
    below = recipe(requires=["torch", "psutil"])
    table = over(below, tmp_path, requires=["Torch==2.11.0"])
    assert table.requires == ("Torch==2.11.0", "psutil")
    assert over(below, tmp_path).requires == ("torch", "psutil")


def test_settings_are_shown_as_they_are_written(tmp_path: Path) -> None:
    below = recipe(force_archs=True, python_tag="py3-none", gate={"device-code": False, "allow": ["compute_*"]})
    shown = recipes.in_effect(below, over(below, tmp_path))
    assert shown == (
        *("force-archs = true", "python-tag = py3-none"),
        *("gate.device-code = false", "gate.allow = compute_*"),
    )
