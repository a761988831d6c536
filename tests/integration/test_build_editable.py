"""`build --editable`: a project in a person's environment, compiled by the toolchain of a build, and taken back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.network import venvs
from cuwheel.support import process
from tests.integration import build_world as world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.command import Told
    from tests.integration.build_world import World


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world.World(folder=tmp_path).with_toolkits("13.0")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    process.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], timeout=120)
    return tmp_path / "venv"


def editable(here: World, source: Path, env: Path, *words: str) -> Told:
    return here.build(source, "--editable", "--env", env, "--for", "h100", *words)


def answered(env: Path, program: str) -> str:
    return process.run([venvs.interpreter(env), "-I", "-c", program], timeout=60).stdout.strip()


def test_a_change_of_the_source_is_seen_and_undo_takes_it_back(here: World, env: Path) -> None:
    source = here.project("setuptools_nvcc")
    before = sorted(path.name for path in env.rglob("*.dist-info"))
    foreseen = editable(here, source, env, "--dry-run")
    assert foreseen.status == 0, foreseen.all
    assert "CUDA_HOME=" in foreseen.document["editable"]["commands"][-1]
    assert "--editable" in foreseen.document["editable"]["commands"][-1]
    assert sorted(path.name for path in env.rglob("*.dist-info")) == before
    told = editable(here, source, env)
    assert told.status == 0, told.all
    assert told.document["editable"]["archs"] == ["sm_90"]
    assert [each["outcome"] for each in told.document["checks"]] == ["passed"]
    package = source / "src" / "setuptools_nvcc"
    assert list(package.glob("_kernel*.so"))
    with (package / "__init__.py").open("a") as file:
        file.write("\nNEW = 42\n")
    assert answered(env, "import setuptools_nvcc; print(setuptools_nvcc.NEW)") == "42"
    undone = here.cuwheel("install", "--undo", "--env", env, "--json")
    assert undone.status == 0, undone.all
    assert sorted(path.name for path in env.rglob("*.dist-info")) == before


def test_where_it_does_not_compile_the_environment_is_as_it_was(here: World, env: Path) -> None:
    source = here.project("setuptools_nvcc")
    (source / "src" / "setuptools_nvcc" / "dot.cu").write_text('#include "lost_header.cuh"\n')
    before = sorted(str(path) for path in (env / "lib").rglob("*"))
    told = editable(here, source, env)
    assert told.status == 1, told.all
    assert told.document["rolled_back"]
    assert "lost_header" in str(told.document["causes"][0]["evidence"])
    assert sorted(str(path) for path in (env / "lib").rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build", "x==1.0", "--editable"), "is for a folder"),
        (("build", ".", "--env", "."), "--env is for --editable"),
        (("build", ".", "--editable", "--lock"), "makes none"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    told = world.World(folder=tmp_path).cuwheel(*words)
    assert told.status == 2, told.all
    assert said in told.all


@pytest.mark.slow
@pytest.mark.parametrize("found_by", ["resources", "file"])
def test_a_library_that_is_loaded_by_its_path(here: World, env: Path, found_by: str) -> None:
    """scikit-build-core puts it into the environment, where nothing that looks beside the source finds it."""
    source = here.project("scikit_kernel")
    start = source / "src" / "scikit_kernel" / "__init__.py"
    if found_by == "file":
        text = start.read_text()
        by_file = text.replace("importlib.resources.files(__name__) /", "__file__.replace('__init__.py', '') +")
        assert by_file != text
        start.write_text(by_file)
    told = editable(here, source, env)
    assert told.status == 0, told.all
    warnings = [each["message"] for each in told.document["findings"] if each["rule"] == "libraries-apart"]
    assert len(warnings) == (found_by == "file")
    assert all(each.startswith("scikit_kernel/libscikit_kernel.so: ") for each in warnings)
    program = (
        "import scikit_kernel\ntry: print(scikit_kernel.library().scikit_kernel_version())\nexcept OSError: print('no')"
    )
    assert answered(env, program) == ("1" if found_by == "resources" else "no")
