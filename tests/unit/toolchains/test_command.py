"""The verb on the command line, over a store with one toolkit in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest
from msgspec.structs import replace

from cuwheel.cli import main
from cuwheel.report.answer import SCHEMAS
from cuwheel.toolchains import toolchain
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import HostCompiler, Installed, Setting
from tests.fixtures import systems
from tests.unit.toolchains.test_store import RECIPE, fill

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = HostCompiler(kind="gcc", version="12.2.0", path="/opt/my gcc/g++", found_via="PATH: g++")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ("a-folder-with-quite-a-long-name-" * 2) / "it's here"
    monkeypatch.setenv("CUWHEEL_CACHE", str(folder))
    monkeypatch.setattr(toolchain, "choose_host_compiler", lambda *_: COMPILER)
    components = ("nvcc", "cudart", "cccl", "nvvm")

    def whole(scratch: Path, final: Path) -> Installed:
        return replace(fill(scratch, final), components=components)

    Store(folder).make(RECIPE, whole)
    return folder


@pytest.mark.usefixtures("cache")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", "list"]) == 0
    shown = capsys.readouterr().out
    assert "13.0.2" in shown
    assert "index" in shown
    main(["toolchain", "list", "--json"])
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((SCHEMAS / "toolchain-1.json").read_text()))
    assert answer["toolkits"][0]["version"] == "13.0.88"


@systems.LINUX_PATHS
def test_env_is_one_line_a_variable_however_long(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", "env", "13.0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("export ") for line in lines)
    names = [line.split("=")[0].removeprefix("export ") for line in lines]
    assert names == ["CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDACXX", "PATH", "NVCC_CCBIN", "CUDAHOSTCXX"]
    assert '"/opt/my gcc/g++"' in lines[5]
    assert "/it's here/" in lines[0]
    assert len(lines[0]) > len(str(cache)) > 80


def test_removing_downloads_leaves_the_toolkits(cache: Path) -> None:
    archive = cache / "downloads" / "0123" / "nvcc.whl"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"x")
    before = list((cache / "toolchains").iterdir())
    assert main(["toolchain", "remove", "downloads"]) == 0
    assert list((cache / "toolchains").iterdir()) == before != []
    assert not archive.exists()
    assert main(["toolchain", "remove", "all"]) == 0
    assert list((cache / "toolchains").iterdir()) == []


def test_installed_before_and_removed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", "install", "13.0", "--provider", "index"]) == 0
    shown = capsys.readouterr().out
    assert "is ready" in shown
    assert main(["toolchain", "install", "13.0", "--provider", "index", "--dry-run"]) == 0
    assert main(["toolchain", "remove", "13.0"]) == 0
    assert "was removed" in capsys.readouterr().out
    assert list((cache / "toolchains").iterdir()) == []
    assert main(["toolchain", "remove", "13.0"]) == 0
    assert capsys.readouterr().out.startswith("There was nothing to remove")
    main(["toolchain", "list"])
    assert "cuwheel toolchain install 13.0" in capsys.readouterr().out


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["instal", "13.0"], 2, "'instal' is not one of", "did you mean 'cuwheel toolchain install'?"),
        (["install"], 2, "required: VERSION", "cuwheel toolchain install --help"),
        (["list", "13.0", "--offline"], 2, "--offline cannot be used with list", "it is for install and fetch"),
        (["fetch", "13.0"], 2, "fetch needs --to FOLDER", ""),
        (["remove"], 2, "required: VERSION", ""),
        (["remove", "13.0", "--all"], 2, "unknown option --all", ""),
        (["env", "13.0", "--locked", "x"], 2, "--locked cannot be used with env", ""),
        (["fetch", "13.0", "--locked", ".", "--to", "kit"], 2, "fetch takes a lock file, not a folder", ""),
        (["install", "13.0", "--with", "cubals"], 2, "no component named 'cubals'", ""),
        (["install", "19.1"], 3, "no CUDA toolkit named '19.1'", "the nearest is 13.4"),
        (["env", "12.4"], 11, "CUDA 12.4 is not installed", "cuwheel toolchain install 12.4"),
        (["install", "12.4", "--provider", "index"], 11, "no nvcc before 13.0", "cuwheel toolchain install --help"),
        (["install", "13.0", "--locked", "nowhere.lock"], 2, "nowhere.lock", "hint: "),
        (["fetch", "13.0", "--to", "x", "--provider", "conda"], 11, "cannot be fetched", "--provider index"),
    ],
)
@pytest.mark.usefixtures("in_own_folder")
def test_mistakes(words: list[str], code: int, message: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchain", *words]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert hint in told.err


@systems.LINUX_PATHS
def test_settings_are_applied() -> None:
    chosen = (Setting(name="A", value="1"), Setting(name="PATH", value="/t/bin", how="prepend"))
    assert toolchain.apply_settings(chosen, {"PATH": "/bin", "A": "0"}) == {"PATH": "/t/bin:/bin", "A": "1"}
    assert toolchain.apply_settings(chosen, {}) == {"PATH": "/t/bin", "A": "1"}
    assert toolchain.shell_lines(chosen) == ('export A="1"', 'export PATH="/t/bin:$PATH"')


def test_of_several_the_one_without_what_was_not_asked_for(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = replace(RECIPE, components=("nvcc", "cudart", "cccl", "nvvm", "cublas"))

    def larger(scratch: Path, final: Path) -> Installed:
        return replace(fill(scratch, final), identity=more.identity, components=more.components)

    Store(cache).make(more, larger)
    for parts, count in (([], 4), (["--with", "cublas"], 5)):
        assert main(["toolchain", "install", "13.0", "--provider", "index", "--json", *parts]) == 0
        assert len(json.loads(capsys.readouterr().out)["toolkits"][0]["components"]) == count
