"""Channels by what is in the file: device code, libraries, requirements; then by what the version says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.delivery import arrivals
from cuwheel.device_code import description
from cuwheel.device_code.description import Description, MergedPart
from tests.fixtures import manifest, small_wheel
from tests.unit.delivery.published import cuda_wheel, wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def _of(path: Path) -> arrivals.Channels:
    read = arrivals.read_arrival(path)
    assert read.file is not None, read.findings
    return arrivals.Channels(
        names=read.file.channels,
        findings=tuple(each for each in read.findings if each.rule == "publish-label-wrong"),
    )


@pytest.mark.parametrize(
    ("version", "library", "requires", "expected"),
    [
        ("1.0", "plain-130.so", [], ("cu130",)),
        ("1.0", "plain-124.so", [], ("cu124",)),
        ("1.0+cu130", "plain-130.so", [], ("cu130",)),
        # The label names the minor of the same major: static libraries of another toolkit may be inside.
        ("1.0+cu128", "plain-124.so", [], ("cu128",)),
        ("1.0+ubuntu.1.cu130", "plain-130.so", [], ("cu130",)),
        ("1.0", "plain-130.so", ["torch==2.11.0"], ("cu130", "cu130/torch2.11")),
        ("1.0", "plain-130.so", ["torch==2.11.*", "numpy"], ("cu130", "cu130/torch2.11")),
        ("1.0", "plain-130.so", ["torch~=2.11.0"], ("cu130", "cu130/torch2.11")),
        ("1.0", "plain-130.so", ["torch>=2.11,<2.12"], ("cu130", "cu130/torch2.11")),
        ("1.0", "plain-130.so", ["torch==2.11.0; sys_platform == 'linux'"], ("cu130", "cu130/torch2.11")),
        ("1.0", "plain-130.so", ["torch>=2.11"], ("cu130",)),
        ("1.0", "plain-130.so", ["torch"], ("cu130",)),
        ("1.0", "plain-130.so", ["torchvision==2.11.0"], ("cu130",)),
        ("2.7.4+cu13torch2.6cxx11abiTRUE", "plain-130.so", [], ("cu13", "cu13/torch2.6")),
        ("1.0+pt211cu130", "plain-130.so", [], ("cu130", "cu130/torch2.11")),
        ("1.0+cucumber", "plain-130.so", [], ("cu130",)),
    ],
)
def test_by_content_and_label(
    version: str, library: str, requires: list[str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    found = _of(cuda_wheel(tmp_path, version, library=library, requires=requires))
    assert found.names == expected
    assert found.findings == ()


def test_a_label_that_the_content_contradicts(tmp_path: Path) -> None:
    found = _of(cuda_wheel(tmp_path, "1.0+cu124", library="plain-130.so"))
    assert found.names == ("cu130",)
    assert [each.rule for each in found.findings] == ["publish-label-wrong"]
    assert "13.0" in found.findings[0].message


@pytest.mark.parametrize(
    ("version", "requires", "expected"),
    [
        ("1.0", [], ()),
        ("1.0", ["torch==2.11.0"], ()),
        ("1.0", ["nvidia-cuda-runtime-cu12==12.8.90"], ("cu128",)),
        ("1.0", ["nvidia-cuda-runtime==13.0.*"], ("cu130",)),
        ("1.0", ["cuda-toolkit[cublas,cudart]==13.0.2"], ("cu130",)),
        ("1.0", ["nvidia-cublas-cu12==12.8.4.1"], ()),
        ("1.0", ["nvidia-cuda-runtime"], ()),
        ("1.0+cu130", [], ("cu130",)),
        ("1.0+cpu", [], ()),
    ],
)
def test_without_device_code(version: str, requires: list[str], expected: tuple[str, ...], tmp_path: Path) -> None:
    assert _of(wheel(tmp_path, version, requires=requires)).names == expected


def _with(folder: Path, name: str, files: dict[str, bytes], **options: Any) -> Path:
    made = {f"{name}/__init__.py": b"", **files}
    return small_wheel.Wheel(name=name, tag="py3-none-linux_x86_64", files=made, **options).write(folder)  # type: ignore[arg-type]


def test_a_package_with_a_library_for_each_cuda_is_in_each_channel(tmp_path: Path) -> None:
    old, new = ((manifest.HERE / "bin" / name).read_bytes() for name in ("plain-124.so", "plain-130.so"))
    files = {"bitsandbytes/libbitsandbytes_cuda124.so": old, "bitsandbytes/libbitsandbytes_cuda130.so": new}
    assert _of(_with(tmp_path, "bitsandbytes", files)).names == ("cu124", "cu130")


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (Description(cuda="13.0", archs=("sm_90",)), ("cu130",)),
        (
            Description(
                cuda="12.4, 13.0",
                archs=(),
                merged=(MergedPart(cuda="12.4", archs=()), MergedPart(cuda="13.0", archs=())),
            ),
            ("cu124", "cu130"),
        ),
    ],
)
def test_what_the_build_says_goes_before_all(described: Description, expected: tuple[str, ...], tmp_path: Path) -> None:
    """Also before a label of the same major."""
    files = {"foo-1.0+cu132.dist-info/cuwheel.json": description.encoded(described)}
    assert _of(_with(tmp_path, "foo", files, version="1.0+cu132")).names == expected
