"""The variables that activating an environment sets, and machines that run in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cuwheel.machine import fleet, python_environment, system
from cuwheel.machine.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel.machine.profile import Variable

pytestmark = pytest.mark.unit


def _environment(folder: Path, torch_cuda: str = "12.6") -> Path:
    packages = folder / "lib" / "python3.11" / "site-packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "version.py").write_text(f"__version__ = '2.7.0+cu126'\ncuda = '{torch_cuda}'\n")
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text("version = 3.11.9\n")
    return folder


def _world(cwd: Path, **environ: str) -> World:
    return World(environ=environ, cwd=cwd)


def _activated(cwd: Path, env: Path) -> tuple[Variable, ...]:
    return python_environment.activation_variables(_world(cwd), env, system.VARIABLE_NAMES)


def test_what_was_written_into_activate(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    (env / "bin" / "activate").write_text('export PATH="$PATH"\nexport BNB_CUDA_VERSION="118"\n')
    found = {
        each.name: each.value
        for each in python_environment.activation_variables(_world(tmp_path), env, system.VARIABLE_NAMES)
    }
    assert found == {"BNB_CUDA_VERSION": "118"}


def test_what_conda_keeps(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    scripts = env / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    (scripts / "cuda.sh").write_text("export CUDA_HOME=/opt/cuda\nexport BNB_CUDA_VERSION=121 # old\n")
    (env / "conda-meta").mkdir()
    (env / "conda-meta" / "state").write_text('{"env_vars": {"BNB_CUDA_VERSION": "126", "OTHER": "1", "MAX_JOBS": 2}}')
    found = {
        each.name: each.value
        for each in python_environment.activation_variables(_world(tmp_path), env, system.VARIABLE_NAMES)
    }
    assert found == {"CUDA_HOME": "/opt/cuda", "BNB_CUDA_VERSION": "126"}


@pytest.mark.parametrize("state", ["", "[]", "{", '{"env_vars": []}', '{"env_vars": {"CC": 1}}'])
def test_what_is_no_state(tmp_path: Path, state: str) -> None:
    env = _environment(tmp_path)
    (env / "conda-meta").mkdir()
    (env / "conda-meta" / "state").write_text(state)
    assert _activated(tmp_path, env) == ()


def test_the_environments_own_win_over_the_process(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    (env / "bin" / "activate").write_text("export BNB_CUDA_VERSION=118\n")
    world = _world(tmp_path, BNB_CUDA_VERSION="126", MAX_JOBS="3")
    found = {each.name: each.value for each in system.probe_variables(world, env)}
    assert found == {"BNB_CUDA_VERSION": "118", "MAX_JOBS": "3"}


def test_another_machine_runs_what_is_in_the_environment(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    (env / "bin" / "activate").write_text("export BNB_CUDA_VERSION=118\n")
    found = fleet.with_environment(fleet.from_gpu("a100"), *python_environment.probe_environment(env, _world(tmp_path)))
    assert (found.torch, found.torch_cuda, found.python) == ("2.7.0+cu126", "12.6", "3.11.9")
    assert found.loads == ("BNB_CUDA_VERSION=118",)


def test_what_is_said_of_the_machine_wins(tmp_path: Path) -> None:
    said = fleet.Refinement(torch_cuda="12.8").apply(fleet.from_gpu("a100"))
    found = fleet.with_environment(
        said, *python_environment.probe_environment(_environment(tmp_path), _world(tmp_path))
    )
    assert found.torch_cuda == "12.8"
