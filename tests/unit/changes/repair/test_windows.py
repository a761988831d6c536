"""Wheels for Windows repaired: NVIDIA's DLLs stay out and are found, others are copied, and nothing is guessed."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.changes.repair.act import execute
from cuwheel.changes.repair.decide import decide, written_folders
from cuwheel.changes.repair.request import RepairRequest
from tests.fixtures.elves import elf
from tests.fixtures.wheels import wheel
from tests.fixtures.windows import Dll

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cuwheel.changes.repair.decide import Decision

SYSTEM = ("KERNEL32.dll", "api-ms-win-crt-runtime-l1-1-0.dll", "python311.dll", "VCRUNTIME140.dll")
INIT = b'"""A package."""\nfrom __future__ import annotations\nx = 1\n'


@pytest.fixture(autouse=True)
def _an_empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "no-env"))
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))


def dll(*needed: str, machine: int = 0x8664) -> bytes:
    return Dll(containers=[], needed=needed, machine=machine).build()


def decided(folder: Path, files: Mapping[str, bytes], platform: str = "win_amd64", **wish: Any) -> Decision:
    return decide(wheel(folder / "dist", files, platform=platform), RepairRequest("x.whl", **wish))


def fates(decision: Decision) -> dict[str, str]:
    return {each.soname: each.fate for each in decision.libraries}


def test_what_becomes_of_each_library(tmp_path: Path) -> None:
    needed = (*SYSTEM, "cudart64_13.dll", "cublas64_13.dll", "nvcuda.dll", "c10.dll", "Other.dll", "own.dll")
    there = tmp_path / "there"
    there.mkdir()
    (there / "OTHER.DLL").write_bytes(dll("KERNEL32.dll"))
    files = {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll(*needed), "pkg/lib/own.dll": dll()}
    decision = decided(tmp_path, files, libraries=(there,))
    assert not decision.refused
    assert fates(decision) == {
        **{each.lower(): "system" for each in SYSTEM},
        "cudart64_13.dll": "kept-out",
        "cublas64_13.dll": "kept-out",
        "nvcuda.dll": "kept-out",
        "c10.dll": "kept-out",
        "other.dll": "grafted",
        "own.dll": "inside",
    }
    (way,) = decision.paths
    assert way.path == "pkg/__init__.py"
    assert way.after == ("nvidia/cu13/bin/x86_64", "pkg/lib")
    assert decision.changes == ("libraries", "DLL folders")
    assert "framework-not-required" in {each.rule for each in decision.findings}


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("cudart64_12.dll", ("nvidia/cuda_runtime/bin",)),
        ("CUBLAS64_12.DLL", ("nvidia/cublas/bin",)),
        ("cudnn64_9.dll", None),
    ],
)
def test_folders_are_those_of_the_cuda(tmp_path: Path, name: str, folders: tuple[str, ...] | None) -> None:
    decision = decided(tmp_path, {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll(name)}, cuda=12)
    (way,) = decision.paths
    assert way.after == (folders or ("nvidia/cudnn/bin",))


def test_arm64_has_its_own_folder(tmp_path: Path) -> None:
    files = {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll("cudart64_13.dll", machine=0xAA64)}
    decision = decided(tmp_path, files, platform="win_arm64")
    assert decision.paths[0].after == ("nvidia/cu13/bin/arm64",)


def test_a_newer_cuda_than_the_table(tmp_path: Path) -> None:
    decision = decided(tmp_path, {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll("cublasLt64_99.dll")})
    assert fates(decision) == {"cublaslt64_99.dll": "kept-out"}
    assert "library-not-in-table" in {each.rule for each in decision.findings}


def test_a_missing_library_refuses(tmp_path: Path) -> None:
    decision = decided(tmp_path, {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll("nowhere140.dll")})
    assert decision.refused
    (finding,) = (each for each in decision.findings if each.rule == "library-missing")
    assert "--exclude nowhere140.dll" in finding.fix
    assert finding.evidence[-1].startswith(("searched ", "no folder to search"))
    assert finding.evidence[-1] != "searched "
    spared = decided(
        tmp_path, {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll("nowhere140.dll")}, exclude=("nowhere*.dll",)
    )
    assert not spared.refused


def test_another_machine_under_the_tag(tmp_path: Path) -> None:
    decision = decided(tmp_path, {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll(machine=0xAA64)})
    assert [each.rule for each in decision.findings] == ["wrong-machine"]


def test_what_is_for_linux_is_data_and_so_are_programs(tmp_path: Path) -> None:
    program = Dll(containers=[], needed=("gone.dll",), traits=0x0022).build()
    files = {"pkg/__init__.py": INIT, "pkg/x.so": elf(needed=["libgone.so"]), "pkg/launcher.exe": program}
    decision = decided(tmp_path, {**files, "pkg/_ext.pyd": dll("KERNEL32.dll")})
    assert not decision.refused
    assert not decision.changes


def test_a_package_below_a_namespace_adds_them(tmp_path: Path) -> None:
    files = {"space/part/__init__.py": INIT, "space/part/inner/_ext.pyd": dll("cudart64_13.dll")}
    decision = decided(tmp_path, files)
    assert [each.path for each in decision.paths] == ["space/part/__init__.py"]
    execute(decision, tmp_path / "out")
    made = tmp_path / "out" / decision.file_name
    with zipfile.ZipFile(made) as archive:
        assert "'../../nvidia/cu13/bin/x86_64'," in archive.read("space/part/_cuwheel_dlls.py").decode()
    assert not decide(made, RepairRequest("x.whl")).changes


@pytest.mark.parametrize("place", ["_ext.pyd", "space/part/_ext.pyd"])
def test_without_an_init_nothing_adds_the_folders(tmp_path: Path, place: str) -> None:
    decision = decided(tmp_path, {place: dll("cudart64_13.dll")})
    assert [each.rule for each in decision.findings] == ["dll-folders-not-added"]
    assert not decision.changes


def test_folders_are_added_by_python(tmp_path: Path) -> None:
    """Before anything of the package's own, and only those that are there."""
    files = {"pkg/__init__.py": INIT, "pkg/_ext.pyd": dll("cudart64_13.dll", "cudnn64_9.dll"), "pkg/data.txt": b"x"}
    decision = decided(tmp_path, files, requires=True, cuda=13)
    assert execute(decision, tmp_path / "out").outcome == "repaired"
    made = tmp_path / "out" / decision.file_name
    site = tmp_path / "site"
    with zipfile.ZipFile(made) as archive:
        archive.extractall(site)
    assert (site / "pkg" / "data.txt").read_bytes() == b"x"
    metadata = (site / "pkg-1.0.dist-info" / "METADATA").read_text()
    assert re.search(r"Requires-Dist: nvidia-cuda-runtime>=13,<14\n", metadata)
    (site / "nvidia" / "cu13" / "bin" / "x86_64").mkdir(parents=True)
    added = _imported(site)
    assert added == [str(site / "nvidia" / "cu13" / "bin" / "x86_64")]
    second = decide(made, RepairRequest("x.whl", requires=True, cuda=13))
    assert not second.changes, "a repaired wheel needs no repair"


def _imported(site: Path) -> list[str]:
    """What importing the package there adds, were this Windows."""
    added: list[str] = []
    before, there = set(sys.modules), getattr(os, "add_dll_directory", None)
    os.add_dll_directory = added.append  # type: ignore[attr-defined,unused-ignore]
    sys.path.insert(0, str(site))
    try:
        import pkg  # type: ignore[import-not-found]

        assert pkg.x == 1
        assert not hasattr(pkg, "_cuwheel_add")
    finally:
        sys.path.remove(str(site))
        for name in set(sys.modules) - before:
            del sys.modules[name]
        if there is None:
            del os.add_dll_directory  # type: ignore[attr-defined,unused-ignore]
        else:
            os.add_dll_directory = there  # type: ignore[attr-defined,unused-ignore]
    return added


@pytest.mark.parametrize(
    "module",
    [b"", b"FOLDERS = 3", b"FOLDERS = ('a', 4)", b"x = (", b"FOLDERS = __import__('os')", b"\xff\0", b"(" * 9999],
)
def test_somebody_elses_module_is_no_earlier_repair(module: bytes) -> None:
    assert written_folders(module, "pkg") in ((), ("pkg/a",))
