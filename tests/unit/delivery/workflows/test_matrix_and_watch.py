"""The matrix of a plan, and whether upstream has something new."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel import api
from cuwheel.cli import main
from cuwheel_core.errors import CuwheelError
from tests.unit.delivery.published import wheel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit
_JOBS = [
    {"id": "cu130-cp311", "cuda": "13.0", "python": "3.11", "outcome": "planned"},
    {"id": "cu134-cp311", "cuda": "13.4", "python": "3.11", "outcome": "planned"},
]


def _plan(folder: Path, **changed: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({"schema": "cuwheel.build/1", "jobs": _JOBS, "findings": [], **changed}))
    return path


def test_a_job_for_each_cuda_python_and_processor(tmp_path: Path) -> None:
    rows = api.ci_matrix(_plan(tmp_path, findings=[{"rule": "naming-chosen"}]), cpus=["x86_64", "aarch64"]).rows
    assert [each.name for each in rows] == [
        "cu130-cp311-x86_64", "cu130-cp311-aarch64", "cu134-cp311-x86_64", "cu134-cp311-aarch64"
    ]  # fmt: skip
    assert {each.naming for each in rows} == {"local"}
    assert rows[1].runner != rows[0].runner
    assert api.ci_matrix(_plan(tmp_path)).rows[0].naming == ""


def test_stdout_is_the_outputs_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ci", "matrix", str(_plan(tmp_path)), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {name: json.loads(value)["include"] for name, _, value in (each.partition("=") for each in lines)}
    assert [each["cuda"] for each in rows["matrix"]] == ["13.0", "13.4"]
    assert rows["kits"] == rows["matrix"]


def test_jobs_for_windows_and_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The image of each job is filled in; Windows has none; only kits of the first processor go to the GPU."""
    image = "registry.example/{cpu}_cuda{cuda}:2026.06.30"
    words = ["--cpu", "aarch64,x86_64,windows", "--image", image, "--quiet"]
    assert main(["ci", "matrix", str(_plan(tmp_path, jobs=_JOBS[:1])), *words]) == 0
    rows = {
        name: [(each["name"], each["image"]) for each in json.loads(value)["include"]]
        for name, _, value in (each.partition("=") for each in capsys.readouterr().out.splitlines())
    }
    arm = ("cu130-cp311-aarch64", "registry.example/aarch64_cuda13_0:2026.06.30")
    intel = ("cu130-cp311-x86_64", "registry.example/x86_64_cuda13_0:2026.06.30")
    assert rows == {"matrix": [arm, intel, ("cu130-cp311-windows", "")], "kits": [arm]}
    assert "windows" in api.ci_matrix(_plan(tmp_path), windows=True).rows[-1].runner


@pytest.mark.parametrize(
    "changed",
    [
        {"jobs": []}, {"schema": "cuwheel.build/9"}, {"jobs": 3}, {"jobs": [{**_JOBS[0], "id": 3}]},
        {"jobs": [{**_JOBS[0], "outcome": "failed", "reason": "no provider has it"}]}, {"jobs": _JOBS * 200},
    ],
)  # fmt: skip
def test_what_is_no_plan(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CuwheelError):
        api.ci_matrix(_plan(tmp_path, **changed))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for number in ("1.0", "1.2", "2.0rc1"):
        wheel(tmp_path / "dist", number)
    cuwheel.publish(tmp_path / "dist", to=tmp_path / "upstream")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "upstream" / "simple").as_uri())
    return tmp_path / "upstream"


@pytest.mark.parametrize(("built", "new"), [("1.0", True), ("1.2", False), ("1.3", False)])
def test_a_release_that_was_not_built_is_new(built: str, new: bool, index: Path) -> None:  # noqa: ARG001, FBT001
    found = api.ci_watch("foo", built=built).upstream
    assert found is not None
    assert (found.newest.version, found.new) == ("1.2", new)  # a preview is nobody's to rebuild for
    other = api.ci_watch("foo", built="0.1").upstream
    assert other is not None
    assert other.fingerprint == found.fingerprint


def test_what_was_built_is_read_from_an_index(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "simple").mkdir()
    found = api.ci_watch("foo", built=str(own)).upstream
    assert found is not None
    assert found.new  # nothing was built yet
    cuwheel.publish(wheel(tmp_path / "built", "1.2+cu130"), to=tmp_path / "published")
    assert main(["ci", "watch", "foo", "--built", str(tmp_path / "published")]) == 0
    told = capsys.readouterr()
    assert "nothing new" in told.err
    assert "new=false\nversion=1.2\nref=1.2\n" in told.out
    assert index.exists()
