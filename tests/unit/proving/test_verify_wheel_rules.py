"""A wheel as a file: each fault is found under its id, and a sound one is left alone."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel.device_code.survey import survey
from cuwheel.proving import wheel_rules
from cuwheel.verdicts.wheel_tags import WheelSubject
from cuwheel.wheel.file import WheelFile
from tests.fixtures.small_wheel import Wheel, digest
from tests.fixtures.variant_wheels import labelled, plain, says

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.wheel.variant import Variant
    from cuwheel_core.support.finding import Finding

SOURCE = "subject/__init__.py"
TRUE = f"{SOURCE},{digest(b'x = 1')},5"


def examined(path: Path) -> tuple[Finding, ...]:
    with WheelFile(path) as wheel:
        return wheel_rules.examine(WheelSubject(wheel=wheel, survey=survey(path)))


def faults(path: Path) -> list[str]:
    return [f"{each.severity} {each.rule}" for each in examined(path)]


def wheel(**more: Any) -> Wheel:
    return Wheel(**{"files": {SOURCE: "x = 1"}, **more})


def test_a_sound_wheel(tmp_path: Path) -> None:
    assert faults(wheel().write(tmp_path)) == []


def test_as_a_file_alone_it_needs_no_program(tmp_path: Path) -> None:
    """Neither nvcc nor compilers are asked for their versions: none may be started in these tests."""
    assert cuwheel.verify(wheel().write(tmp_path), static=True).succeeded


@pytest.mark.parametrize(
    ("made", "expected", "evidence"),
    [
        (wheel(record={SOURCE: f"{SOURCE},{digest(b'x = 2')},5"}), "error record-hash", SOURCE),
        (wheel(record={SOURCE: f"{SOURCE},{digest(b'x = 1')},6"}), "error record-hash", SOURCE),
        (wheel(record={SOURCE: f"{SOURCE},sha256=!!,5"}), "error record-hash", SOURCE),
        (wheel(record={SOURCE: f"{SOURCE},,"}), "error record-hash", f"{SOURCE} (none)"),
        (wheel(record={SOURCE: f"{SOURCE},md5=1B2M2Y8AsgTpgAmY7PhCfg,5"}), "error record-hash", f"{SOURCE} (md5="),
        (wheel(record={SOURCE: None}), "error record-rows", SOURCE),
        (wheel(extra_rows=["subject/lost.py,,"]), "error record-rows", "subject/lost.py"),
        (wheel(extra_rows=[TRUE]), "error record-rows", SOURCE),
        (wheel(extra_rows=["../../etc/passwd,,"]), "error record-unsafe-path", "../../etc/passwd"),
        (wheel(extra_rows=["/etc/passwd,,"]), "error record-unsafe-path", "/etc/passwd"),
        (wheel(unrecorded={"subject/extra.py": ""}), "error record-rows", "subject/extra.py"),
        (wheel(wheel_tags=["py3-none-linux_x86_64"]), "error tags-differ", "only in WHEEL: py3-none-linux_x86_64"),
        (wheel(wheel_tags=[]), "error tags-differ", "only in the file name: py3-none-any"),
        (wheel(metadata_version="1.1"), "error metadata-differs", ""),
        (wheel(metadata_name="other"), "error metadata-differs", ""),
        (wheel(headers=["Requires-Python: whatever"]), "error metadata-invalid", "requires-python"),
        (wheel(requires=["no requirement !!"]), "error metadata-invalid", "requires-dist"),
        (wheel(headers=["Classifier: a", "Dynamic: name"]), "warning metadata-invalid", "dynamic"),
        (wheel(headers=["License-File: LICENSE", "License-File: NOTICE"]), "error licence-file-missing", "NOTICE"),
        (wheel(headers=[], licence=None), "warning licence-none", ""),
        (wheel(files={SOURCE: "x = 1", "subject/__INIT__.py": ""}), "warning same-file-twice", SOURCE),
        (
            wheel(files={SOURCE: "x = 1", f"subject-1.0.data/purelib/{SOURCE}": ""}),
            "warning same-file-twice",
            SOURCE,
        ),
        (
            wheel(files={SOURCE: "", "subject-1.0.data/scripts/x": "", "subject-1.0.data/data/bin/X": ""}),
            "warning same-file-twice",
            "subject-1.0.data/scripts/x",
        ),
        *(
            (wheel(files={SOURCE: "", f"subject-1.0.data/{each}": ""}), "error data-over-others", each)
            for each in (
                "data/pyvenv.cfg",
                "data/PyVenv.cfg",
                "data/bin/python3",
                "data/Scripts/python.exe",
                "scripts/activate",
                "data/bin/activate.fish",
                "scripts/activate_this.py",
                "data/conda-meta/history",
                "data/lib/python3.12/site-packages/other/__init__.py",
                "data/Lib/site-packages/other.pth",
            )
        ),
        (wheel(tag="cp39-none-any", headers=["Requires-Python: >=3.10"]), "error requires-python", ""),
    ],
)
def test_a_fault(tmp_path: Path, made: Wheel, expected: str, evidence: str) -> None:
    found = examined(made.write(tmp_path))
    (finding,) = [each for each in found if f"{each.severity} {each.rule}" == expected]
    assert evidence in "\n".join(finding.evidence)
    assert finding.fix
    others = {each.rule for each in found} - {finding.rule}
    assert others <= {"record-rows", "licence-none"}  # what a fault brings with it


@pytest.mark.parametrize(
    "member",
    [
        "data/share/subject/activate", "data/etc/subject.cfg", "scripts/activate-global-python-argcomplete",
        "scripts/python-subject", "data/lib/python3.12/site-packages/subject/more.py", "headers/pyvenv.cfg",
    ],
)  # fmt: skip
def test_what_a_data_folder_may_bring(tmp_path: Path, member: str) -> None:
    assert "data-over-others" not in {
        each.rule for each in examined(wheel(files={SOURCE: "", f"subject-1.0.data/{member}": ""}).write(tmp_path))
    }


def test_compressed_sets_of_tags_are_the_same_as_listed_ones(tmp_path: Path) -> None:
    listed = [f"{python}-none-{platform}" for python in ("py2", "py3") for platform in ("any",)]
    assert faults(wheel(tag="py2.py3-none-any", wheel_tags=listed).write(tmp_path)) == []
    assert faults(wheel(tag="py2.py3-none-any", wheel_tags=["py2.py3-none-any"]).write(tmp_path)) == []
    assert faults(wheel(tag="py2.py3-none-any", wheel_tags=["py3-none-any"]).write(tmp_path)) == ["error tags-differ"]


def test_renamed_to_manylinux_is_a_warning_to_another_processor_an_error(tmp_path: Path) -> None:
    for tag, severity in (("manylinux_2_28_x86_64", "warning"), ("manylinux_2_28_aarch64", "error")):
        path = wheel(tag=f"py3-none-{tag}", wheel_tags=["py3-none-linux_x86_64"]).write(tmp_path)
        assert faults(path) == [f"{severity} tags-differ"]


def test_launchers_for_32_bits_are_no_fault(tmp_path: Path) -> None:
    """As setuptools and pip have them for Windows, in wheels for any platform."""
    head = bytearray(1024)
    head[:2], head[0x3C:0x40], head[0x80:0x84], head[0x98:0x9A] = b"MZ", b"\x80\0\0\0", b"PE\0\0", b"\x0b\x01"
    assert faults(wheel(files={SOURCE: "", "subject/cli.exe": bytes(head)}).write(tmp_path)) == ["note library-foreign"]


def test_file_names_of_no_wheel(tmp_path: Path) -> None:
    path = wheel().write(tmp_path)
    assert "error file-name" in faults(path.rename(tmp_path / "subject.whl"))
    path = wheel().write(tmp_path)
    assert set(faults(path.rename(tmp_path / "other-1.0-py3-none-any.whl"))) == {
        "error dist-info-name",
        "error metadata-differs",
    }


@pytest.mark.parametrize(
    ("tag", "suffix", "fits"),
    [
        ("cp312-cp312-linux_x86_64", ".cpython-312-x86_64-linux-gnu.so", True),
        ("cp312-cp312-linux_x86_64", ".cpython-311-x86_64-linux-gnu.so", False),
        ("cp313-cp313t-linux_x86_64", ".cpython-313t-x86_64-linux-gnu.so", True),
        ("cp313-cp313t-linux_x86_64", ".cpython-313-x86_64-linux-gnu.so", False),
        ("cp38-abi3-linux_x86_64", ".abi3.so", True),
        ("cp38-abi3-linux_x86_64", ".cpython-38-x86_64-linux-gnu.so", False),
        ("cp312-cp312-win_amd64", ".cp312-win_amd64.pyd", True),
        ("cp312-cp312-win_amd64", ".cp311-win_amd64.pyd", False),
        ("py3-none-linux_x86_64", ".so", True),
    ],
)
def test_suffixes_of_extension_modules(tmp_path: Path, tag: str, suffix: str, fits: bool) -> None:  # noqa: FBT001
    path = wheel(tag=tag, files={SOURCE: "", f"subject/native{suffix}": b"not even a library"}).write(tmp_path)
    assert ("error tag-extension" not in faults(path)) == fits


def test_one_wheel_for_two_pythons_has_a_module_for_each(tmp_path: Path) -> None:
    both = {f"subject/native.cpython-{each}-x86_64-linux-gnu.so": b"" for each in ("311", "312")}
    assert "error tag-extension" not in faults(wheel(tag="cp311.cp312-none-any", files=both).write(tmp_path))
    both.popitem()
    assert "error tag-extension" in faults(wheel(tag="cp311.cp312-none-any", files=both).write(tmp_path))


def test_no_dist_info_and_two_of_them(tmp_path: Path) -> None:
    empty = tmp_path / "subject-1.0-py3-none-any.whl"
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr(SOURCE, "")
    assert "error wheel-structure" in faults(empty)
    two = wheel(unrecorded={"other-1.0.dist-info/METADATA": ""}).write(tmp_path / "two")
    assert "error wheel-structure" in faults(two)


def test_members_that_cannot_be_unpacked(tmp_path: Path) -> None:
    path = wheel(files={SOURCE: "y" * 5000, "subject/b.py": "z"}).write(tmp_path)
    raw = bytearray(path.read_bytes())
    at = raw.index(SOURCE.encode()) + len(SOURCE)
    raw[at + 3 : at + 6] = b"\xff\xff\xff"
    path.write_bytes(raw)
    found = {each.rule: each for each in examined(path)}
    assert any(SOURCE in each for each in found["record-hash"].evidence)


def test_a_record_that_is_too_large_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuwheel_core.wheel.zip_reader.TEXT_LIMIT", 1000)
    made = wheel(extra_rows=[f"subject/{number}.py,," for number in range(100)])
    (finding,) = [each for each in examined(made.write(tmp_path)) if each.rule == "wheel-structure"]
    assert "RECORD was not read: it is damaged, or too large" in finding.message


def test_a_record_of_garbage_is_no_crash(tmp_path: Path) -> None:
    for number, rows in enumerate((['"', "a,b,c,d,e", ",,", "\x01"], ['"' + "x" * 200_000], ["a\0b,,"] * 100)):
        path = wheel(extra_rows=rows).write(tmp_path / str(number))
        assert "error record-rows" in faults(path)


@pytest.mark.parametrize(
    ("label", "said", "expected"),
    [
        ("cu130_sm90", says("cu130_sm90", "90_real"), []),
        ("cu130_sm90", None, ["error variant-differs"]),
        ("cu130_sm90", says("cu130_sm100", "100_real"), ["error variant-differs"]),
        (None, says("cu130_sm90", "90_real"), ["warning variant-differs"]),
        ("CU130", None, ["error variant-differs"]),
        ("x", says("x", "120_real"), ["error variant-untrue"]),
        ("x", b"{", ["warning variant-unreadable"]),
    ],
)
def test_a_variant_is_what_it_says(
    tmp_path: Path, label: str | None, said: Variant | bytes | None, expected: list[str]
) -> None:
    made = labelled(plain(tmp_path, "names-130.so"), said, label)
    with WheelFile(made) as opened:
        found = wheel_rules.examine(WheelSubject(wheel=opened, survey=survey(made, detail="containers")))
    assert [f"{each.severity} {each.rule}" for each in found] == expected
