"""What verbs print is run where it is printed: with its index, its machines and its environment."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel.cli import main
from tests.fixtures.printed import commands_in
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import environment_with_pip, wheel

if TYPE_CHECKING:
    from pathlib import Path

TAG = "py3-none-manylinux_2_28_x86_64"
HERE = ("--set", "os=linux,cpu=x86_64,glibc=2.36")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean_environment(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def _installs(capsys: pytest.CaptureFixture[str], env: Path, *words: str) -> None:
    """The command that `find` prints finds the same, in the environment that it is for."""
    status, found = _told(capsys, "find", "subject", "--env", str(env), *words)
    assert status == 0, found
    (command,) = commands_in(found)
    assert str(env) in command
    status, planned = _told(capsys, *command[1:], "--dry-run")
    assert status in (0, 15), planned
    assert [each["to"] for each in planned["changes"] if each["name"] == "subject"] == ["1.0"]


@pytest.mark.parametrize("way", ["--index", "--find-links"])
def test_find_in_a_folder_of_wheels(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=TAG)
    env = environment_with_pip(tmp_path / "env").parent.parent
    _installs(capsys, env, way, "dist", "--no-index", "--on", "h100", "--driver", "580", *HERE)


def test_find_in_an_index_on_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=TAG)
    env = environment_with_pip(tmp_path / "env").parent.parent
    with serving(Behaviour.of(made)) as url:
        _installs(capsys, env, "--index", f"{url}/simple", "--no-index", "--on", "h100", "--driver", "580", *HERE)


def test_install_that_is_refused_keeps_what_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = environment_with_pip(tmp_path / "env").parent.parent
    wheel(tmp_path / "dist", "other", "1.0")
    assert main(["install", "other", "--env", str(env), "--find-links", "dist", "--no-index"]) == 0
    wheel(tmp_path / "dist", "other", "2.0")
    wheel(tmp_path / "dist", "subject", "1.0", requires="other==2.0", library="plain-130.so", tag=TAG)
    words = ["--env", str(env), "--find-links", "dist", "--no-index", "--on", "h100", "--driver", "580", *HERE]
    status, refused = _told(capsys, "install", "subject", *words, "--dry-run")
    assert status == 1, refused
    (command,) = commands_in(refused)
    status, planned = _told(capsys, *command[1:])
    assert (status, planned["refused"]) == (0, []), planned
    assert {each["name"]: each["to"] for each in planned["changes"]} == {"subject": "1.0", "other": "2.0"}


@pytest.mark.parametrize("requires", ["", "other>=1.0"])
def test_what_was_published_is_installed(requires: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its requirements come from the index that pip is configured with."""
    wheel(tmp_path / "dist", "subject", "1.0", requires=requires)
    other = wheel(tmp_path / "elsewhere", "other", "1.0")
    env = environment_with_pip(tmp_path / "env").parent.parent
    status, published = _told(capsys, "publish", "dist", "--to", "my index")
    assert status == 0, published
    own, by_pip = [each["commands"][0] for each in published["uses"]]
    assert own[0] == "cuwheel"
    with serving(Behaviour.of(other)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", f"{url}/simple")
        status, planned = _told(capsys, *own[1:], "--env", str(env), "--dry-run")
        assert status in (0, 15), planned
        python = env / "bin" / "python"
        done = subprocess.run([python, "-m", *by_pip], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_mirror_takes_what_its_hint_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=TAG)
    (tmp_path / "requirements.txt").write_text("subject\n")
    words = ["publish", "-r", "requirements.txt", "--for", "h100", "--to", "mirror"]
    status, wrong = _told(capsys, *words, "--dry-run")
    assert (status, "--set python=3.12" in wrong["hint"]) == (2, True)
    given = [*HERE, "--set", "python=3.12", "--driver", "580"]
    with serving(Behaviour.of(made)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", f"{url}/simple")
        status, answer = _told(capsys, *words, *given, "--dry-run")
    assert status == 0, answer


@pytest.mark.skipif(sys.platform == "win32", reason="its cache is elsewhere")
def test_a_cache_is_emptied_by_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "kept"))
    wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=TAG)
    main(["find", "subject", "--find-links", "dist", "--no-index", "--on", "h100", *HERE])
    assert main(["cache", "--prune", "--most", "0"]) == 0
    _, kept = _told(capsys, "cache")
    assert [each["name"] for each in kept["kinds"] if each["removable"]] == []
