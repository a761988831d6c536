"""Variant wheels: named and described, RECORD right, the same bytes every time, and a document of all beside them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from cuwheel.changes.stamp import stamp, variants
from cuwheel.device_code.survey import survey
from cuwheel.support import files
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import MalformedError
from cuwheel_core.wheel.tags import WheelName
from tests.fixtures.small_wheel import Wheel
from tests.fixtures.variant_wheels import TAG, plain
from tests.unit.changes.slim.packages import fixture, wrong_members


def written(*plain_wheels: Path, to: Path) -> list[Path]:
    """The variants of these wheels."""
    return [Path(wheel.path) for each in variants.write_all(plain_wheels, to)[0] for wheel in each.wheels]


def labels(document: Path) -> set[str]:
    return set(json.loads(document.read_bytes())["variants"])


def named(path: Path) -> WheelName:
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
    (made,), findings = variants.write_all([wheel], tmp_path)
    (one,) = made.wheels
    path = Path(one.path)
    assert path.name == f"pkg-1.0-{TAG}-cu130_sm75_90_100.whl"
    assert said(path) == {
        "cu130_sm75_90_100": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["75_real", "90_real", "100_real"]}
    }
    assert wrong_members(path) == []
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(path) as after:
        added = set(after.namelist()) - set(before.namelist())
        assert added == {"pkg-1.0.dist-info/variant.json"}
        for name in set(before.namelist()) - {"pkg-1.0.dist-info/RECORD"}:
            assert after.read(name) == before.read(name)
    assert (one.label, one.made_from) == ("cu130_sm75_90_100", str(wheel))
    assert (one.size, one.sha256) == (path.stat().st_size, files.sha256(path))
    assert made.plain == (str(wheel),)
    assert labels(Path(made.document)) == {"cu130_sm75_90_100"}
    assert findings == ()


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = plain(tmp_path, "names-130.so")
    first = [each.read_bytes() for each in written(wheel, to=tmp_path)]
    assert [each.read_bytes() for each in written(wheel, to=tmp_path)] == first


def test_ptx_that_needs_a_newer_driver_gets_a_variant_of_its_own(tmp_path: Path) -> None:
    assert [said(each) for each in written(plain(tmp_path, "plain-134.so"), to=tmp_path)] == [
        {"cu134_sm90_100": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real", "100_real"]}},
        {
            "cu134_sm90_100_ptx120": {
                "cuda_version_lower_bound": ["13.4"],
                "sm_arch": ["90_real", "100_real", "120_virtual"],
            }
        },
    ]


def test_what_no_value_can_say_is_said_in_words(tmp_path: Path) -> None:
    (made,), (finding,) = variants.write_all([plain(tmp_path, "specific-130.so")], tmp_path)
    assert [each.label for each in made.wheels] == ["cu130_sm90"]
    assert finding.rule == "variant-unsaid"
    assert finding.message.endswith("12.0")
    assert "120_real matches 12.1 too" in finding.evidence[0]


def test_a_wheel_without_device_code_gets_no_variant(tmp_path: Path) -> None:
    made, findings = variants.write_all([plain(tmp_path, "amd.so")], tmp_path)
    assert made == ()
    assert [each.rule for each in findings] == ["variant-none"]
    assert len(list(tmp_path.iterdir())) == 1


def test_variants_of_all_cuda_versions_have_the_public_version(tmp_path: Path) -> None:
    """Installers compare versions first: those of 1.0+cu130 would always come before those of 1.0+cu124."""
    wheels = [
        plain(tmp_path, library, version)
        for version, library in (("1.0+cu130", "names-130.so"), ("1.0+cu124", "names-124.so"))
    ]
    (made,), _ = variants.write_all(wheels, tmp_path)
    for each in made.wheels:
        with WheelFile(Path(each.path)) as wheel:
            assert wheel.name
            assert (wheel.name.version, wheel.distribution.version) == ("1.0", "1.0")
            assert wheel.info == "pkg-1.0.dist-info/"
    assert Path(made.document).name == "pkg-1.0-variants.json"
    assert (
        labels(Path(made.document)) == {each.label for each in made.wheels} == {"cu130_sm75_90_100", "cu124_sm60_75_90"}
    )


def test_the_widest_of_labelled_wheels_is_written_without_its_label(tmp_path: Path) -> None:
    """What pip takes, and uv where no variant fits."""
    wheels = [
        plain(tmp_path, library, version)
        for version, library in (("1.0+cu130", "lto-130.so"), ("1.0+cu124", "names-124.so"))
    ]
    (made,), _ = variants.write_all(wheels, tmp_path)
    (path,) = map(Path, made.plain)
    assert path.name == f"pkg-1.0-{TAG}.whl"
    assert wrong_members(path) == []
    with zipfile.ZipFile(path) as archive:
        assert archive.read("pkg/libpkg.so") == fixture("names-124.so")


def test_the_document_grows_with_the_folder(tmp_path: Path) -> None:
    (first,), _ = variants.write_all([plain(tmp_path, "names-130.so")], tmp_path)
    assert len(labels(Path(first.document))) == 1
    (other,), _ = variants.write_all([plain(tmp_path, "names-124.so", "1.0+cu124")], tmp_path)
    assert other.document == first.document
    assert len(labels(Path(first.document))) == 2


def test_wheels_for_several_pythons_share_a_label(tmp_path: Path) -> None:
    wheels = [plain(tmp_path, "names-130.so", tag=TAG.replace("310", python)) for python in ("311", "312")]
    (made,), _ = variants.write_all(wheels, tmp_path)
    assert len(made.wheels) == 2
    assert made.plain == tuple(map(str, wheels))
    assert len(labels(Path(made.document))) == 1


def test_one_label_with_two_meanings_is_refused(tmp_path: Path) -> None:
    (made,) = written(plain(tmp_path, "names-130.so"), to=tmp_path)
    other = made.with_name(made.name.replace("cp310", "cp311"))
    with zipfile.ZipFile(made) as archive, zipfile.ZipFile(other, "w") as changed:
        for each in archive.namelist():
            changed.writestr(each, archive.read(each).replace(b"90_real", b"86_real"))
    document = tmp_path / "pkg-1.0-variants.json"
    before = document.read_bytes()
    with pytest.raises(MalformedError, match="are for different machines"):
        variants.write_sets(tmp_path, [named(made)])
    assert document.read_bytes() == before


def test_two_wheels_that_would_be_the_same_variant_are_refused(tmp_path: Path) -> None:
    first = plain(tmp_path / "first", "names-130.so", "1.0+cu130")
    content: dict[str, str | bytes] = {"pkg/__init__.py": "x = 1\n", "pkg/libpkg.so": fixture("names-130.so")}
    other = Wheel(name="pkg", version="1.0", tag=TAG, files=content).write(tmp_path / "other")
    with pytest.raises(MalformedError, match="cu130_sm75_90_100 is also that of"):
        variants.write_all([first, other], tmp_path)


def test_the_same_wheel_with_a_label_and_without_gives_one_variant(tmp_path: Path) -> None:
    """As `build --variants` leaves them."""
    labelled = plain(tmp_path, "names-130.so", "1.0+cu130")
    (made,), _ = variants.write_all([labelled], tmp_path)
    (unlabelled,) = map(Path, made.plain)
    again_in = tmp_path / "again"
    again_in.mkdir()
    (again,), _ = variants.write_all([unlabelled, labelled], again_in)
    assert [each.sha256 for each in again.wheels] == [each.sha256 for each in made.wheels]
    assert again.plain == (str(unlabelled),)


def test_a_variant_is_not_made_of_a_variant(tmp_path: Path) -> None:
    (made,) = written(plain(tmp_path, "names-130.so"), to=tmp_path)
    with pytest.raises(MalformedError, match="is a variant already"):
        variants.write_all([made], tmp_path)


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
