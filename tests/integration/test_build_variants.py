"""`build --set variants=true` from end to end: two CUDA majors, and for each the variant that its code bears out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.fixtures import manifest
from tests.integration import build_projects as projects
from tests.integration import build_world as world
from tests.integration import toolchain_site
from tests.unit.changes.slim.packages import wrong_members

LIBRARIES = {"124": "plain-124.so", "130": "none-130.so"}


def built(folder: Path, *words: str) -> tuple[world.World, dict[str, Any]]:
    site = folder / "site"
    for release, nvcc in (("12.4.1", "12.4.131"), ("13.0.2", "13.0.88")):
        toolchain_site.write_site(site, release, toolchain_site.tiny_parts(nvcc))
    source = projects.prebuilt(folder / "source", library="bare/libbare_cuda{digits}.so")
    for digits, fixture in LIBRARIES.items():
        shutil.copy(manifest.HERE / "bin" / fixture, source / f"kernel{digits}.so")
    here = world.World(folder=folder)
    told = here.build(
        source,
        "--cuda",
        "12.4,13.0",
        "--set",
        "variants=true",
        *words,
        "--offline",
        provider=f"redist={site}",
    )
    assert told.status == 0, told.all
    return here, told.document


def test_a_variant_for_each_cuda_version_and_one_document(tmp_path: Path) -> None:
    here, document = built(tmp_path)
    (made,) = document["variants"]
    labels = {each["label"] for each in made["wheels"]}
    assert labels == {"cu124_sm52_61_90", "cu124_sm52_61_90_ptx100_120", "cu130_sm80_90_ptx100_120"}
    beside = Path(made["document"])
    assert beside.parent == here.out
    assert set(json.loads(beside.read_bytes())["variants"]) == labels
    names = {each.name for each in world.wheels(here.out)}
    assert len(names) == 2 + 1 + 3  # labelled, plain, variants
    assert all(wrong_members(each) == [] for each in world.wheels(here.out))
    (plain,) = made["plain"]
    assert "+" not in Path(plain).name
    sums = (here.out / "SHA256SUMS").read_text()
    assert all(name in sums for name in names)
    rules = [each["rule"] for each in document["findings"]]
    assert "variant-outranked" in rules


def test_variants_of_a_merged_wheel(tmp_path: Path) -> None:
    here, document = built(tmp_path, "--set", "merge=true")
    (made,) = document["variants"]
    (plain,) = made["plain"]
    assert {str(each) for each in world.wheels(here.out)} == {plain, *(each["path"] for each in made["wheels"])}
    assert all(each["label"].startswith("cu124to130_") for each in made["wheels"])
