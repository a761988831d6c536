"""Wheels for Windows repaired on this machine by delvewheel itself, and looked at by pefile."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pefile
import pytest

from cuwheel import api
from tests.fixtures.wheels import wheel
from tests.fixtures.windows import Dll

if TYPE_CHECKING:
    from pathlib import Path


def needed_by(data: bytes) -> set[str]:
    return {each.dll.decode().lower() for each in pefile.PE(data=data).DIRECTORY_ENTRY_IMPORT}


@pytest.mark.parametrize("place", ["pkg/_ext.pyd", "_ext.pyd"], ids=["in a package", "at the top"])
def test_others_are_copied_and_nvidias_are_not(tmp_path: Path, place: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "other.dll").write_bytes(Dll(containers=[], needed=("KERNEL32.dll", "cublas64_13.dll")).build())
    (there / "cudart64_13.dll").write_bytes(Dll(containers=[]).build())
    (there / "cublas64_13.dll").write_bytes(Dll(containers=[]).build())
    files = {"pkg/__init__.py": b"", place: Dll(needed=("KERNEL32.dll", "cudart64_13.dll", "Other.dll")).build()}
    source = wheel(tmp_path / "dist", files, platform="win_amd64")
    before = source.read_bytes()
    answer = api.repair([source], output=tmp_path / "out", libraries=[there], requires=True, cuda="13")
    (made,) = answer.wheels
    assert made.outcome == "repaired", made.findings
    assert made.changes[0] == "libraries"
    assert source.read_bytes() == before
    with zipfile.ZipFile(made.output or "") as archive:
        names = archive.namelist()
        (copied,) = made.grafted
        assert copied in names
        assert not [each for each in names if "cudart" in each or "cublas64" in each]
        assert copied.rpartition("/")[2].lower() in needed_by(archive.read(place))
        assert {"cudart64_13.dll", "kernel32.dll"} <= needed_by(archive.read(place))
        if place.startswith("pkg/"):
            init = archive.read("pkg/__init__.py").decode()
            assert "_delvewheel_patch" in init
            assert "_cuwheel_dlls" in init
            assert "'../nvidia/cu13/bin/x86_64'," in archive.read("pkg/_cuwheel_dlls.py").decode()
    assert set(made.requires) == {"nvidia-cublas>=13,<14", "nvidia-cuda-runtime>=13,<14"}
    again = api.repair([made.output or ""], output=tmp_path / "again", libraries=[there], dry_run=True)
    assert again.wheels[0].outcome == "unchanged"
