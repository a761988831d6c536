"""What `slim` and the stamp carry over from the original wheel is what its RECORD says, or nothing is written."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.changes.stamp import stamp
from cuwheel.device_code.description import Description
from cuwheel_core.errors import MalformedError
from tests.unit.changes.slim.packages import FOO, make_wheel
from tests.unit.wheel.test_zip_writer import slim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "slim": slim,
    "stamp": lambda source, out: stamp.stamp(
        source, out, stamp.StampOptions(description=Description(cuda="13.0", archs=()))
    ),
}


def replaced(path: Path, member: str, data: bytes) -> Path:
    """The wheel with other bytes in a member, its RECORD unchanged, its checksums right."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, old in members.items():
            archive.writestr(name, data if name == member else old)
    return path


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("member", ["foo/__init__.py", "foo/data.bin", "foo/libhost.so", "foo/libfoo.so"])
def test_a_wrong_hash_is_not_made_right(tmp_path: Path, member: str, writer: str) -> None:
    data = FOO[member] + b"\n# added by somebody\n"
    source = replaced(make_wheel(tmp_path / "in", FOO), member, data)
    with pytest.raises(MalformedError, match=member):
        WRITERS[writer](source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_damaged_member_is_not_passed_on(tmp_path: Path, writer: str) -> None:
    """Also one that RECORD has no hash of: the zip's own checksum counts."""
    source = make_wheel(
        tmp_path / "in", {**FOO, "foo/text.txt": b"one line of text " * 50}, compression=zipfile.ZIP_STORED
    )
    data = source.read_bytes().replace(b"one line of text ", b"one line of tent ", 1)
    source.write_bytes(data)
    with pytest.raises(MalformedError, match=r"foo/text\.txt"):
        WRITERS[writer](source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_member_with_two_names(tmp_path: Path, writer: str) -> None:
    """One in the zip's directory, another in its own header: what is installed depends on who does it."""
    source = make_wheel(tmp_path / "in", FOO)
    source.write_bytes(source.read_bytes().replace(b"foo/data.bin", b"foo/evil.bin", 1))
    with pytest.raises(MalformedError, match=r"foo/data\.bin"):
        WRITERS[writer](source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def test_a_version_that_would_be_a_path(tmp_path: Path) -> None:
    source = make_wheel(tmp_path / "in", FOO, extra={})
    with zipfile.ZipFile(source) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        text = archive.read(name).replace(b"Version: 1.0+cu130", b"Version: 1.0/../../x")
    with pytest.raises(MalformedError, match="is not a version"):
        slim(replaced(source, name, text), tmp_path / "out")


@pytest.mark.parametrize("writer", [*WRITERS, "repair"])
@pytest.mark.parametrize("wrong", ["md5", "size", "unknown"])
def test_a_wrong_record_is_not_made_right(tmp_path: Path, wrong: str, writer: str) -> None:
    """Whatever RECORD says of a file must be true, be it by a hash that nobody should use any more."""
    source = make_wheel(tmp_path / "in", FOO)
    with zipfile.ZipFile(source) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        lines = archive.read(record).decode().splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if line.startswith("foo/libfoo.so,"))
    path, strong, size = lines[at].strip().split(",")
    weak = {"md5": "md5=AAAAAAAAAAAAAAAAAAAAAA", "unknown": "crc9=AAAA"}.get(wrong, strong)
    lines[at] = f"{path},{weak},{int(size) + (wrong == 'size')}\n"
    replaced(source, record, "".join(lines).encode())
    if writer == "repair":
        answer = api.repair([source], output=tmp_path / "out")
        assert not answer.succeeded
        assert "foo/libfoo.so" in repr(answer)
        return
    with pytest.raises(MalformedError, match=r"foo/libfoo\.so"):
        WRITERS[writer](source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_is_not_passed_on(tmp_path: Path, writer: str) -> None:
    source = make_wheel(tmp_path / "in", FOO)
    data = bytearray(source.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 38 : at + 42] = (0o120777 << 16).to_bytes(4, "little")
    source.write_bytes(data)
    with pytest.raises(MalformedError, match="symbolic link"):
        WRITERS[writer](source, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))
