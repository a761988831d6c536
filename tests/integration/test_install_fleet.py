"""`install --lock-for` a fleet, `--download` into one folder, and `--locked` on each of three simulated machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import NewerSchemaError, UnavailableError
from cuwheel.machine.fleet import Machine
from cuwheel.network import venvs
from cuwheel.report.answer import SCHEMAS
from cuwheel.support import codec
from cuwheel_core.errors import CuwheelError, MalformedError
from tests.integration.index_server import clean_environment
from tests.integration.install_world import versions, wheel

LINUX = "py3-none-linux_x86_64"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
FLEET = f"""
[[machine]]
name = "old"
gpu = "gtx 1080 ti"
driver = "550.54.14"
python = "{PYTHON}"
count = 3

[[machine]]
name = "rack 1"
gpu = "h100"
driver = "580.65.06"
python = "{PYTHON}"

[[machine]]
name = "rack 2"
gpu = "h100"
driver = "580.65.06"
python = "{PYTHON}"
"""
OLD = Machine(name="here", capability="6.1", driver="550.90.07", os="linux", cpu="x86_64", python=PYTHON)  # type: ignore[arg-type]
NEW = Machine(name="here", capability="9.0", driver="580.95.05", os="linux", cpu="x86_64", python=PYTHON)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """As `publish` writes it."""
    dist = tmp_path / "dist"
    wheel(dist, "subject", "2.0", library="many-130.so", requires="needed", tag=LINUX)
    wheel(dist, "subject", "1.0", library="plain-124.so", requires="needed", tag=LINUX)
    wheel(dist, "needed", "1.0")
    told = api.publish([dist], to=tmp_path / "index")
    assert told.succeeded, told.findings
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path / "index"


def test_a_lock_a_folder_and_three_machines(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["install", "subject", "--lock-for", "fleet.toml", "--index", str(index), "--download", "files"]
    assert main([*words, "--dry-run"]) == 0
    assert not list(tmp_path.glob("pylock.*"))
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "rack 1, rack 2" in shown
    assert "cuwheel install --locked" in shown
    locks = [codec.parse_toml((tmp_path / f"pylock.{name}.toml").read_bytes()) for name in ("old", "rack-1")]
    tables = [each["tool"]["cuwheel"] for each in locks]
    assert [(each["machines"], each["packages"]) for each in tables] == [
        (["old"], {"subject": "1.0 (native)"}),
        (["rack 1", "rack 2"], {"subject": "2.0 (native)"}),
    ]
    assert [(each["capability"], each["why"]["subject"]) for each in tables] == [
        ("6.1", "takes sm_61"), ("9.0", "takes sm_90, sm_90a"),
    ]  # fmt: skip
    assert {each["index"] for each in locks[1]["packages"]} == {(index / "simple").as_uri()}
    assert {each.name for each in (tmp_path / "files").iterdir()} == {
        f"subject-1.0-{LINUX}.whl", f"subject-2.0-{LINUX}.whl", "needed-1.0-py3-none-any.whl",
    }  # fmt: skip
    index.rename(tmp_path / "gone")
    for number, (machine, version) in enumerate(((OLD, "1.0"), (NEW, "2.0"))):
        env = tmp_path / f"env-{number}"
        venvs.make(env, venvs.find_python())
        fields: dict[str, Any] = {"locked": Path(), "no_index": True, "find_links": ["files"]}
        told = api.install(env=env, on=[machine], dry_run=True, **fields)
        done = api.install(env=env, on=[machine], **fields)
        assert done.succeeded, done
        assert told.changes == done.changes
        assert versions(env) >= {f"subject-{version}", "needed-1.0"}
        assert api.install(env=env, on=[machine], **fields).changes == ()
        assert api.install_undo(env).succeeded


def test_a_machine_that_is_not_served_keeps_no_other_from_its_lock(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["install", "subject>=2", "--lock-for", "fleet.toml", "--index", str(index), "--fallback", "none"]
    assert main(words) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("subject>=2: locked for 1 kind of machine, nothing serves old")
    assert [each.name for each in tmp_path.glob("pylock.*")] == ["pylock.rack-1.toml"]
    told = api.install("subject>=2", lock=tmp_path / "fleet.toml", indexes=[str(index)], fallback=["older"])
    assert not told.succeeded
    assert [bool(part.packages[0].version) for part in told.parts] == [False, True]
    env = tmp_path / "env"
    venvs.make(env, venvs.find_python())
    with pytest.raises(UnavailableError, match=r"its GPU is 9\.0, here it is 6\.1"):
        api.install(locked=tmp_path, env=env, on=[OLD])


def test_where_no_machine_is_served_nothing_is_written(index: Path, tmp_path: Path) -> None:
    told = api.install("subject>=3", lock=tmp_path / "fleet.toml", indexes=[str(index)], fallback=["older"])
    assert (told.succeeded, told.lock, list(tmp_path.glob("pylock.*"))) == (False, None, [])


def test_find_answers_for_each_machine_of_a_fleet(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No one file serves all: each kind has its own, and the command that is told locks them."""
    words = ["find", "subject", "--on", "fleet.toml", "--index", str(index)]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, json.loads((SCHEMAS / "find-1.json").read_text()))
    assert [(each["machines"], each["chosen"]["version"]) for each in told["rows"]] == [
        (["old"], "1.0"), (["rack 1", "rack 2"], "2.0"),
    ]  # fmt: skip
    assert not any(each["chosen"] for each in told["candidates"]), "no one file is for all"
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("subject in several releases runs on all 3 machines")
    assert main(told["lock"][1:]) == 0
    assert {each.name for each in tmp_path.glob("pylock.*")} == {"pylock.old.toml", "pylock.rack-1.toml"}
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write(f'[[machine]]\nname = "older"\ngpu = "tesla k80"\npython = "{PYTHON}"\n')
    assert main(words) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "subject in several releases runs on 3 of 4 machines, nothing on older" in shown
    assert main([*words[:3], "h100,a100", *words[4:], "--set", f"python={PYTHON}"]) == 0
    assert "one lock for each kind of machine: cuwheel install subject --lock-for fleet.toml" in capsys.readouterr().out


def test_another_content_or_another_machine(index: Path, tmp_path: Path) -> None:
    env, path = tmp_path / "env", tmp_path
    venvs.make(env, venvs.find_python())
    api.install("subject", lock=tmp_path / "fleet.toml", indexes=[str(index)], download=tmp_path / "files")
    with pytest.raises(UnavailableError, match=r"its GPU is 9\.0, here it is 7\.5"):
        api.install(locked=path, env=env, on=[Machine(name="here", capability="7.5")])  # type: ignore[arg-type]
    old_driver = Machine(name="here", capability="9.0", driver="570.26")  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match=r"it needs driver 580\.65\.06"):
        api.install(locked=path, env=env, on=[old_driver])
    (tmp_path / "files" / "needed-1.0-py3-none-any.whl").write_bytes(b"something else")
    index.rename(tmp_path / "gone")
    with pytest.raises(UnavailableError, match=r"needed-1\.0"):
        api.install(locked=path, env=env, on=[NEW], no_index=True, find_links=[str(tmp_path / "files")])


@pytest.mark.parametrize(
    ("wrong", "right", "error"),
    [
        ("cuwheel.lock/1", "cuwheel.lock/2", NewerSchemaError),
        ("[tool.cuwheel]", "[tool.other]", MalformedError),
        ('lock-version = "1.0"', 'lock-version = "9.0"', MalformedError),
        ('sha256 = "', 'sha256 = "12', MalformedError),
        ("subject-2.0-", "../../subject-2.0-", MalformedError),
        ('capability = "9.0"', "capability = 9", MalformedError),
        ("[[packages]]", "[[packages", MalformedError),
        ('path = "', 'url = "ftp://', MalformedError),
        ("[tool.cuwheel.packages]", '[tool.cuwheel.pins]\nX = "1; rm -r /"\n\n[tool.cuwheel.packages]', MalformedError),
    ],
)
def test_a_lock_is_not_believed_blindly(
    index: Path, tmp_path: Path, wrong: str, right: str, error: type[CuwheelError]
) -> None:
    assert api.install("subject", lock=tmp_path / "fleet.toml", indexes=[str(index)]).succeeded
    path = tmp_path / "pylock.rack-1.toml"
    text = path.read_text()
    assert wrong in text
    path.write_text(text.replace(wrong, right))
    with pytest.raises(error):
        api.install(locked=path, download=tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_every_tool_installs_the_lock_without_a_network(index: Path, tmp_path: Path) -> None:
    """`uv pip sync`, `uv pip install -r` and `pip install -r`, of the lock and of the requirements."""
    place = tmp_path / "carried"
    words = ["install", "subject", "--lock-for", "fleet.toml", "--index", str(index), "-o", str(place)]
    assert main([*words, "--lock-as", "pylock,requirements,uv"]) == 0
    assert {each.name for each in place.iterdir()} == {
        f"{kind}.{machine}.{suffix}"
        for kind, suffix in (("pylock", "toml"), ("requirements", "txt"), ("uv-sources", "toml"))
        for machine in ("old", "rack-1")
    }
    uv = [str(venvs.uv())]
    pip = [sys.executable, "-m", "pip", "--python"]
    lock, listed = place / "pylock.rack-1.toml", place / "requirements.rack-1.txt"
    for number, command in enumerate((
        [*uv, "pip", "sync", "--offline", "--no-config", "--preview-features", "pylock", "--python", "ENV", str(lock)],
        [*uv, "pip", "install", "--offline", "--no-config", "--python", "ENV", "--require-hashes", "-r", str(listed)],
        [*pip, "ENV", "install", "--no-index", "-r", str(lock)],
        [*pip, "ENV", "install", "--no-index", "--require-hashes", "-r", str(listed)],
    )):  # fmt: skip
        env = tmp_path / f"env-{number}"
        venvs.make(env, venvs.find_python())
        ready = [str(env) if word == "ENV" else word for word in command]
        done = subprocess.run(ready, capture_output=True, text=True, check=False, cwd=tmp_path / "home", timeout=300)
        assert done.returncode == 0, (command, done.stderr)
        assert versions(env) >= {"subject-2.0", "needed-1.0"}, command
    sources = codec.parse_toml((place / "uv-sources.rack-1.toml").read_bytes())["tool"]["uv"]["sources"]
    assert sources["subject"]["url"].endswith(f"subject-2.0-{LINUX}.whl")
