"""Whole files that other GPUs alone use: bitcode of one architecture, and what the table of packages says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.slim import act as slim
from cuwheel.changes.slim.request import SlimRequest
from cuwheel.cli import main
from cuwheel.facts import packages
from cuwheel_core.facts.arch import Capability
from tests.unit.changes.slim.packages import (
    fixture,
    make_environment,
    make_wheel,
    snapshot,
    wrong_members,
    wrong_records,
)

if TYPE_CHECKING:
    from cuwheel.changes.slim.answer import Slim

BITCODE = Path(__file__).parents[3] / "fixtures" / "bitcode"
FILES = {
    "shm/__init__.py": b"",
    **{f"shm/lib/libdev_{arch}.bc": (BITCODE / f"{arch}.bc").read_bytes() for arch in ("sm_80", "sm_90", "sm_90a")},
    "shm/lib/other_sm_80.bc": (BITCODE / "sm_80.bc").read_bytes(),
}


def removed(made: Slim) -> list[str]:
    return [each.path.rpartition("/")[2] for each in made.files if each.fate == "removed"]


def test_files_of_two_folders_are_no_choice_of_one_another(tmp_path: Path) -> None:
    """Also where the folders are named after architectures."""
    each = {arch: (BITCODE / f"{arch}.bc").read_bytes() for arch in ("sm_80", "sm_90")}
    files = {f"shm/{folder}/x_{arch}.bc": data for folder in each for arch, data in each.items()}
    wheel = make_wheel(tmp_path, {"shm/__init__.py": b"", **files}, "shm", "1.0")
    made = slim.slim(SlimRequest(wheel, machines=["h100"], output=tmp_path / "out"))
    gone = [file.path for file in made.files if file.fate == "removed"]
    assert gone == ["shm/sm_80/x_sm_80.bc", "shm/sm_90/x_sm_80.bc"]


@pytest.mark.parametrize(
    ("gpus", "gone"),
    [
        (["h100"], ["libdev_sm_80.bc"]),
        (["a100"], ["libdev_sm_90.bc"]),
        (["8.6"], ["libdev_sm_90.bc"]),
        (["b200"], ["libdev_sm_80.bc"]),  # a compiler takes the highest that is lower
        (["a100", "h100"], []),
        (["t4"], []),  # nothing is for it, now or before
    ],
)
def test_of_a_wheel(tmp_path: Path, gpus: list[str], gone: list[str]) -> None:
    """Of files with a suffix nobody knows who takes them: they stay."""
    wheel = make_wheel(tmp_path, FILES, "shm", "1.0")
    made = slim.slim(SlimRequest(wheel, machines=gpus, output=tmp_path / "out"))
    assert removed(made) == gone
    assert made.written == bool(gone)
    if gone:
        (out,) = (tmp_path / "out").iterdir()
        assert wrong_members(out) == []
        assert {each for each in FILES if each not in zipfile.ZipFile(out).namelist()} == {f"shm/lib/{gone[0]}"}
        (row,) = (each for each in made.files if each.fate == "removed")
        assert [(each.kind, each.bytes) for each in row.dropped] == [("bitcode", len(FILES[row.path]))]


def test_what_stays_counts_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tmp_path, FILES, "shm", "1.0")
    assert main(["slim", str(wheel), "--for", "h100", "--dry-run"]) == 0
    assert "1 of 3 files with device code: 3.8 kB → 2.5 kB (-33 %)" in capsys.readouterr().out
    assert main(["slim", str(wheel), "--for", "a100,h100", "--dry-run"]) == 0
    assert "3 files with device code" in capsys.readouterr().out


def test_for_newer_ones_too(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FILES, "shm", "1.0")
    assert removed(slim.slim(SlimRequest(wheel, machines=["a100"], future=True, output=tmp_path / "out"))) == []


def test_in_an_environment_and_back(tmp_path: Path) -> None:
    site = make_environment(
        tmp_path / "env", {("shm", "1.0"): FILES, ("foo", "1.0"): {"foo/a.so": fixture("all-124.so")}}
    )
    before = snapshot(tmp_path / "env")
    dry = slim.slim(SlimRequest((), machines=["h100"], env=tmp_path / "env", dry_run=True))
    assert removed(dry) == ["libdev_sm_80.bc"]
    assert snapshot(tmp_path / "env") == before
    only = slim.slim(SlimRequest(("foo",), machines=["h100"], env=tmp_path / "env", dry_run=True))
    assert removed(only) == []
    made = slim.slim(SlimRequest(("shm",), machines=["h100"], env=tmp_path / "env"))
    assert removed(made) == ["libdev_sm_80.bc"]
    assert wrong_records(site) == []
    assert not (site / "shm/lib/libdev_sm_80.bc").exists()
    slim.undo(tmp_path / "env")
    assert snapshot(tmp_path / "env") == before


def test_inspect_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tmp_path, FILES, "shm", "1.0")
    assert main(["inspect", str(wheel)]) == 0
    assert "LLVM bitcode, one file for each architecture" in capsys.readouterr().out
    assert main(["inspect", str(wheel), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["arch"] for each in found["bitcode"]] == ["sm_80", "sm_90", "sm_90a"]


TOOLS = {
    "triton/__init__.py": b"",
    **{
        f"triton/backends/nvidia/{each}": fixture("none-130.so")
        for each in ("bin/ptxas", "bin/ptxas-blackwell", "bin/nvdisasm", "lib/cupti/libcupti.so")
    },
    "triton/backends/nvidia/lib/cupti-blackwell/libcupti.so": fixture("none-130.so"),
    "triton/backends/amd/lib/libtriton_amd_codegen.so": fixture("none-130.so"),
}


PTXAS, BLACKWELL = "nvidia/bin/ptxas", "nvidia/bin/ptxas-blackwell"
CUPTI, AMD = "nvidia/lib/cupti-blackwell/libcupti.so", "amd/lib/libtriton_amd_codegen.so"


@pytest.mark.parametrize(
    ("version", "gpus", "gone"),
    [
        ("3.9.0", ["h100"], {PTXAS, CUPTI, AMD}),
        ("3.9.0", ["a100"], {BLACKWELL, CUPTI, AMD}),
        ("3.9.0", ["b200"], {PTXAS, AMD}),
        ("3.9.0", ["a100", "b200"], {AMD}),
        ("3.8.0", ["h100"], {BLACKWELL, CUPTI}),
        ("3.5.1", ["h100"], set()),
        ("3.10.0", ["h100"], set()),  # nobody has read it
    ],
)
def test_tools_of_other_gpus(tmp_path: Path, version: str, gpus: list[str], gone: set[str]) -> None:
    wheel = make_wheel(tmp_path, TOOLS, "triton", version)
    made = slim.slim(SlimRequest(wheel, machines=gpus, output=tmp_path / "out"))
    assert {each.path.removeprefix("triton/backends/") for each in made.files if each.fate == "removed"} == gone


def test_tools_of_an_environment(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "env", {("triton", "3.9.0"): TOOLS})
    before = snapshot(tmp_path / "env")
    made = slim.slim(SlimRequest((), machines=["h100"], env=tmp_path / "env"))
    assert len(removed(made)) == 3
    assert wrong_records(site) == []
    slim.undo(tmp_path / "env")
    assert snapshot(tmp_path / "env") == before


def test_which_releases_a_row_is_about() -> None:
    (row,) = packages.files_for_gpus("lib\\triton\\backends\\nvidia\\bin\\ptxas")
    assert row.is_of("Triton", "3.9.0+slim.sm90.h123")
    assert not row.is_of("triton", "3.8.1")
    assert not row.is_of("triton", None)
    assert not row.is_of("triton-nightly", "3.9.0")
    assert row.covers(Capability(8, 0))
    assert not row.covers(Capability(9, 0))
