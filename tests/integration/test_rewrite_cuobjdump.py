"""NVIDIA's own reader lists exactly what was kept of the fixtures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.binaries.rewrite import slim_library
from tests.fixtures import cuobjdump, manifest
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from pathlib import Path

FILES = [
    fixture.file
    for fixture in manifest.load()
    if fixture.format == "elf" and fixture.file.endswith((".so", "program-130")) and not fixture.by_hand
]


@pytest.mark.parametrize("gpus", ["9.0", "8.0,12.0"])
@pytest.mark.parametrize("file", FILES)
def test_lists_what_was_kept(tmp_path: Path, file: str, gpus: str) -> None:
    source, target = manifest.HERE / "bin" / file, tmp_path / file
    plan = engine.plan(source, *gpus.split(","), recompress=True, force=True)
    if not slim_library(source, target, plan).written:
        pytest.skip("everything in it is for these GPUs")
    # It prints sm_100f as sm_100.
    listed = Counter(
        (each.kind, each.arch.rstrip("f"), each.relocatable) for each in cuobjdump.entries(target).elements()
    )
    kept = Counter(
        (each.entry.kind, each.entry.arch.rstrip("f"), not each.entry.linked) for each in plan.entries if each.keep
    )
    assert listed == kept
