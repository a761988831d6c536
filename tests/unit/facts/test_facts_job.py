"""./run facts sees what a table has wrong; the real sources are its own business."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from facts import libraries, names
from facts.index import Wheel
from packaging.version import Version

from cuwheel.facts.tables import tables

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_ROWS = [row for row in tables().libraries.package if row.name == "nvidia-cusparselt-cu13"]


@pytest.mark.parametrize(
    ("release", "folder", "name", "found"),
    [
        ("0.8.1", "nvidia/cusparselt/lib", "libcusparseLt.so.0", []),
        ("0.9.0", "nvidia/cu13/lib", "libcusparseLt.so.0", []),
        ("0.9.0", "nvidia/cusparselt/lib", "libcusparseLt.so.0", ["it is in nvidia/cusparselt/lib", "it is not there"]),
        ("0.9.0", "nvidia/cu13/lib", "libcusparseLt.so.1", ["it is in nvidia/cu13/lib", "it is not there"]),
    ],
)
def test_a_library_in_another_place_or_of_another_name(release: str, folder: str, name: str, found: list[str]) -> None:
    wheel = Wheel("nvidia-cusparselt-cu13", Version(release), "manylinux2014_x86_64", "")
    assert [each.source_says for each in libraries.differences(wheel, {(folder, name)}, _ROWS)] == found


def test_names_that_the_look_up_gets_wrong_or_does_not_know(tmp_path: Path) -> None:
    listed = [("2330", "NVIDIA H100 80GB HBM3"), ("2b85", "NVIDIA H200"), ("2b85", "NVIDIA Z9000")]
    rows = "".join(f'    {{ 0x{device}, 0x0000, 0x0000, "{name}" }},\n' for device, name in listed)
    (tmp_path / names.NAMES).write_text(rows)
    (tmp_path / names.CHIPS).write_text(
        "10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n\t2b85  GB202 [GeForce RTX 5090]\n10df  Other\n"
    )
    found = {each.what: each.source_says for each in names.check(tmp_path)}
    assert found == {"NVIDIA H200": "GB202, 12.0", "NVIDIA Z9000": "a name of the driver's, GB202"}
