"""`build --set merge=true` from end to end: two CUDA majors, two toolkits, one wheel that has the libraries of both."""

from __future__ import annotations

import shutil
import zipfile
from typing import TYPE_CHECKING

from cuwheel import api
from tests.fixtures import manifest
from tests.integration import build_projects as projects
from tests.integration import build_world as world
from tests.integration import toolchain_site
from tests.unit.changes.slim.packages import wrong_members

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES = {"124": "plain-124.so", "130": "none-130.so"}


def test_two_majors_in_one_wheel(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for release, nvcc in (("12.4.1", "12.4.131"), ("13.0.2", "13.0.88")):
        toolchain_site.write_site(site, release, toolchain_site.tiny_parts(nvcc))
    source = projects.prebuilt(tmp_path / "source", library="bare/libbare_cuda{digits}.so")
    for digits, fixture in LIBRARIES.items():
        shutil.copy(manifest.HERE / "bin" / fixture, source / f"kernel{digits}.so")
    here = world.World(folder=tmp_path)
    words = ("--cuda", "12.4,13.0", "--set", "merge=true", "--offline")
    told = here.build(source, *words, provider=f"redist={site}")
    assert told.status == 0, told.all
    (merged,) = told.document["merged"]
    assert [each["cuda"] for each in told.document["jobs"]] == ["12.4", "13.0"]
    (made,) = world.wheels(here.out)
    assert merged["wheel"]["path"] == str(made)
    with zipfile.ZipFile(made) as archive:
        for digits, fixture in LIBRARIES.items():
            packed = archive.read(f"bare/libbare_cuda{digits}.so")
            assert packed == (manifest.HERE / "bin" / fixture).read_bytes()
    assert wrong_members(made) == []
    assert api.check(made, on=["h100"]).verdicts[0].outcome == "native"
