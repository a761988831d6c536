"""What hardware did is kept: the rules must go on saying it, and hardware must go on doing it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.support import process
from tests.gpu import compare, runner, variants

if TYPE_CHECKING:
    from pathlib import Path

RESULTS = compare.KEPT / "results.json.gz"
FLOOR = 200


def test_every_variant_has_a_name_of_its_own() -> None:
    names = [variants.name(variant) for variant in variants.everything()]
    assert len(names) == len(set(names)) >= FLOOR


@pytest.mark.skipif(not RESULTS.exists(), reason="no results of a GPU are kept")
def test_the_rules_say_what_hardware_did() -> None:
    found = compare.compare(compare.KEPT, compare.load_results(RESULTS))
    assert len({run.id for run in found.runs}) >= FLOOR
    assert not found.differences
    assert compare.PAGE.read_text() == compare.page(found)


@pytest.mark.skipif(not RESULTS.exists(), reason="no set is kept")
def test_hardware_does_it_again(tmp_path: Path) -> None:
    """The bare fat binaries, which need no runtime."""
    try:
        on = runner.describe_apart()
    except SystemExit as error:
        pytest.skip(f"no GPU: {error}")
    manifest = json.loads((compare.KEPT / "manifest.json").read_text())
    if (on["capability"], on["driver_cuda"]) != ("9.0", manifest["driver_cuda"]):
        pytest.skip(f"the set is for capability 9.0 and CUDA {manifest['driver_cuda']}, here is {on}")
    out = tmp_path / "results.json"
    command: list[str | Path] = [
        sys.executable,
        runner.__file__,
        "--set",
        compare.KEPT,
        "--only",
        "fatbin",
        "--out",
        out,
    ]
    process.run(command, timeout=540)
    assert not compare.compare(compare.KEPT, compare.load_results(out)).differences
