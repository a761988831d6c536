from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.changes.slim import act
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.errors import UsageError
from cuwheel.wheel import record, zip_writer
from cuwheel.wheel.zip_writer import Traits, ZipWriter, deflated
from cuwheel_core.errors import MalformedError
from tests.unit.changes.slim.packages import FOO, PER_CUDA, make_wheel, wrong_members

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cuwheel.changes.slim.answer import Slim

TRAITS = Traits(name="a/b.so", time=0, date=0x21, external_attr=0o100755 << 16, create_system=3)


def slim(source: Path, output: Path, *gpus: str, **more: Any) -> Slim:
    return act.slim(SlimRequest(source, machines=gpus or ("h100",), output=output, **more))


@pytest.mark.parametrize("count", [0, 1, 5, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_blocks_join_to_one_stream(count: int) -> None:
    data = (random.Random(7).randbytes(1000) * (count // 1000 + 1))[:count]  # noqa: S311 - not for secrets
    blocks = [data[at : at + (1 << 20)] for at in range(0, count, 1 << 20)]
    with ThreadPoolExecutor(4) as pool:
        packed = b"".join(deflated(iter(blocks), 6, pool))
    with ThreadPoolExecutor(1) as pool:
        assert packed == b"".join(deflated(iter(blocks), 6, pool))
    assert zlib.decompress(packed, -15) == data


def written(members: Sequence[tuple[Traits, bytes]], level: int = 6) -> bytes:
    stream = io.BytesIO()
    with ThreadPoolExecutor(2) as pool:
        writer = ZipWriter(stream, pool, level)
        for traits, data in members:
            writer.add(traits, (data,), len(data))
        writer.finish()
    return stream.getvalue()


@pytest.mark.parametrize("level", [0, 1, 9])
def test_members_read_back(level: int) -> None:
    data = b"abc" * 100_000
    named = Traits(name="ü/é.txt", time=0, date=0x21, external_attr=0, create_system=3)
    with zipfile.ZipFile(io.BytesIO(written([(TRAITS, data), (named, b"")], level))) as archive:
        assert archive.testzip() is None
        assert archive.read("a/b.so") == data
        assert archive.namelist() == ["a/b.so", "ü/é.txt"]
        assert archive.getinfo("a/b.so").external_attr == 0o100755 << 16
        assert archive.getinfo("a/b.so").compress_type == (zipfile.ZIP_DEFLATED if level else zipfile.ZIP_STORED)


def test_zip64_where_numbers_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small limit instead of gigabytes of data."""
    monkeypatch.setattr(zip_writer, "_LIMIT", 5000)
    data = random.Random(1).randbytes(6000)  # noqa: S311
    made = written([(TRAITS, data), (Traits(name="z", time=0, date=0x21, external_attr=0, create_system=3), b"zz")])
    assert b"PK\6\6" in made
    # zipfile goes by the real limit: put the marks there that it looks for.
    made = made.replace(struct.pack("<I", 5000), b"\xff\xff\xff\xff")
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert archive.read("a/b.so") == data
        assert archive.read("z") == b"zz"


def test_many_members() -> None:
    made = written(
        [(Traits(name=str(n), time=0, date=0x21, external_attr=0, create_system=3), b"") for n in range(66_000)]
    )
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert len(archive.namelist()) == 66_000


def test_a_slimmed_wheel_is_a_valid_one(tmp_path: Path) -> None:
    from packaging.utils import parse_wheel_filename

    source = make_wheel(tmp_path, FOO, extra={"entry_points.txt": b"[console_scripts]\nx = foo:x\n"})
    before = source.read_bytes()
    made = slim(source, tmp_path / "out")
    output = tmp_path / "out" / "foo-1.0+cu130.slim-py3-none-any.whl"
    assert made.output == str(output)
    assert wrong_members(output) == []
    name, version, _, tags = parse_wheel_filename(output.name)
    assert (name, str(version), {str(each) for each in tags}) == ("foo", "1.0+cu130.slim", {"py3-none-any"})
    with zipfile.ZipFile(output) as archive, zipfile.ZipFile(source) as original:
        names = archive.namelist()
        info = "foo-1.0+cu130.slim.dist-info/"
        assert names[-2:] == [f"{info}cuwheel-slim.json", f"{info}RECORD"]
        assert b"Version: 1.0+cu130.slim\n\nVersion: of the text" in archive.read(f"{info}METADATA")
        assert f"{info}entry_points.txt" in names
        for member in ("foo/data.bin", "foo/libhost.so", "foo/libfoo.so"):
            old, new = original.getinfo(member), archive.getinfo(member)
            assert (new.date_time, new.external_attr) == (old.date_time, old.external_attr)
            assert (new.CRC == old.CRC) == (member != "foo/libfoo.so")
    assert {each.path for each in made.files if each.fate == "slimmed"} == {"foo/libfoo.so", "foo/lib/libbar.so.1"}
    assert made.total.bytes_after < made.total.bytes_before
    assert made.wheel
    assert made.wheel.bytes_after == output.stat().st_size
    assert source.read_bytes() == before
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [output.name]


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, FOO)
    for folder in ("one", "two"):
        slim(source, tmp_path / folder)
    one, two = (next((tmp_path / folder).iterdir()).read_bytes() for folder in ("one", "two"))
    assert one == two


def test_slimmed_twice(tmp_path: Path) -> None:
    import msgspec

    source = make_wheel(tmp_path, FOO)
    first = slim(source, tmp_path / "1", "h100", "t4")
    second = slim(tmp_path / "1" / "foo-1.0+cu130.slim-py3-none-any.whl", tmp_path / "2")
    output = tmp_path / "2" / "foo-1.0+cu130.slim.2-py3-none-any.whl"
    assert second.total.bytes_after < first.total.bytes_after
    assert wrong_members(output) == []
    with zipfile.ZipFile(output) as archive:
        note = msgspec.json.decode(archive.read("foo-1.0+cu130.slim.2.dist-info/cuwheel-slim.json"))
    assert note["version"] == "1.0+cu130.slim"
    assert [each["version"] for each in note["earlier"]] == ["1.0+cu130"]


def test_what_was_stored_stays_so(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, FOO, compression=zipfile.ZIP_STORED)
    slim(source, tmp_path / "out")
    with zipfile.ZipFile(next((tmp_path / "out").iterdir())) as archive:
        assert archive.getinfo("foo/libfoo.so").compress_type == zipfile.ZIP_STORED


def test_the_library_for_one_cuda(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, PER_CUDA, "bitsandbytes", "0.50.2")
    made = slim(source, tmp_path / "out", cuda="12.9")
    output = tmp_path / "out" / "bitsandbytes-0.50.2+slim-py3-none-any.whl"
    assert wrong_members(output) == []
    fates = {each.path[-6:-3]: each.fate for each in made.files}
    assert fates == {"124": "removed", "128": "slimmed", "130": "removed"}
    with zipfile.ZipFile(output) as archive:
        assert [each for each in archive.namelist() if each.endswith(".so")] == [
            "bitsandbytes/libbitsandbytes_cuda128.so"
        ]


def test_a_release_that_takes_the_very_version_alone_keeps_all(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, PER_CUDA, "bitsandbytes", "0.49.2")
    made = slim(source, tmp_path / "out", cuda="12.9")
    assert [each.rule for each in made.findings] == ["no-library-for-cuda"]
    assert all(each.fate == "slimmed" for each in made.files)


def test_the_packages_own_files_say_which_rule_holds(tmp_path: Path) -> None:
    loader = {"bitsandbytes/cextension.py": b"def _find_cuda_libs(prefix, is_hip): ..."}
    source = make_wheel(tmp_path, {**PER_CUDA, **loader}, "bitsandbytes", "0.49.2")
    made = slim(source, tmp_path / "out", cuda="12.9")
    assert {each.path[-6:-3]: each.fate for each in made.files if each.path.endswith(".so")}["128"] == "slimmed"
    assert sum(each.fate == "removed" for each in made.files) == 2


def test_no_library_for_that_cuda_keeps_all(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, PER_CUDA, "bitsandbytes", "0.50.2")
    made = slim(source, tmp_path / "out", cuda="11.8")
    assert [each.rule for each in made.findings] == ["no-library-for-cuda"]
    assert all(each.fate == "slimmed" for each in made.files)


def test_signatures_are_dropped_and_reported(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, FOO, extra={"RECORD.jws": b"{}"})
    made = slim(source, tmp_path / "out")
    assert [each.rule for each in made.findings] == ["signature-dropped"]
    (output,) = (tmp_path / "out").iterdir()
    assert wrong_members(output) == []


def test_a_dry_run_writes_nothing_and_knows_nearly_all(tmp_path: Path) -> None:
    source = make_wheel(tmp_path / "in", FOO)
    dry = slim(source, tmp_path / "out", dry_run=True)
    assert not (tmp_path / "out").exists()
    wet = slim(source, tmp_path / "out")
    assert [(each.path, each.fate, each.dropped) for each in dry.files] == [
        (each.path, each.fate, each.dropped) for each in wet.files
    ]
    assert not dry.written
    assert wet.written


def test_data_folders_carry_the_version_too(tmp_path: Path) -> None:
    files = {**FOO, "foo-1.0+cu130.data/scripts/run.sh": b"#!/bin/sh\n"}
    slim(make_wheel(tmp_path, files), tmp_path / "out")
    (output,) = (tmp_path / "out").iterdir()
    assert wrong_members(output) == []
    with zipfile.ZipFile(output) as archive:
        assert "foo-1.0+cu130.slim.data/scripts/run.sh" in archive.namelist()


def test_nothing_to_leave_out_writes_nothing(tmp_path: Path) -> None:
    source = make_wheel(tmp_path / "in", {"foo/libhost.so": FOO["foo/libhost.so"]})
    made = slim(source, tmp_path / "out")
    assert [each.rule for each in made.findings] == ["nothing-to-slim"]
    assert not (tmp_path / "out").exists()


def test_names_that_would_not_install(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, FOO)
    with pytest.raises(UsageError, match=r"slim\.whl is not the right name") as raised:
        slim(source, tmp_path / "slim.whl")
    assert "foo-1.0+cu130.slim-py3-none-any.whl" in raised.value.hint
    with pytest.raises(UsageError, match="is the input wheel itself"):
        slim(source, tmp_path, version="1.0+cu130")
    with pytest.raises(UsageError, match="--version one"):
        slim(source, tmp_path, version="one")


def test_damaged_wheels_are_not_slimmed(tmp_path: Path) -> None:
    not_one = tmp_path / "foo-1.0-py3-none-any.whl"
    not_one.write_bytes(b"not a wheel")
    with pytest.raises(MalformedError):
        slim(not_one, tmp_path / "out")
    with zipfile.ZipFile(not_one, "w") as archive:
        archive.writestr("foo/libfoo.so", FOO["foo/libfoo.so"])
    with pytest.raises(MalformedError, match="not slimmed"):
        slim(not_one, tmp_path / "out")


def test_record_keeps_what_it_does_not_change() -> None:
    digest = record.Digest(sha256="00" * 32, size=5)
    text = 'a,sha256=x,1\r\n"b,c",sha256=y,2\r\nd,,\r\nx.dist-info/RECORD,,\r\n'
    made = record.changed(text, {"b,c": digest, "d": digest}, removed=["a"], added={"n": digest})
    assert made == f'"b,c",{digest.hash},5\r\nd,,\r\nn,{digest.hash},5\r\nx.dist-info/RECORD,,\r\n'


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("Name: nvidia-curand\nLicense: LicenseRef-NVIDIA-Proprietary\n", True),
        ("Name: nvidia-x\nLicense: NVIDIA Proprietary Software\n", True),
        ("Name: nvidia-nccl\nLicense: BSD-3-Clause\n", False),
        ("Name: foo\n\nLicense: NVIDIA Proprietary\n", False),
    ],
)
def test_licences_that_restrict_changes_are_reported(text: str, reported: bool) -> None:  # noqa: FBT001
    from cuwheel.changes.in_place import licence_findings

    assert [each.rule for each in licence_findings({"x": text})] == (["licence-on-changes"] if reported else [])


def test_a_record_that_was_incomplete_stays_so_and_is_reported(tmp_path: Path) -> None:
    source = make_wheel(tmp_path, FOO)
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr("foo/forgotten.txt", "x")
    made = slim(source, tmp_path / "out")
    assert [each.rule for each in made.findings] == ["record-incomplete"]
    assert wrong_members(next((tmp_path / "out").iterdir())) == ["foo/forgotten.txt", "foo/forgotten.txt"]
