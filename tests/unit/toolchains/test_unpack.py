from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
import zstandard

from cuwheel.toolchains import archives
from cuwheel.toolchains.toolchain import Archive
from cuwheel_core.errors import MalformedError
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.toolchains.toolchain import ArchiveKind


def unpacked(kind: ArchiveKind, path: Path, root: Path) -> dict[str, bytes]:
    root.mkdir(exist_ok=True)
    archives.unpack(Archive(kind=kind, name="x", version="1", file=path.name, sha256=""), path, root.resolve())
    return {each.relative_to(root).as_posix(): each.read_bytes() for each in sorted(root.rglob("*")) if each.is_file()}


def tar(path: Path, *members: tuple[str, bytes, str]) -> Path:
    """Name, type, and where a link leads."""
    with tarfile.open(path, "w:xz", preset=0) as archive:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, target, 0o755
            info.size = 2 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"ok"))
    return path


FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@systems.NO_LINKS
def test_an_archive_loses_its_top_folder(tmp_path: Path) -> None:
    members = (
        ("a-1", FOLDER, ""),
        ("a-1/bin/nvcc", FILE, ""),
        ("a-1/lib/x.so.1", FILE, ""),
        ("a-1/lib/x.so", LINK, "x.so.1"),
    )
    found = unpacked("tar", tar(tmp_path / "a.tar.xz", *members), tmp_path / "root")
    assert found == {"bin/nvcc": b"ok", "lib/x.so.1": b"ok", "lib/x.so": b"ok"}
    assert (tmp_path / "root" / "lib" / "x.so").is_symlink()
    assert (tmp_path / "root" / "bin" / "nvcc").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("a/../../evil", FILE, "")], "is outside the archive"),
        ([("/etc/evil", FILE, "")], "is outside the archive"),
        ([("a/link", LINK, "/etc")], "outside the archive"),
        ([("a/link", LINK, "../..")], "outside the archive"),
        ([("a/b/link", LINK, "../../..")], "outside the archive"),
        pytest.param(
            [("a/d", FOLDER, ""), ("a/link", LINK, "d"), ("a/link/evil", FILE, "")],
            "behind a link",
            marks=systems.NO_LINKS,
        ),
        ([("a/fifo", tarfile.FIFOTYPE, "")], "not a file, folder or link"),
        ([("a/dev", tarfile.CHRTYPE, "")], "not a file, folder or link"),
    ],
)
def test_hostile_archives_are_refused(tmp_path: Path, members: list[tuple[str, bytes, str]], why: str) -> None:
    path = tar(tmp_path / "a.tar.xz", *members)
    with pytest.raises(MalformedError, match=why):
        unpacked("tar", path, tmp_path / "root")
    assert not list(tmp_path.glob("**/evil"))


def test_a_hard_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedError, match="cannot be unpacked"):
        unpacked("tar", tar(tmp_path / "a.tar.xz", ("a/hard", HARD, "/etc/passwd")), tmp_path / "root")


@systems.NO_LINKS
def test_a_file_does_not_follow_the_link_of_another_archive(tmp_path: Path) -> None:
    first = tar(tmp_path / "1.tar.xz", ("a/lib/real", FILE, ""), ("a/lib/link", LINK, "real"))
    second = tar(tmp_path / "2.tar.xz", ("b/lib/link", FILE, ""))
    unpacked("tar", first, tmp_path / "root")
    (tmp_path / "root" / "lib" / "real").write_bytes(b"mine")
    assert unpacked("tar", second, tmp_path / "root") == {"lib/real": b"mine", "lib/link": b"ok"}


@pytest.mark.parametrize("data", [b"", b"no archive", b"\xfd7zXZ\x00\x00"])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    for kind in ("tar", "wheel"):
        with pytest.raises(MalformedError, match="cannot be unpacked"):
            unpacked(kind, path, tmp_path / "root")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("nvidia/cu13/bin/nvcc", "bin/nvcc"),
        ("nvidia/cu13/nvvm/bin/cicc", "nvvm/bin/cicc"),
        ("nvidia/cu13/include/cccl/thrust/version.h", "include/cccl/thrust/version.h"),
        ("nvidia/cudnn/lib/libcudnn.so.9", "lib/libcudnn.so.9"),
        ("nvidia/cublasmp/cu13/lib/libcublasmp.so.0", "lib/libcublasmp.so.0"),
        ("cutensor/include/cutensor.h", "include/cutensor.h"),
        ("nvidia_nccl_cu13-2.28.dist-info/licenses/License.txt", "licenses/nvidia_nccl_cu13-2.28/License.txt"),
        ("nvidia_nccl_cu13-2.28.dist-info/RECORD", None),
        ("nvidia/__init__.py", None),
        ("nvidia/cu13/__init__.py", None),
        ("bin/evil", None),
    ],
)
def test_where_files_of_a_wheel_go(name: str, place: str | None) -> None:
    assert archives._place_in_wheel(name) == place


def test_a_wheel_cannot_leave_the_toolkit(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("nvidia/cu13/lib/../../../evil", "x")
    with pytest.raises(MalformedError, match="outside"):
        unpacked("wheel", path, tmp_path / "root")
    assert not list(tmp_path.glob("**/evil"))


def test_bombs_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_LEAST", 1000)
    bomb = bytes(20_000_000)
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as archive:
        info = tarfile.TarInfo("top/lib/bomb")
        info.size = len(bomb)
        archive.addfile(info, io.BytesIO(bomb))
    with zipfile.ZipFile(tmp_path / "a.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("nvidia/cu13/lib/bomb", bomb)
    for kind, name in (("tar", "a.tar.xz"), ("wheel", "a.whl")):
        with pytest.raises(MalformedError, match="more than 50 times its size"):
            unpacked(kind, tmp_path / name, tmp_path / "root")  # type: ignore[arg-type]
    assert sum(each.stat().st_size for each in (tmp_path / "root").rglob("*")) < len(bomb) / 2


def test_more_files_than_a_toolkit_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_FILES", 2)
    path = tar(tmp_path / "a.tar.xz", *((f"top/{number}", FILE, "") for number in range(3)))
    with pytest.raises(MalformedError, match="more than 2 files"):
        unpacked("tar", path, tmp_path / "root")


def deb(path: Path, data: bytes, name: bytes = b"data.tar.xz") -> Path:
    parts = [b"!<arch>\n"]
    for member, contents in ((b"debian-binary", b"2.0\n"), (b"control.tar.xz", b"odd"), (name, data)):
        parts.append(member.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"100644".ljust(8))
        parts.append(str(len(contents)).encode().ljust(10) + b"`\n" + contents + b"\n" * (len(contents) % 2))
    path.write_bytes(b"".join(parts))
    return path


NVCC = "./usr/lib/nvidia-cuda-toolkit/bin/nvcc"


@systems.NO_LINKS
def test_a_package_of_debian(tmp_path: Path) -> None:
    members = [
        ("./usr", FOLDER, ""),
        (NVCC, FILE, ""),
        ("./usr/bin/ptxas", HARD, NVCC),
        ("./usr/bin/x", LINK, "/etc/alternatives/x"),
    ]
    data = tar(tmp_path / "data", *members).read_bytes()
    found = unpacked("deb", deb(tmp_path / "x.deb", data), tmp_path / "root")
    assert found["bin/nvcc"] == found["bin/ptxas"] == b"ok"


@systems.NO_LINKS
@pytest.mark.parametrize("name", [b"data.tar.zst", b"data.tar.gz", b"data.tar"])
def test_packages_of_debian_are_packed_in_several_ways(tmp_path: Path, name: bytes) -> None:
    plain = lzma.decompress(tar(tmp_path / "data", (NVCC, FILE, "")).read_bytes())
    packed = zstandard.compress(plain) if b"zst" in name else gzip.compress(plain) if b"gz" in name else plain
    assert unpacked("deb", deb(tmp_path / "x.deb", packed, name), tmp_path / "root")["bin/nvcc"] == b"ok"


def test_a_package_of_debian_is_no_bomb(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = tarfile.TarInfo("./usr/include/zeros.h")
        info.size = 200 << 20
        archive.addfile(info, Zeros())
    packed = zstandard.compress(stream.getvalue())
    assert len(packed) < 100_000
    with pytest.raises(MalformedError, match="unpacks to more than 50 times its size"):
        unpacked("deb", deb(tmp_path / "x.deb", packed, b"data.tar.zst"), tmp_path / "root")
    assert sum(each.stat().st_size for each in (tmp_path / "root").rglob("*")) < 1 << 20  # what came of it is gone


class Zeros(io.RawIOBase):
    def read(self, size: int = -1) -> bytes:
        return bytes(max(size, 0))


@pytest.mark.parametrize(
    "data", [b"", b"!<arch>\n", b"!<arch>\nshort", b"!<arch>\n" + b"data.tar.xz".ljust(48) + b"x".ljust(12), b"PK\3\4"]
)
def test_what_is_no_package_of_debian(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.deb").write_bytes(data)
    with pytest.raises(MalformedError):
        unpacked("deb", tmp_path / "x.deb", tmp_path / "root")


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", FILE, "")],
        [("./usr/../../evil", FILE, "")],
        pytest.param([("./usr", LINK, "/tmp"), ("./usr/evil", FILE, "")], marks=systems.NO_LINKS),
        [("./usr/x", HARD, "./../../../etc/passwd")],
    ],
)
def test_a_package_of_debian_stays_inside(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    data = tar(tmp_path / "data", *members).read_bytes()
    with pytest.raises(MalformedError):
        unpacked("deb", deb(tmp_path / "x.deb", data), tmp_path / "root")


@systems.NO_LINKS
def test_no_folder_is_made_behind_a_link_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    members = [("./usr", LINK, str(tmp_path / "elsewhere")), ("./usr/new/evil", FILE, "")]
    data = tar(tmp_path / "data", *members).read_bytes()
    with pytest.raises(MalformedError, match="behind a link"):
        unpacked("deb", deb(tmp_path / "x.deb", data), tmp_path / "root")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", [b"data.tar.xz", b"data.tar.zst", b"data.tar.gz", b"data.tar"])
def test_a_damaged_package_of_debian(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(MalformedError):
        unpacked("deb", deb(tmp_path / "x.deb", b"nonsense" * 200, name), tmp_path / "root")


def _zip(path: Path, signature: bytes, at: int, value: int, length: int = 2) -> Path:
    """With another number in a field of the row of its directory, or of the end."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nvidia/cu13/bin/nvcc", b"ok")
    data = bytearray(path.read_bytes())
    row = data.find(signature)
    data[row + at : row + at + length] = value.to_bytes(length, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ((b"PK\1\2", 8), 1, "encrypted"),
        ((b"PK\1\2", 10), 97, "compression"),
        ((b"PK\5\6", 16), 0x4000, "does not begin before"),
        ((b"PK\1\2", 42), 0xFFF0, "does not begin before"),
        ((b"PK\1\2", 28), 20 << 32, "no name"),  # the name is a comment, instead
    ],
)
def test_zips_that_python_cannot_read(tmp_path: Path, field: tuple[bytes, int], value: int, why: str) -> None:
    path = _zip(tmp_path / "a.whl", *field, value, length=6 if why == "no name" else 2)
    with pytest.raises(MalformedError, match=why):
        unpacked("wheel", path, tmp_path / "root")


def test_a_dictionary_that_is_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of LZMA asks for 4 GB, in 13 bytes."""

    def opened(*_words: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tarfile, "open", opened)
    path = tmp_path / "a.tar"
    path.write_bytes(b"\n" + b"\xff" * 12)
    with pytest.raises(MalformedError, match="MemoryError"):
        unpacked("tar", path, tmp_path / "root")
