from __future__ import annotations

import struct
import time
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code import source
from cuwheel.device_code.survey import survey
from cuwheel_core.device_code.loose import HeaderCapture
from cuwheel_core.errors import MalformedError, UnknownNameError, UnreadableError, UnsafeWheelError
from cuwheel_core.support.buffer import MemoryBuffer
from cuwheel_core.wheel import metadata, zip_reader
from tests.unit.device_code import build

if TYPE_CHECKING:
    from pathlib import Path

NAME = "pkg-1.0-py3-none-manylinux_2_28_x86_64.whl"
INFO = {
    "pkg-1.0.dist-info/METADATA": b"Name: pkg\nVersion: 1.0\nRequires-Dist: torch>=2\nRequires-Dist: numpy\n\nText",
    "pkg-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-manylinux_2_28_x86_64\n",
    "pkg-1.0.dist-info/RECORD": b"pkg/lib.so,,\n",
}
CODE = b"".join(
    build.container(build.entry(build.CUBIN, arch, build.cubin({"k": (8, 0, 0)}, sm=arch) + bytes([arch]) * 3000))
    for arch in (75, 80, 90, 120)
)
LIBRARY = build.library(CODE).build()


def wheel(folder: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    path = folder / NAME
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def small_pieces(monkeypatch: pytest.MonkeyPatch, spacing: int) -> None:
    """As a library of hundreds of megabytes is read."""
    monkeypatch.setattr(zip_reader, "_SPACING", spacing)
    monkeypatch.setattr(zip_reader, "_OUTPUT", 300)
    monkeypatch.setattr(zip_reader, "_START", 200)
    monkeypatch.setattr(zip_reader, "_END", 700)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("in_memory", [1 << 20, 0], ids=["small", "large"])
def test_a_wheel_is_read_like_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int, in_memory: int
) -> None:
    monkeypatch.setattr(zip_reader, "IN_MEMORY", in_memory)
    small_pieces(monkeypatch, 512)
    found = survey(wheel(tmp_path, {**INFO, "pkg/lib.so": LIBRARY, "pkg/a.py": b"text"}, method), detail="entries")
    (tmp_path / "lib.so").write_bytes(LIBRARY)
    alone = survey(tmp_path / "lib.so", detail="entries")
    assert [each.path for each in found.libraries] == ["pkg/lib.so"]
    assert found.libraries[0].entries == alone.libraries[0].entries
    assert found.libraries[0].registration == alone.libraries[0].registration
    assert found.findings == ()
    assert found.distribution is not None
    assert (found.distribution.name, found.distribution.version) == ("pkg", "1.0")
    assert found.distribution.requires == ("torch>=2", "numpy")
    assert found.distribution.tags == ("py3-none-manylinux_2_28_x86_64",)


def test_inflating_reads_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch, 1000)
    data = bytes(range(256)) * 100 + LIBRARY
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = engine.compress(data) + engine.flush()
    member = zip_reader.Packed(MemoryBuffer("x", packed), 0, len(packed), len(data), zlib.crc32(data), "x")
    told: list[int] = []
    buffer = zip_reader.InflatedBuffer(member, HeaderCapture(), told.append)
    assert sum(told) == len(data)
    assert buffer._kept_offsets[0] == 0
    assert len(data) - 1000 <= buffer._kept_offsets[1]  # and of the rest only its end stays in memory
    for offset in (0, 299, 999, 1000, 25_600, len(data) - 1, len(data) - 800, 5000, 1):
        for count in (0, 1, 700, 3000):
            count = min(count, len(data) - offset)  # noqa: PLW2901
            assert buffer.read(offset, count) == data[offset : offset + count]
    with pytest.raises(MalformedError):
        buffer.read(len(data), 1)


def test_the_head_of_a_member_is_whole_however_it_was_packed() -> None:
    """Packed in many pieces, the first of them short, and others with nothing in them."""
    data = LIBRARY[:3000]
    pieces = [data[:1], *([b""] * 2000), data[1:9], data[9:]]
    packed = b"".join(
        struct.pack("<BHH", piece is pieces[-1], len(piece), len(piece) ^ 0xFFFF) + piece for piece in pieces
    )
    member = zip_reader.Packed(MemoryBuffer("x", packed), 0, len(packed), len(data), zlib.crc32(data), "x")
    for count in (1, 20, 2000, len(data)):
        assert zip_reader.start_inflating(member, count) == data[:count]


def test_headers_are_kept_while_the_file_streams_by() -> None:
    data = bytes(1000) + CODE + b"PPPP" + CODE
    for step in (7, 100, 1024, len(data)):
        capture = HeaderCapture()
        for at in range(0, len(data), step):
            capture.feed(at, data[at : at + step])
        assert 1000 in capture.pieces
        assert len(capture.pieces) >= 15  # eight containers and their entries, less one too near the end
        assert all(data.startswith(piece, at) for at, piece in capture.pieces.items())


def test_what_was_searched_while_it_streamed_by_is_clean_and_everything_else_is_not() -> None:
    starts = {900: b"\x7fELF\x02\x01", 2000: b"\x28\xb5\x2f\xfd", 2004: b"\x7fELF\x02\x01", 5000: CODE[:4] + bytes(12)}
    data = bytearray(b"\x7f\x28\x50" * 3000)
    for at, start in starts.items():
        data[at : at + len(start)] = start
    for step in (1, 5, 7, 100, 1024, len(data)):
        capture = HeaderCapture()
        for at in range(0, len(data), step):
            capture.feed(at, bytes(data[at : at + step]))
        unclean = [at for at in range(len(data) - 200) if capture.clean_until(at) == at]
        assert unclean == list(starts)
        assert capture.clean_until(10) == 900


def test_a_place_is_inflated_again_only_as_far_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch, 10_000)
    data = bytes(range(256)) * 400
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = engine.compress(data) + engine.flush()
    member = zip_reader.Packed(MemoryBuffer("x", packed), 0, len(packed), len(data), zlib.crc32(data), "x")
    buffer = zip_reader.InflatedBuffer(member, HeaderCapture(), lambda _: None)
    assert buffer.read(buffer._offsets[4] + 100, 10) == data[buffer._offsets[4] + 100 :][:10]
    assert sum(len(each._data) for each in buffer._segments.values()) < 1000


def test_what_the_smallest_cubins_and_ptx_hold_is_kept_and_code_is_passed_over() -> None:
    large, small = (build.cubin({"k": (8, 0, 0)}, sm=90) + bytes(count) for count in (3000, 8))
    code = build.container(
        build.entry(build.CUBIN, 90, large),
        build.entry(build.CUBIN, 90, small),
        build.entry(build.CUBIN, 90, large),
        build.entry(build.PTX, 90, b".version 8.8\n" + bytes(2000)),
    )
    tail = bytes(200)
    segments = ((4, 0, 4096), (5, 0x8000, len(code)), (4, 0x10000, len(code)), (6, 0x18000, 4096))
    rows = b"".join(struct.pack("<IIQQQQQQ", 1, flags, at, at, at, size, size, 4096) for flags, at, size in segments)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 4, 64, 0, 0)
    data = bytearray(0x19000)
    data[: len(header + rows)] = header + rows
    for at in (0x8000, 0x10000):
        data[at : at + len(code + tail)] = code + tail
    capture = HeaderCapture()
    kept = [at for at in range(0, len(data), 0x8000) if capture.feed(at, bytes(data[at : at + 0x8000]))]
    assert kept == [0x18000]  # which the loader writes to
    assert min(capture.pieces) == 0x10000
    pieces = list(capture.pieces.values())
    assert sum(each.startswith(build.cubin({"k": (8, 0, 0)}, sm=90)[:64]) for each in pieces) == 1
    assert any(each.startswith(small) for each in pieces)
    assert any(each.startswith(b".version 8.8") and len(each) == 512 for each in pieces)


def test_a_broken_library_does_not_hide_the_others(tmp_path: Path) -> None:
    found = survey(wheel(tmp_path, {**INFO, "pkg/bad.so": LIBRARY[:300], "pkg/lib.so": LIBRARY}))
    assert [each.path for each in found.libraries] == ["pkg/lib.so"]
    assert [(each.rule, each.severity) for each in found.findings] == [("library-unreadable", "error")]
    assert "pkg/bad.so" in found.findings[0].message


@pytest.mark.parametrize("name", ["../evil.so", "/evil.so", "a/../../evil.so", "..\\\\evil.so", "C:/evil.so"])
def test_names_that_would_escape(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeWheelError) as caught:
        survey(wheel(tmp_path, {**INFO, name: LIBRARY}))
    assert "its name leaves the folder" in caught.value.message


def patched(path: Path, signature: bytes, offset: int, value: bytes, *, nth: int = 0) -> Path:
    """The wheel with a field of its nth header changed."""
    data = bytearray(path.read_bytes())
    at = -1
    for _ in range(nth + 1):
        at = data.index(signature, at + 1)
    data[at + offset : at + offset + len(value)] = value
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("offset", "value", "rule"),
    [
        (10, struct.pack("<H", 12), "zip-method"),
        (8, struct.pack("<H", 1), "zip-encrypted"),
        (8, struct.pack("<H", 0x40), "zip-encrypted"),
        (8, struct.pack("<H", 0x20), "zip-method"),
        (38, struct.pack("<I", 0o120777 << 16), "zip-link"),
        (16, struct.pack("<I", 1), "library-unreadable"),  # the checksum
        (24, struct.pack("<I", 100), "library-unreadable"),  # it inflates to more than that
        (24, struct.pack("<I", len(LIBRARY) + 1), "library-unreadable"),
    ],
)
def test_a_zip_that_lies(tmp_path: Path, offset: int, value: bytes, rule: str) -> None:
    path = wheel(tmp_path, {**INFO, "pkg/good.so": LIBRARY, "pkg/lib.so": LIBRARY})
    found = survey(patched(path, b"PK\x01\x02", offset, value, nth=4))
    assert rule in [each.rule for each in found.findings]
    assert "pkg/good.so" in [each.path for each in found.libraries]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_nothing_is_said_of_a_library_whose_checksum_is_wrong(tmp_path: Path, compression: int) -> None:
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in {"pkg/lib.so": LIBRARY, **INFO}.items():
            archive.writestr(name, data)
    found = survey(patched(path, b"PK\x01\x02", 16, struct.pack("<I", 1)))
    assert found.libraries == ()
    assert [each.rule for each in found.findings] == ["library-unreadable"]


@pytest.mark.parametrize(
    ("offset", "value", "problem"),
    [
        (24, struct.pack("<I", 1 << 31), "it claims 2,147,483,648 bytes"),
        (42, struct.pack("<I", 0), "it overlaps another member"),
        (20, struct.pack("<I", 1 << 30), "it overlaps another member"),
    ],
)
def test_a_zip_that_was_made_to_do_harm(tmp_path: Path, offset: int, value: bytes, problem: str) -> None:
    path = wheel(tmp_path, {**INFO, "pkg/good.so": LIBRARY, "pkg/lib.so": LIBRARY})
    with pytest.raises(UnsafeWheelError, match=problem):
        survey(patched(path, b"PK\x01\x02", offset, value, nth=4))


def test_thousands_of_bad_members_are_a_few_lines(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(3000):
            archive.writestr(f"../{number}", b"")
    with pytest.raises(UnsafeWheelError) as caught:
        survey(path)
    assert len(caught.value.message.splitlines()) < 10
    assert "and 2,995 more" in caught.value.message


def test_what_is_no_zip(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for data in (b"", b"PK", b"text" * 100, wheel(tmp_path, INFO).read_bytes()[:-30]):
        path.write_bytes(data)
        with pytest.raises(MalformedError, match="zip"):
            survey(path)


def test_a_wheel_without_its_papers(tmp_path: Path) -> None:
    found = survey(wheel(tmp_path, {"pkg/lib.so": LIBRARY}))
    assert [each.rule for each in found.findings] == ["wheel-incomplete"]
    assert found.distribution is not None
    assert (found.distribution.name, found.distribution.version) == ("pkg", "1.0")


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "lib.so.1").write_bytes(LIBRARY)
    (tmp_path / "deep" / "lib.so").symlink_to("lib.so.1")
    (tmp_path / "gone.so").symlink_to("nowhere")
    (tmp_path / "noise.bin").write_bytes(b"noise")
    found = survey(tmp_path)
    assert len(found.libraries) == 1
    assert [each.rule for each in found.findings] == ["unreadable"]


def test_files_of_other_machines_are_noted(tmp_path: Path) -> None:
    (tmp_path / "old.so").write_bytes(b"\x7fELF\x01\x01" + bytes(100))
    (tmp_path / "lib.so").write_bytes(LIBRARY)
    found = survey(tmp_path)
    assert [each.path for each in found.libraries] == ["lib.so"]
    assert [(each.rule, each.severity) for each in found.findings] == [("library-foreign", "note")]


def test_installed_distribution(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    info = site / "My_Pkg-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_pkg").mkdir()
    (site / "my_pkg" / "lib.so").write_bytes(LIBRARY)
    (site / "other.so").write_bytes(LIBRARY)
    (info / "METADATA").write_text("Name: My-Pkg\nVersion: 1.0\n")
    (info / "RECORD").write_text("my_pkg/lib.so,sha256=x,1\nmy_pkg/a.py,,\n")
    found = survey("my.pkg", env=tmp_path)
    assert (found.kind, [each.path for each in found.libraries]) == ("distribution", ["my_pkg/lib.so"])
    assert found.distribution is not None
    assert found.distribution.name == "My-Pkg"
    with pytest.raises(UnknownNameError, match="nothing"):
        survey("nothing", env=tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError) as missing:
        survey(tmp_path / "nothing.so")
    assert not missing.value.hint
    with pytest.raises(UnreadableError) as missing:
        survey("torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl")
    assert missing.value.hint.startswith("torch==2.11.0 is downloaded")


def test_text_files_are_passed_over_by_name(tmp_path: Path) -> None:
    path = wheel(tmp_path, {**INFO, "pkg/kernel.cu": LIBRARY, "pkg/run": LIBRARY})
    found = source.find_source(path)
    found.close()
    assert [item.path for item in found.items if item.path.startswith("pkg/")] == ["pkg/run"]


def test_damaged_metadata_is_a_finding(tmp_path: Path) -> None:
    path = wheel(tmp_path, {**INFO, "pkg/lib.so": LIBRARY})
    found = survey(patched(path, b"PK\x01\x02", 16, b"\0\0\0\0", nth=0))
    assert "zip-damaged" in [each.rule for each in found.findings]
    assert len(found.libraries) == 1


def test_what_import_loads_is_read_from_the_python_of_a_wheel_and_of_a_folder(tmp_path: Path) -> None:
    members = {
        "pkg/__init__.py": b"from . import _C\ndef fast():\n    from . import _fast\n",
        "pkg/_C.abi3.so": LIBRARY,
        "pkg/_fast.abi3.so": LIBRARY,
    }
    packed = wheel(tmp_path, members | INFO)
    assert survey(packed, detail="containers").imported == ("pkg/_C.abi3.so",)
    assert survey(packed).imported == ()  # who lists rows judges nothing
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "env")
    assert survey(tmp_path / "env", detail="containers").imported == ("pkg/_C.abi3.so",)


def test_rows_of_record_however_they_are_written() -> None:
    text = 'a/b.py,sha256=x,3\r\n"a,b.so",,\n"' + "x" * 200_000 + '",,\n\0,,\n"open\nlast,,'
    found = list(metadata.record_rows(text))
    assert [row.path[:6] for row in found] == ["a/b.py", "a,b.so", "", "", "", "last"]
    assert (found[0].hash, found[0].size) == ("sha256=x", "3")
    assert "".join(row.line for row in found) == text


def test_a_long_record_is_read_in_a_moment() -> None:
    text = "".join(f"package/module_{number}.py,sha256={'x' * 43},{number}\n" for number in range(200_000))
    began = time.monotonic()
    assert sum(1 for _ in metadata.recorded_files(text)) == 200_000
    assert time.monotonic() - began < 5
