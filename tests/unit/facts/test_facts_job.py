"""./run facts sees what a table has wrong; the real sources are its own business."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from facts import libraries, messages, names, packages
from facts.index import Wheel
from packaging.version import Version

from cuwheel_core.facts.tables import tables

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


def test_a_library_of_torch_that_the_row_of_its_release_does_not_name() -> None:
    def found(release: str, name: str) -> list[str]:
        wheel = Wheel("torch", Version(release), "manylinux1_x86_64", "")
        return [each.source_says for each in packages.libraries_of_torch(wheel, [f"torch/lib/{name}"])]

    for release, name in (("1.10.2", "libcaffe2_detectron_ops_gpu.so"), ("2.9.1", "libtorch_nvshmem.so")):
        assert found(release, name) == []
    for release, name in (("2.8.0", "libtorch_nvshmem.so"), ("1.10.2", "libtorch_cuda_linalg.so")):
        assert found(release, name) == ["it is there"]


@pytest.mark.parametrize(
    ("name", "module", "there"),
    [
        ("yaml/__init__.py", "yaml", True),
        ("win32/win32api.pyd", "win32api", True),
        ("libclang-18.1.1.data/platlib/clang/cindex.py", "clang", True),
        ("pynvml.py", "pynvml", True),
        ("other/deep/yaml/x.py", "yaml", False),
        ("yamllint/__init__.py", "yaml", False),
        ("docs/yaml", "yaml", False),
    ],
)
def test_whether_a_wheel_has_a_module(name: str, module: str, there: bool) -> None:  # noqa: FBT001
    assert packages.has_module([name], module) is there


def test_the_messages_of_a_program_are_its_sentences_with_placeholders() -> None:
    said = (
        "Unsupported gpu architecture '%s'",
        "too short %s",
        "no placeholder in this one",
        "identifier %sq is undefined",
    )
    data = "\x00\x01".join(said).encode()
    assert messages.format_strings(data) == ["Unsupported gpu architecture '%s'", "identifier %sq is undefined"]
    assert messages.filled("Value '%s' at line %d of %3$lu") == "Value 'name' at line 1 of 1"
