"""A finished wheel gets an architecture more from its source: built with a witness, compared, grafted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import cuwheel
from tests.integration import build_projects as projects
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.build_world import World


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


def test_the_missing_architecture_is_built_with_a_witness_and_grafted(here: World) -> None:
    """Also where the source has changed since: then the witness shows it, and nothing is written."""
    source = projects.bare(here.folder / "source")
    told = here.build(source, "--for", "9.0")
    assert told.status == 0, told.all
    (base,) = world.wheels(here.out)
    words = ("graft", base, "--add", "sm_80", "--source", source, "--json")
    added = here.cuwheel(*words, "-o", here.folder / "more")
    assert added.status == 0, added.all
    answer = json.loads(added.stdout)
    assert answer["proof"]["kind"] == "witness"
    assert answer["proof"]["witness"] == ["sm_90"]
    (made,) = (here.folder / "more").glob("*.whl")
    assert made.name == "bare-1.0+sm80-py3-none-linux_x86_64.whl"
    (library,) = cuwheel.inspect(made).libraries
    assert [str(row.arch) for row in library.device_code] == ["sm_80", "sm_90"]
    (source / "kernel.cu").write_text((source / "kernel.cu").read_text().replace("*= 2", "*= 3"))
    refused = here.cuwheel(*words, "-o", here.folder / "other")
    assert refused.status == 1, refused.all
    assert [each["rule"] for each in json.loads(refused.stdout)["findings"]] == ["graft-other-code"]
    assert not (here.folder / "other").exists()
