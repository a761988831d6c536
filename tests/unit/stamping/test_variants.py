"""Variant wheels: named and described, RECORD right, the same bytes every time, and a document of all beside them."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import MalformedError
from cuwheel.inspection.survey import survey
from cuwheel.stamping import stamp, variants
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.name import WheelName
from tests.fixtures.small_wheel import Wheel
from tests.unit.slimming.packages import fixture, wrong_members

if TYPE_CHECKING:
    from pathlib import Path

TAG = "cp312-cp312-manylinux_2_28_x86_64"


def plain(folder: Path, library: str, version: str = "1.0", *, name: str = "pkg", tag: str = TAG) -> Path:
    return Wheel(
        name=name, version=version, tag=tag, files={f"{name}/__init__.py": "", f"{name}/lib{name}.so": fixture(library)}
    ).write(folder)


def released(path: Path) -> WheelName:
    name = WheelName.parse(path.name)
    assert name
    return name


def said(path: Path) -> dict[str, dict[str, list[str]]]:
    """What the variant of a wheel says of NVIDIA's features, by its label."""
    with zipfile.ZipFile(path) as archive:
        member = next(each for each in archive.namelist() if each.endswith(".dist-info/variant.json"))
        return {label: told["nvidia"] for label, told in json.loads(archive.read(member))["variants"].items()}


def test_a_variant_is_the_wheel_with_a_label_and_a_document(tmp_path: Path) -> None:
    wheel = plain(tmp_path, "names-130.so")
    made = variants.write(wheel, tmp_path)
    (one,) = made.wheels
    assert one.path.name == f"pkg-1.0-{TAG}-cu130_sm75_90_100.whl"
    assert said(one.path) == {
        "cu130_sm75_90_100": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["75_real", "90_real", "100_real"]}
    }
    assert wrong_members(one.path) == []
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(one.path) as after:
        added = set(after.namelist()) - set(before.namelist())
        assert added == {"pkg-1.0.dist-info/variant.json"}
        for name in set(before.namelist()) - {"pkg-1.0.dist-info/RECORD"}:
            assert after.read(name) == before.read(name)
    assert made.findings == ()


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = plain(tmp_path, "names-130.so")
    first = [each.path.read_bytes() for each in variants.write(wheel, tmp_path).wheels]
    assert [each.path.read_bytes() for each in variants.write(wheel, tmp_path).wheels] == first


def test_ptx_that_needs_a_newer_driver_gets_a_variant_of_its_own(tmp_path: Path) -> None:
    made = variants.write(plain(tmp_path, "plain-134.so"), tmp_path)
    assert [said(each.path) for each in made.wheels] == [
        {"cu134_sm90_100": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real", "100_real"]}},
        {
            "cu134_sm90_100_ptx120": {
                "cuda_version_lower_bound": ["13.4"],
                "sm_arch": ["90_real", "100_real", "120_virtual"],
            }
        },
    ]


def test_what_no_value_can_say_is_said_in_words(tmp_path: Path) -> None:
    made = variants.write(plain(tmp_path, "specific-130.so"), tmp_path)
    assert [each.variant.label for each in made.wheels] == ["cu130_sm90"]
    (finding,) = made.findings
    assert finding.rule == "variant-unsaid"
    assert finding.message.endswith("12.0")
    assert "120_real matches 12.1 too" in finding.evidence[0]


def test_a_wheel_without_device_code_gets_no_variant(tmp_path: Path) -> None:
    made = variants.write(plain(tmp_path, "amd.so"), tmp_path)
    assert made.wheels == ()
    assert [each.rule for each in made.findings] == ["variant-none"]


def test_variants_of_all_cuda_versions_have_the_public_version(tmp_path: Path) -> None:
    """Installers compare versions first: those of 1.0+cu130 would always come before those of 1.0+cu124."""
    made = [
        wheel.path
        for version, library in (("1.0+cu130", "names-130.so"), ("1.0+cu124", "names-124.so"))
        for wheel in variants.write(plain(tmp_path, library, version), tmp_path).wheels
    ]
    assert {released(each).version for each in made} == {"1.0"}
    for each in made:
        with WheelFile(each) as wheel:
            assert wheel.distribution.version == "1.0"
            assert wheel.info == "pkg-1.0.dist-info/"
    (document,) = variants.write_sets(tmp_path, map(released, made))
    assert document.name == "pkg-1.0-variants.json"
    assert set(json.loads(document.read_bytes())["variants"]) == {released(each).variant for each in made}


def test_the_document_grows_with_the_folder(tmp_path: Path) -> None:
    first = variants.write(plain(tmp_path, "names-130.so"), tmp_path).wheels[0].path
    (document,) = variants.write_sets(tmp_path, [released(first)])
    assert len(json.loads(document.read_bytes())["variants"]) == 1
    other = variants.write(plain(tmp_path, "names-124.so", "1.0+cu124"), tmp_path).wheels[0].path
    assert variants.write_sets(tmp_path, [released(other)]) == (document,)
    assert len(json.loads(document.read_bytes())["variants"]) == 2


def test_wheels_for_several_pythons_share_a_label(tmp_path: Path) -> None:
    made = [
        variants.write(plain(tmp_path, "names-130.so", tag=TAG.replace("312", python)), tmp_path).wheels[0].path
        for python in ("311", "312")
    ]
    (document,) = variants.write_sets(tmp_path, map(released, made))
    assert len(json.loads(document.read_bytes())["variants"]) == 1


def test_one_label_with_two_meanings_is_refused(tmp_path: Path) -> None:
    made = variants.write(plain(tmp_path, "names-130.so"), tmp_path).wheels[0].path
    data = made.read_bytes()
    other = made.with_name(made.name.replace("cp312", "cp311"))
    with zipfile.ZipFile(made) as archive, zipfile.ZipFile(other, "w") as changed:
        for each in archive.namelist():
            changed.writestr(each, archive.read(each).replace(b"90_real", b"86_real"))
    with pytest.raises(MalformedError, match="are for different machines"):
        variants.write_sets(tmp_path, [released(made)])
    assert made.read_bytes() == data
    assert not (tmp_path / "pkg-1.0-variants.json").exists()


def test_a_variant_is_not_made_of_a_variant(tmp_path: Path) -> None:
    made = variants.write(plain(tmp_path, "names-130.so"), tmp_path).wheels[0].path
    with pytest.raises(MalformedError, match="is a variant already"):
        variants.write(made, tmp_path)


def test_the_cuda_of_a_label_is_what_the_wheel_was_built_with_where_that_is_known(tmp_path: Path) -> None:
    found = survey(plain(tmp_path, "ptx-130.so"), detail="containers")
    assert [each.label for each in variants.decide(found).variants] == ["cu130_ptx80_90_100_120"]
    assert [each.label for each in variants.decide(found, "13.0").variants] == ["cu130_ptx80_90_100_120"]
    assert [each.label for each in variants.decide(found, "13.2").variants] == ["cu132_ptx80_90_100_120_min13.0"]


@pytest.mark.parametrize(
    ("version", "public"),
    [
        ("1.0", "1.0"),
        ("1.0+cu130", "1.0"),
        ("1.0+ubuntu.1.cu130", "1.0+ubuntu.1"),
        ("1.0+cu130.torch2.9", "1.0+torch2.9"),
        ("1!2.0rc1.post2+cu118", "1!2.0rc1.post2"),
        ("1.0+custom", "1.0+custom"),
    ],
)
def test_the_public_version_has_no_label_of_a_cuda_version(version: str, public: str) -> None:
    assert stamp.public_version(version) == public
