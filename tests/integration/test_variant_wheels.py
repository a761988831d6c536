"""Every verb that takes a wheel takes a variant of one."""

from __future__ import annotations

import json
import platform
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.changes.stamp import variants
from cuwheel.cli import main
from cuwheel.network import venvs
from tests.fixtures import compiled
from tests.fixtures.variant_wheels import TAG, labelled, plain, says
from tests.fixtures.wheels import wheel as packed
from tests.unit.changes.slim.packages import wrong_members

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the wheels are for x86-64 Linux"
)


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    """sm_75, sm_90 and sm_100, of CUDA 13.0."""
    (made,), _ = variants.write_all([plain(tmp_path, "names-130.so")], tmp_path)
    return Path(made.wheels[0].path)


def told(capsys: pytest.CaptureFixture[str], words: Sequence[str | Path], status: int = 0) -> dict[str, Any]:
    assert main([*map(str, words), "--json"]) == status
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_reading(variant: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["inspect", variant])
    assert found["variant"]["label"] == "cu130_sm75_90_100"
    assert found["distribution"]["version"] == "1.0"
    outcomes = [each["outcome"] for each in told(capsys, ["check", variant, "--on", "9.0,8.0"], 1)["verdicts"]]
    assert outcomes == ["native", "fails"]
    assert {each["arch"] for each in told(capsys, ["inspect", variant, "--kernels"])["code"]} == {
        "sm_75",
        "sm_90",
        "sm_100",
    }
    before = variant.parent / f"pkg-1.0-{TAG}.whl"
    assert told(capsys, ["inspect", before, "--against", variant])["architectures"] == {"gained": [], "lost": []}


def test_a_slimmed_variant_is_a_plain_wheel(variant: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["slim", variant, "--for", "9.0", "-o", tmp_path / "out"])
    made = Path(found["output"])
    assert made.name == f"pkg-1.0+slim-{TAG}.whl"
    assert not [each for each in names(made) if each.endswith("variant.json")]
    assert wrong_members(made) == []
    assert "variant-dropped" in {each["rule"] for each in found["findings"]}
    assert {row.arch for library in api.inspect(made).libraries for row in library.device_code} == {"sm_90"}


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_verifying(
    variant: Path, tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if tool == "pip":
        monkeypatch.setattr(venvs, "uv", lambda: None)
    elif venvs.uv() is None:
        pytest.skip("uv is not installed here")
    (found,) = told(capsys, ["verify", variant, "--check", "import pkg"])["wheels"]
    assert found["file"] == variant.name
    assert [each["outcome"] for each in found["installations"]] == ["passed"]
    assert [each for each in found["findings"] if each["severity"] == "error"] == []


def test_packing(variant: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, ["verify", variant, "--pack", tmp_path / "kit.pyz"])
    assert [each for each in found["wheels"][0]["findings"] if each["severity"] == "error"] == []


def test_what_is_untrue_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = labelled(plain(tmp_path, "names-130.so"), says("x", "120_real"), "x")
    (found,) = told(capsys, ["verify", wheel, "--static"], 1)["wheels"]
    assert "variant-untrue" in {each["rule"] for each in found["findings"]}


@pytest.mark.skipif(compiled.compiler() is None, reason="needs a C compiler")
def test_a_repaired_variant_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = compiled.library(tmp_path / "build" / "libpkg.so", returns=1)
    made = labelled(packed(tmp_path, {"pkg/libpkg.so": place.read_bytes()}), says("x", "90_real"), "x")
    found = told(capsys, ["repair", made, "-o", tmp_path / "out"])
    (repaired,) = (tmp_path / "out").glob("*.whl")
    assert [each["outcome"] for each in found["wheels"]] == ["repaired"]
    assert repaired.name.endswith("-x.whl")
    assert "manylinux" in repaired.name
    assert any(each.endswith("variant.json") for each in names(repaired))
    assert wrong_members(repaired) == []
