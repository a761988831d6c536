"""The shadow of a toolkit for Windows, made here: links to folders are symbolic ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import recorder
from cuwheel.support import system_calls

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.unit, pytest.mark.skipif(os.name == "nt", reason="Wine has no links to folders")]


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    root = tmp_path / "Program Files" / "CUDA" / "v13.0"
    for name in ("bin/x64", "include", "nvvm/bin"):
        (root / name).mkdir(parents=True)
    for name in ("nvcc.exe", "ptxas.exe", "nvcc.profile", "cudart64_13.dll"):
        (root / "bin" / name).write_text(name)
    (root / "version.json").write_text("{}")
    return root


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    path = tmp_path / "nvcc.exe"
    path.write_text("ours")
    return path


def test_a_shadow_leads_to_the_rest_of_its_toolkit(tmp_path: Path, toolkit: Path, stand_in: Path) -> None:
    given = {
        "CUDA_PATH": str(toolkit),
        "CUDA_PATH_V13_0": str(toolkit),
        "CUDACXX": str(toolkit / "bin" / "nvcc.exe"),
        "NVCC": "nvcc",
        "CC": "cl.exe",
        "PATH": f"{toolkit}/bin;/windows",
    }
    led = recorder.windows_shadow_environ(tmp_path / "cache", stand_in, given)
    shadowed = led["CUDA_PATH"]
    assert led["CUDA_PATH_V13_0"] == shadowed != str(toolkit)
    assert led["CUDACXX"] == f"{shadowed}/bin/nvcc.exe"
    assert (led["NVCC"], led["CC"]) == ("nvcc", "cl.exe")
    assert led["PATH"] == f"{shadowed}/bin;{toolkit}/bin;/windows"
    place = tmp_path.joinpath(shadowed)
    assert {path.name for path in (place / "bin").iterdir()} == {
        "nvcc.exe", "ptxas.exe", "nvcc.profile", "x64", recorder.SHIMS_MARK,
    }  # fmt: skip
    assert (place / "bin" / "ptxas.exe").read_text() == "ours"
    assert (place / "nvvm" / "bin").is_dir()
    assert (place / recorder.TOOLKIT_LINK).read_text() == str(toolkit)
    assert recorder.windows_shadow_environ(tmp_path / "cache", stand_in, given) == led


def test_where_folders_cannot_be_linked_variables_stay(
    tmp_path: Path, toolkit: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_target: Path, _place: Path) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(system_calls, "link_folder", refuse)
    given = {"CUDA_PATH": str(toolkit), "PATH": f"{toolkit}/bin"}
    led = recorder.windows_shadow_environ(tmp_path / "cache", stand_in, given)
    assert led["CUDA_PATH"] == str(toolkit)
    first = tmp_path.joinpath(led["PATH"].split(";")[0])
    assert (first / "nvcc.exe").read_text() == "ours"
    assert (first.parent / recorder.TOOLKIT_LINK).read_text() == str(toolkit)


def test_what_is_no_toolkit_stays(tmp_path: Path, stand_in: Path) -> None:
    given = {"CUDA_PATH": str(tmp_path), "PATH": "/a;;bin", "CUDACXX": str(tmp_path / "bin" / "nvcc.exe")}
    assert recorder.windows_shadow_environ(tmp_path / "cache", stand_in, given) == given
