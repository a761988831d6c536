"""An nvcc that knows no NVCC_CCBIN takes the `gcc` that it finds: that must be the one that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.building import workspace
from cuwheel.toolchains.toolchain import HostCompiler
from tests.fixtures import systems

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def compiler(path: Path, kind: str = "gcc") -> HostCompiler:
    return HostCompiler(kind=kind, version="11.3.0", path=str(path), found_via="a test")


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("")
    return folder


def test_another_than_the_systems_stands_under_the_usual_names(tmp_path: Path) -> None:
    folder = programs(tmp_path / "bin", "g++-11", "gcc-11")
    cxx, cc = str(folder / "g++-11"), str(folder / "gcc-11")
    links = dict(workspace.compiler_links(compiler(folder / "g++-11")))
    assert links == {"g++": cxx, "c++": cxx, "gcc": cc, "cc": cc}


@systems.LINUX_PATHS
def test_the_systems_own_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = programs(tmp_path / "bin", "g++-12", "gcc-12")
    (folder / "g++").symlink_to("g++-12")
    monkeypatch.setattr(workspace, "SYSTEM_PATH", (str(folder),))
    assert list(workspace.compiler_links(compiler(folder / "g++-12"))) == []


def test_clang_is_not_called_gcc(tmp_path: Path) -> None:
    folder = programs(tmp_path / "bin", "clang++-17", "clang-17")
    assert list(workspace.compiler_links(compiler(folder / "clang++-17", "clang"))) == []
    assert list(workspace.compiler_links(None)) == []
