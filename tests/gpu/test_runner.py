"""The runner, with a driver that is none: crashes and hangs are results."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cuwheel.support import process
from tests.gpu import observations, runner
from tests.gpu.predictions import Kernel, Prediction

HERE = Path(__file__).parent
IMAGES = {"good": b"G", "crash": b"C", "error": b"E"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc to compile the driver that is none")
    folder = tmp_path_factory.mktemp("set")
    process.run(
        ["gcc", "-shared", "-fPIC", HERE / "fake_driver.c", "-o", folder / "libcuda.so.1"],
        timeout=60,
    )
    for name, image in IMAGES.items():
        (folder / name).write_bytes(image)
    with tarfile.open(folder / "files.tar.xz", "w:xz") as archive:
        for name in IMAGES:
            archive.add(folder / name, name)
    rows = [
        {"id": name, "axis": "", "form": "cubin", "file": name, "launches": ["mark"], "cudart": "", "jit": "allowed"}
        for name in IMAGES
    ]
    (folder / "manifest.json").write_text(json.dumps({"set": "fake", "variants": rows}))
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    out = folder / "results.json"
    process.run([sys.executable, runner.__file__, "--set", folder, "--out", out, "--jobs", "2"], timeout=120, env=env)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_the_machine_is_described(results: dict[str, Any]) -> None:
    assert (results["gpu"], results["capability"], results["driver_cuda"]) == ("F", "9.0", "13.0")
    assert len(results["runs"]) == results["planned"] == len(IMAGES) * len(runner.LOADINGS)


def test_every_way_has_its_result(results: dict[str, Any]) -> None:
    runs = {(run.id, run.way): run for run in observations.read(results, {name: ["mark"] for name in IMAGES})}
    assert runs["good", "module"].kernels["mark"] == observations.Seen(marker=7)
    assert runs["good", "library"].outcome == "runs"
    failed = runs["error", "module"].kernels["mark"]
    assert (failed.error, failed.step, failed.name) == (209, "cuModuleLoadData", "CUDA_ERROR_FAKE")
    assert runs["error", "library"].outcome == "runs"
    assert runs["crash", "module"].errors == (observations.CRASHED,)


def test_differences_are_told_apart(results: dict[str, Any]) -> None:
    runs = {(run.id, run.way): run for run in observations.read(results, {name: ["mark"] for name in IMAGES})}

    def told(name: str, outcome: str, error: int | None, marker: int | None) -> list[str]:
        said = Prediction(outcome=outcome, error=error, kernels={"mark": Kernel(marker=marker, error=error)})
        return [each.what for each in observations.differences(said, runs[name, "module"], {"7": "whole sm_90"})]

    assert told("good", "native", None, 7) == []
    assert told("good", "native", None, 8) == ["entry"]
    assert told("good", "fails", 209, None) == ["outcome", "error"]
    assert told("error", "fails", 209, None) == []
    assert told("error", "fails", 222, None) == ["error", "error"]
    assert told("crash", "jit", None, 7) == ["outcome", "error"]
