"""Wheels and installed environments made of the fixtures, for slimming."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.wheel import record
from cuwheel_core.wheel.metadata import record_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

BIN = Path(__file__).parents[3] / "fixtures" / "bin"
_WHEN = (2024, 5, 6, 7, 8, 10)
_EXECUTABLE = 0o100755 << 16
_PLAIN = 0o100644 << 16
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: of the text\n"


def fixture(name: str) -> bytes:
    return (BIN / name).read_bytes()


# One package with a library for each CUDA version, as bitsandbytes is.
PER_CUDA = {
    "bitsandbytes/__init__.py": b"",
    "bitsandbytes/libbitsandbytes_cuda124.so": fixture("names-124.so"),
    "bitsandbytes/libbitsandbytes_cuda128.so": fixture("all-124.so"),
    "bitsandbytes/libbitsandbytes_cuda130.so": fixture("names-130.so"),
}
FOO = {
    "foo/__init__.py": b"x = 1\n",
    "foo/data.bin": bytes(range(256)) * 64,
    "foo/libfoo.so": fixture("all-124.so"),
    "foo/lib/libbar.so.1": fixture("names-130.so"),
    "foo/libhost.so": fixture("amd.so"),
}


def with_info(
    files: Mapping[str, bytes], name: str, version: str, extra: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The files and the dist-info that goes with them, RECORD last."""
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": _METADATA.format(name=name, version=version).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
        **{f"{info}/{key}": value for key, value in (extra or {}).items()},
    }
    rows = []
    for path, data in whole.items():
        digest = record.digest_of_bytes(data)
        rows.append(f"{path},{digest.hash},{digest.size}\n")
    return {**whole, f"{info}/RECORD": "".join([*rows, f"{info}/RECORD,,\n"]).encode()}


def make_wheel(
    folder: Path,
    files: Mapping[str, bytes],
    name: str = "foo",
    version: str = "1.0+cu130",
    *,
    compression: int = zipfile.ZIP_DEFLATED,
    extra: Mapping[str, bytes] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in with_info(files, name, version, extra).items():
            info = zipfile.ZipInfo(member, _WHEN)
            info.compress_type = compression
            info.external_attr = _EXECUTABLE if member.endswith(".so") else _PLAIN
            archive.writestr(info, data)
    return path


def make_environment(root: Path, wheels: Mapping[tuple[str, str], Mapping[str, bytes]] | None = None) -> Path:
    """A virtual environment as an installer leaves it, without an interpreter. Returns its site-packages."""
    site = root / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("version = 3.11.7\n")
    put_packages(site, wheels or {("foo", "1.0"): FOO, ("bitsandbytes", "0.50"): PER_CUDA})
    return site


def put_packages(site: Path, wheels: Mapping[tuple[str, str], Mapping[str, bytes]]) -> None:
    """Distributions as an installer leaves them."""
    for (name, version), files in wheels.items():
        for member, data in with_info(files, name, version).items():
            path = site / member
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if member.endswith(".so") else 0o644)


def snapshot(root: Path) -> dict[str, tuple[str, int, int]]:
    """Every file: what it holds, its mode and when it was changed."""
    return {
        path.relative_to(root).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def contents(root: Path) -> dict[str, str]:
    return {path: digest for path, (digest, _, _) in snapshot(root).items()}


def wrong_records(site: Path) -> list[str]:
    """Rows that do not say what is there."""
    wrong = []
    for listed in site.glob("*.dist-info/RECORD"):
        for row in record_rows(listed.read_text()):
            path = site / row.path
            if not path.is_file() or (row.hash and _row(path) != (row.hash, row.size)):
                wrong.append(row.path)
    return wrong


def wrong_members(wheel: Path) -> list[str]:
    """Members of a wheel that its RECORD does not list, or not so."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        (listed,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {row.path: (row.hash, row.size) for row in record_rows(archive.read(listed).decode())}
        names = {name for name in archive.namelist() if not name.endswith("/")}
        said = {name: record.digest_of_bytes(archive.read(name)) for name in names if name != listed}
    wrong = [name for name, digest in said.items() if rows.get(name) != (digest.hash, str(digest.size))]
    return sorted([*wrong, *(names ^ rows.keys())])


def _row(path: Path) -> tuple[str, str]:
    digest = record.digest_of(path)
    return digest.hash, str(digest.size)
