from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.machine import probe
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from tests.unit.changes.slim.packages import BIN, FOO, PER_CUDA, contents, make_environment, make_wheel, snapshot
from tests.unit.verdicts.machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path

HEALTHY = next(machine for machine in MACHINES if machine.name == "a healthy H200").profile


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "in", FOO)


def valid(answer: Any) -> None:
    schema = json.loads((SCHEMAS / "slim-1.json").read_text())
    jsonschema.validate(json.loads(to_json(answer)), schema)


def test_a_wheel(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slim", str(wheel), "--for", "h100,l40", "-o", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "foo 1.0+cu130 for h100 (9.0), l40 (8.9): " in told.out
    assert "libfoo.so" in told.out
    assert "    RUN --mount=" in told.out
    path = str(tmp_path / "out" / "foo-1.0+cu130.slim-py3-none-any.whl")
    (written,) = (line for line in told.out.splitlines() if line.endswith(path))
    assert written in (path, f"written: {path}")  # whole, however long: it is copied into the next command
    assert max(len(line) for line in told.out.splitlines() if line != written) <= 80


def test_json(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slim", str(wheel), "--for", "9.0", "-o", str(tmp_path / "out"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "cuwheel.slim/1"
    assert answer["targets"] == ["9.0"]
    assert answer["total"]["bytes_before"] == sum(each["bytes_before"] for each in answer["files"])
    assert answer["total"]["bytes_after"] == sum(each["bytes_after"] for each in answer["files"])
    (foo,) = (each for each in answer["files"] if each["path"] == "foo/libfoo.so")
    assert {each["arch"] for each in foo["dropped"]} == {"sm_70", "sm_90", "compute_90a"}
    assert (answer["output"], answer["written"]) == (
        str(tmp_path / "out" / "foo-1.0+cu130.slim-py3-none-any.whl"),
        True,
    )
    assert answer["wheel"]["bytes_after"] < answer["wheel"]["bytes_before"]


def test_answers_are_valid_by_their_schema(wheel: Path, tmp_path: Path) -> None:
    make_environment(tmp_path / "env")
    valid(api.slim(wheel, machines=["h100"], output=tmp_path / "out"))
    valid(api.slim(wheel, machines=["h100"], output=tmp_path / "out", dry_run=True))
    valid(api.slim(wheel, machines=["all"], output=tmp_path / "all", recompress=True))
    valid(api.slim(BIN / "windows-130.dll", machines=["h100"], output=tmp_path / "dll"))
    valid(api.slim(env=tmp_path / "env", machines=["h100"], cuda="cu128"))
    valid(api.slim_undo(tmp_path / "env"))


def test_an_environment_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "env"
    make_environment(env)
    before = snapshot(env)
    assert main(["slim", "--env", str(env), "--for", "h100"]) == 0
    shown = capsys.readouterr().out
    assert f"cuwheelslim--undo--env{env}" in "".join(shown.split())
    assert ("in the layer of an image that installs packages" in shown) == (os.name == "posix")  # images are of Linux
    assert "libfoo.so" in shown
    assert main(["slim", "--undo", "--env", str(env), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["action"] == "undo"
    assert snapshot(env) == before
    main(["slim", "--env", str(env), "--for", "h100"])
    capsys.readouterr()
    assert main(["slim", "--commit", "--env", str(env)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{env}: the originals of".replace(" ", "") in shown.replace(" ", "")
    assert "were deleted" in shown
    assert not (env / ".cuwheel").exists()


def test_this_machine(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda _env, **_: HEALTHY)
    made = api.slim(wheel, machines=["this"], output=tmp_path / "out", dry_run=True)
    assert made.targets == ("this machine (9.0)",)


def test_a_machine_without_a_gpu(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from msgspec.structs import replace

    monkeypatch.setattr(probe, "probe", lambda _env, **_: replace(HEALTHY, gpus=()))
    assert main(["slim", str(wheel), "--for", "this"]) == 2
    assert "the GPUs of this machine are not known" in capsys.readouterr().err


def test_a_dry_run_says_so(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(tmp_path)
    assert main(["slim", str(wheel), "--for", "h100", "-o", str(tmp_path), "--dry-run"]) == 0
    assert "nothing was written, the new sizes are estimates" in capsys.readouterr().out
    assert contents(tmp_path) == before


def test_recompressed_for_all(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"foo/libfoo.so": (BIN / "names-124.so").read_bytes()})
    made = api.slim(wheel, machines=["all"], recompress=True, output=tmp_path / "out", dry_run=True)
    assert made.targets == ("all",)
    assert made.files[0].dropped == ()


def test_one_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = make_wheel(tmp_path, PER_CUDA, "bitsandbytes", "0.50.2")
    assert main(["slim", str(wheel), "--for", "h100", "--cuda", "12.8", "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("all of it") == 2


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["WHEEL"], 2, "no GPUs to keep were given", "--for h100,l40"),
        ([], 2, "no GPUs to keep were given", "--for"),
        (["--for", "h100"], 2, "nothing to slim was given", "--env FOLDER"),
        (["WHEEL", "--for", "h1000"], 2, "no GPU named 'h1000'", "did you mean"),
        (["WHEEL", "--for", "all"], 2, "keeps every architecture", "--recompress"),
        (["WHEEL", "--for", "all,h100", "--recompress"], 2, "keeps every architecture", "alone"),
        (["WHEEL", "--for", "all", "--recompress", "--compile"], 2, "--compile needs the GPUs", "--for h100 --compile"),
        (["WHEEL", "WHEEL", "--for", "h100"], 2, "one wheel or one folder at a time", "once for each"),
        (["WHEEL", "--for", "h100", "--cuda", "99.1"], 2, "no CUDA toolkit named '99.1'", ""),
        (["WHEEL", "--for", "h100", "--version", "new one"], 2, "--version: 'new one' is not a version", ""),
        (["WHEEL", "--for", "h100", "--commit"], 2, "--commit is for environments", ""),
        (["LIBRARY", "--for", "h100"], 2, "not changed in place", "-o FOLDER"),
        (["FOLDER", "--env", "ENV", "--undo"], 2, "give one environment or folder", "--undo --env"),
        (["--env", "ENV", "--undo", "--for", "h100"], 2, "--undo cannot be used with --commit, --for or --used", ""),
        (["--env", "ENV", "--undo"], 4, "no journal found", "committed or undone"),
        (["--env", "FOLDER", "--for", "h100"], 2, "not a Python environment", ""),
        (["--env", "ENV", "-o", "x", "--for", "h100"], 2, "--output is for", ""),
        (["nowhere.whl", "--for", "h100"], 4, "no such file or folder", ""),
        (["torch", "--for", "h100"], 4, "no such file or folder", "--env FOLDER"),
        (["TEXT", "--for", "h100", "-o", "OUT"], 5, "", ""),
        (["NOT_A_WHEEL", "--for", "h100"], 5, "not a zip file", "download or build it again"),
    ],
)
def test_bad_input(
    words: list[str],
    code: int,
    message: str,
    hint: str,
    tmp_path: Path,
    wheel: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "env/lib/python3.12/site-packages").mkdir(parents=True)
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "bad-1.0-py3-none-any.whl").write_text("no wheel")
    monkeypatch.chdir(tmp_path / "folder")
    places = {
        "WHEEL": wheel,
        "LIBRARY": BIN / "all-124.so",
        "FOLDER": tmp_path / "folder",
        "ENV": tmp_path / "env",
        "TEXT": tmp_path / "text.so",
        "NOT_A_WHEEL": tmp_path / "bad-1.0-py3-none-any.whl",
        "OUT": tmp_path / "out",
    }
    before = contents(tmp_path)
    assert main(["slim", *(str(places.get(word, word)) for word in words)]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert message in told.err
    assert hint in told.err
    assert contents(tmp_path) == before


def test_too_little_room_is_told_of_the_folder_that_was_named(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    assert main(["slim", str(wheel), "--for", "h100", "-o", str(tmp_path)]) == 4
    assert f"error: {tmp_path}: about " in capsys.readouterr().err
