"""Traps that `ci --check` warns of, each in a workflow that somebody wrote, and the same without it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.delivery.request import CiRequest

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.delivery.request import Service

pytestmark = pytest.mark.unit
_SHA = "a" * 40
_SOUND = f"""\
on: push
jobs:
  a:
    runs-on: [self-hosted, gpu]
    container: nvidia/cuda:13.0.1-devel
    env:
      CUDA_VERSION: "13.0"
      TORCH_CUDA_ARCH_LIST: "8.0;9.0+PTX"
    steps:
      - uses: actions/checkout@{_SHA}
      - run: auditwheel repair --exclude libcuda.so.1 dist/*.whl
"""


def _found(folder: Path, text: str, service: Service = "github", name: str = "other.yml") -> dict[str, tuple[str, ...]]:
    (folder / "cuwheel.toml").write_text('for = ["h100"]\ncuda = ["13.0"]\n')
    (folder / "kernel.cu").touch()
    (folder / name).write_text(text)
    findings = api.ci_check(CiRequest(service, source=folder, file=folder / name)).findings
    assert all(each.fix for each in findings)
    assert not [each for each in findings if "cuwheel ci " in each.fix and f"cuwheel ci {service}" not in each.fix]
    return {each.rule: each.evidence for each in findings if each.rule != "ci-differs"}


def test_a_sound_one_has_none(tmp_path: Path) -> None:
    assert _found(tmp_path, _SOUND) == {}


@pytest.mark.parametrize(
    ("sound", "trap", "rule", "evidence"),
    [
        (f"@{_SHA}", "@v4", "ci-action-unpinned", ("actions/checkout@v4",)),
        (f"@{_SHA}", "@main", "ci-action-unpinned", ("actions/checkout@main",)),
        ("nvidia/cuda:13.0.1-devel", "nvidia/cuda", "ci-image-unpinned", ("nvidia/cuda",)),
        ("nvidia/cuda:13.0.1-devel", "nvidia/cuda:latest", "ci-image-unpinned", ("nvidia/cuda:latest",)),
        ("nvidia/cuda:13.0.1-devel", "{image: 'host:5000/cuda'}", "ci-image-unpinned", ("host:5000/cuda",)),
        ("CUDA_VERSION: ", "CIBW_MANYLINUX_X86_64_IMAGE: quay.io/x/y:latest\n      CUDA_VERSION: ",
         "ci-image-unpinned", ("quay.io/x/y:latest",)),
        ("8.0;", "6.0;", "ci-arch", ("TORCH_CUDA_ARCH_LIST: CUDA 13.0 cannot compile sm_60",)),
        ('"13.0"', '"12.4"\n      CUDAARCHS: 90;100a', "ci-arch", ("CUDAARCHS: CUDA 12.4 cannot compile sm_100",)),
        ("auditwheel", "nvcc -gencode arch=compute_70,code=sm_70 a.cu; auditwheel", "ci-arch",
         ("-gencode: CUDA 13.0 cannot compile sm_70",)),
        ("--exclude libcuda.so.1 ", "", "ci-auditwheel", ("auditwheel repair dist/*.whl",)),
        ("[self-hosted, gpu]", "ubuntu-latest", "ci-no-gpu", ()),
        ("[self-hosted, gpu]", "ubuntu-latest4", "ci-no-gpu", ()),
        ("dist/*.whl", "${{ github.head_ref }}", "ci-injection", ()),
        ("dist/*.whl", "'${{ matrix.nothing }}'", "ci-reference", ()),
    ],
)  # fmt: skip
def test_each_is_found(sound: str, trap: str, rule: str, evidence: tuple[str, ...], tmp_path: Path) -> None:
    assert sound in _SOUND
    found = _found(tmp_path, _SOUND.replace(sound, trap))
    assert rule in found
    assert found.keys() - {"ci-injection", "ci-reference"} == {rule} - {"ci-injection", "ci-reference"}
    if evidence:
        assert found[rule] == evidence


def test_every_cuda_version_of_a_matrix_counts(tmp_path: Path) -> None:
    matrix = 'strategy: {matrix: {cuda: ["12.8.1", "13.0.2"]}}\n    env:'
    text = _SOUND.replace("env:", matrix).replace('      CUDA_VERSION: "13.0"\n', "").replace("8.0;", "6.0;")
    assert _found(tmp_path, text)["ci-arch"] == ("TORCH_CUDA_ARCH_LIST: CUDA 13.0 cannot compile sm_60",)


@pytest.mark.parametrize(
    ("sound", "same"),
    [
        ("[self-hosted, gpu]", "gpu-t4-4-core"),
        ("[self-hosted, gpu]", "{group: h100-runners}"),
        ("runs-on: [self-hosted, gpu]", "runs-on: ${{ matrix.r }}\n    strategy: {matrix: {r: [ubuntu-24.04, gpu]}}"),
        ("--exclude libcuda.so.1 dist/*.whl", "|\n          a\n"),
        (
            "run: auditwheel repair --exclude libcuda.so.1",
            "run: |\n          auditwheel repair \\\n            --exclude a",
        ),
        ("nvidia/cuda:13.0.1-devel", f"nvidia/cuda@sha256:{'0' * 64}"),
        (f"actions/checkout@{_SHA}", "./.github/actions/own"),
        ("on: push\n", "# auditwheel repair dist/*.whl, image: nvidia/cuda\non: push\n"),
    ],
)
def test_what_is_no_trap(sound: str, same: str, tmp_path: Path) -> None:
    assert sound in _SOUND
    text = _SOUND.replace(sound, same)
    if same.startswith("|"):
        text = _SOUND.replace("run: auditwheel repair --exclude libcuda.so.1 dist/*.whl", f"run: {same}")
    assert _found(tmp_path, text) == {}


def test_traps_of_a_pipeline_and_of_tables(tmp_path: Path) -> None:
    pipeline = "build:\n  image: nvidia/cuda\n  script: [auditwheel repair x.whl]\n"
    assert _found(tmp_path, pipeline, "gitlab").keys() == {"ci-image-unpinned", "ci-auditwheel", "ci-no-gpu"}
    assert _found(tmp_path, pipeline.replace("image: nvidia/cuda", "tags: [cuda]"), "gitlab").keys() == {
        "ci-auditwheel"
    }
    tables = (
        '[tool.cibuildwheel.linux]\nmanylinux-x86_64-image = "quay.io/x/cuda13_1:latest"\n'
        'repair-wheel-command = "auditwheel repair -w {dest_dir} {wheel}"\n'
        'environment = {CUDA_VERSION = "13.0", CUDAARCHS = "60;90"}\n'
    )
    found = _found(tmp_path, tables, "cibuildwheel", "other.toml")
    assert found == {
        "ci-image-unpinned": ("quay.io/x/cuda13_1:latest",),
        "ci-arch": ("CUDAARCHS: CUDA 13.0 cannot compile sm_60",),
        "ci-auditwheel": ("auditwheel repair -w {dest_dir} {wheel}",),
    }


@pytest.mark.parametrize("missing", ["ruamel.yaml", "ruamel"])
@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_without_its_extra_the_check_names_it(
    service: Service,
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether the module is not there, or not even the package that it is a part of."""
    (tmp_path / "pyproject.toml").write_text('[tool.cuwheel]\nfor = ["h100"]\ncuda = ["13.0"]\n')
    (tmp_path / "own.yml").write_text(_SOUND)
    monkeypatch.chdir(tmp_path)
    for name in [each for each in sys.modules if each.startswith("ruamel")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["ci", service, "--check", "--file", "own.yml"]) == 14
    assert "pip install 'cuwheel[ci]'" in capsys.readouterr().err
