"""What is told of a build can be shown to others: neither its files nor its wheel hold a secret of whoever built it."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.build_world import World

ENVIRON = {
    "MY_TOKEN": "of-no-known-shape",
    "MY_PLAIN": "q7Rk2ZpX9vLm4TbW8sYc1NdF6hJg3KtV",
    "MY_JWT": "an-identity",
    "MY_WEBHOOK_URL": "https://hook.example/anybody-may",
    "UV_PUBLISH_TOKEN": "never-passed-on",
}
PRINTED = (
    "echo $MY_TOKEN $DB_PASSWORD $MY_PLAIN $MY_JWT $MY_WEBHOOK_URL password: typed-in https://h/x?sig=signed-by-me"
)
SECRETS = (*ENVIRON.values(), "written-in-the-file", "in-an-address", "typed-in", "signed-by-me")


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def configured(here: World, before: str, requires: str = "") -> Path:
    place = here.folder / "given.toml"
    place.write_text(
        f'for = "h100"\ncuda = "13.0"\npass-through = "MY_*"\nbefore = ["{before}"]\nrequires = [{requires}]\n'
        'config-settings = { x = "https://me:in-an-address@example.invalid" }\n'
        '[environment]\nKERNEL_ARCHS = "{archs.nvcc}"\nDB_PASSWORD = "written-in-the-file"\n'
    )
    return place


def told_of(here: World, printed: str) -> str:
    """Every file of the output, and every log and record that the store keeps."""
    kept = [path for path in here.out.iterdir() if path.suffix in (".json", ".html")]
    kept += [path for path in here.folder.rglob("*") if path.suffix in (".log", ".jsonl") and path.is_file()]
    return printed + "".join(path.read_text(errors="replace") for path in kept)


def test_a_wheel_and_its_report(here: World) -> None:
    source = projects.bare(here.folder / "source")
    given = configured(here, PRINTED)
    told = here.build(source, "--config", given, "--set", "repair.enabled=false", env=ENVIRON)
    assert told.status == 0, told.all
    (wheel,) = world.wheels(here.out)
    with zipfile.ZipFile(wheel) as file:
        (inside,) = (file.read(name).decode() for name in file.namelist() if name.endswith("/cuwheel.json"))
    text = told_of(here, told.all + inside)
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize("what", ["before", pytest.param("requires", marks=pytest.mark.slow)])
def test_a_failure_that_printed_them(here: World, what: str) -> None:
    source = projects.bare(here.folder / "source")
    address = '"nothing @ https://me:in-an-address@127.0.0.1:9/nothing-1-py3-none-any.whl"'
    given = configured(here, f"{PRINTED}; exit 3", address if what == "requires" else "")
    told = here.build(source, "--config", given, env=ENVIRON)
    assert told.status == 1, told.all
    text = told_of(here, told.all)
    assert "***" in text
    assert [secret for secret in SECRETS if secret in text] == []
