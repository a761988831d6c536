"""Installs from an index that `publish` wrote, on three simulated machines; and of packages that people use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.machine import profile
from cuwheel.machine.fleet import Refinement
from cuwheel.network import resolver, venvs
from cuwheel.support import process
from cuwheel_core.facts.gpus import find_gpu
from tests.integration.build_world import World, confined
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state, versions, wheel
from tests.integration.test_build_examples import CALLS, _torch_without_cuda, the_wheels
from tests.oracle import packages
from tests.unit.verdicts import machines

if TYPE_CHECKING:
    from pathlib import Path

LINUX = "py3-none-linux_x86_64"
RELEASES = {"3.0": "plain-130.so", "2.0": "plain-124.so", "1.0": "all-124.so"}


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


def _profile(path: Path, gpu: str, driver: str) -> Path:
    """As `doctor --save` writes it on a machine with this GPU and driver."""
    row = find_gpu(gpu)
    described = machines.Machine(
        name=gpu, expected=set(), gpus=((row.name, str(row.capability)),), driver=driver, nvml="ok", glibc="2.36"
    )
    profile.save(described.profile, path)
    return path


@pytest.mark.parametrize(
    ("gpu", "driver", "taken", "fallback"),
    [
        ("h100", "580.65.06", "3.0", None),
        ("h100", "550.54.14", "2.0", "older version"),  # a driver for CUDA 12
        ("gtx 1080 ti", "580.65.06", "2.0", "older version"),
        ("v100", "550.54.14", "1.0", "older version"),
    ],
)
def test_each_machine_gets_its_own(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, driver: str, taken: str, fallback: str | None
) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    for version, library in RELEASES.items():
        wheel(tmp_path / "dist", "subject", version, library=library, tag=LINUX)
    assert api.publish([tmp_path / "dist"], to=tmp_path / "index").succeeded
    before = state(env)
    known = Refinement(driver=driver)
    done = api.install("subject", env=env, indexes=[str(tmp_path / "index")], on=[gpu], refine=known)
    assert done.succeeded, done
    assert (done.packages[0].version, done.fallback) == (taken, fallback)
    assert {each.known_from for each in done.candidates} == {"facts file"}
    assert f"subject-{taken}" in versions(env)
    api.install_undo(env)
    assert state(env) == before


@pytest.mark.download
def test_bitsandbytes_of_a_team_whose_torch_is_newer_than_its_driver() -> None:
    """torch for CUDA 12.4, a driver for 12.2, an RTX 3090: nothing but the wheel's libraries is read."""
    known = Refinement(driver="535.54.03", torch="2.6.0", torch_cuda="12.4", os="linux", cpu="x86_64")
    told = api.find("bitsandbytes>=0.45,<0.50", on=["rtx 3090"], refine=known)
    chosen = next(each for each in told.candidates if each.chosen)
    assert "BNB_CUDA_VERSION=122" in chosen.advice, chosen
    newest = api.find("bitsandbytes>=0.50", on=["rtx 3090"], refine=known)
    assert newest.succeeded


@pytest.mark.download
def test_bitsandbytes_is_installed_beside_a_torch_and_imported(env: Path, tmp_path: Path) -> None:
    """The real wheel from an index that `publish` wrote, and the torch of the tests, which is for the CPU."""
    (package,) = (each for each in packages.published() if str(each) == "bitsandbytes-0.50.2-manylinux-x86_64")
    assert api.publish([packages.wheel(package)], to=tmp_path / "index").succeeded
    (torch,) = _torch_without_cuda().glob("*.whl")
    venvs.install(venvs.interpreter(env), [torch])
    before = versions(env)
    place = [str(tmp_path / "index"), resolver.public_index()]
    done = api.install("bitsandbytes", env=env, on=["rtx 3090"], refine=Refinement(driver="550.54.14"), indexes=place)
    assert done.succeeded, done
    assert [each.outcome for each in done.checks if each.name == "import bitsandbytes"] == ["passed"]
    assert {each for each in before if each.startswith("torch-")} <= versions(env)
    assert api.install_undo(env).succeeded
    assert versions(env) == before


@pytest.mark.slow
def test_an_example_for_each_of_three_machines(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Built by `build` for two GPUs, published, and installed on machines that profiles describe."""
    here = World(folder=tmp_path)
    here.with_toolkits("13.0", "13.4")
    source, made = here.project("scikit_kernel"), []
    for cuda, gpu in (("13.0", "a100"), ("13.4", "h100")):
        told = here.build(source, "--cuda", cuda, "--for", gpu, before=confined())
        assert told.status == 0, told.all
        made += the_wheels(told.document)
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    assert api.publish(made, to=tmp_path / "index").channels == ("cu130", "cu134")
    before = state(env)
    for gpu, driver, taken, outcome in (
        ("a100", "580.65.06", "1.0+cu130", "native"),
        ("h100", "616.01", "1.0+cu134", "native"),
        ("rtx 3090", "580.65.06", "1.0+cu130", "compatible"),
        ("v100", "580.65.06", None, "unknown"),
    ):
        profile = _profile(tmp_path / f"{gpu}.json", gpu, driver)
        place = [
            "--index",
            str(tmp_path / "index"),
            "--env",
            str(env),
            "--on",
            str(profile),
            "--fallback",
            "older,cpu",
            "--json",
        ]
        status = main(["install", "scikit-kernel", *place])
        (package,) = json.loads(capsys.readouterr().out)["packages"]
        assert (package["version"], package["outcome"], status) == (taken, outcome, 0 if taken else 1), package
        if taken:
            ran = process.run([venvs.interpreter(env), "-c", CALLS["scikit_kernel"]], timeout=600, check=False)
            assert ran.stdout.startswith("1"), ran.stderr
            assert main(["install", "--undo", "--env", str(env), "--quiet"]) == 0
            capsys.readouterr()
        assert state(env) == before


@pytest.mark.download
def test_cupy_is_installed_and_imported(env: Path) -> None:
    done = api.install("cupy-cuda12x", env=env, on=["rtx 3090"], refine=Refinement(driver="550.54.14"))
    assert done.succeeded, done.problem
    assert [each.outcome for each in done.checks if each.name == "import cupy"] == ["passed"]
    assert api.install_undo(env).succeeded
