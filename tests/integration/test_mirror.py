"""`publish -r`: a mirror of what a requirements file comes to, slimmed for a fleet; real installers against it."""

from __future__ import annotations

import _ctypes
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import UsageError
from cuwheel.network import venvs
from cuwheel.support import codec, files
from cuwheel.version import __version__
from tests.fixtures.small_wheel import digest
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import versions, wheel

MANY = (Path(__file__).parents[1] / "fixtures" / "bin" / "many-130.so").read_bytes()
MORE = {f"subject/lib{number}.so": MANY for number in range(3)}  # so that cutting them pays for the note about it
OUTSIDE = dict(os.environ)  # with the indexes of this machine
LINUX = "py3-none-manylinux_2_28_x86_64"
# By its GPU, and a hash of that and of cuwheel's version.
CUT = f"2.0+slim.sm90.h{files.sha256_of(f'9.0 {__version__}'.encode())[:7]}"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
MACHINE = f"""
[[machine]]
name = "{{name}}"
gpu = "{{gpu}}"
driver = "580.65.06"
python = "{PYTHON}"
os = "linux"
cpu = "x86_64"
glibc = "2.35"
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def world(tmp_path: Path) -> Behaviour:
    """An index of others: 2.0 has code for many GPUs, and needs what has none; a fleet; what is wanted of it."""
    made = [
        wheel(tmp_path / "dist", "subject", "2.0", library="many-130.so", members=MORE, requires="needed", tag=LINUX),
        wheel(
            tmp_path / "dist", "subject", "2.1+cu130", library="many-130.so", members=MORE, requires="needed", tag=LINUX
        ),
        wheel(tmp_path / "dist", "needed", "1.0"),
    ]
    (tmp_path / "fleet.toml").write_text(MACHINE.format(name="rack", gpu="h100"))
    (tmp_path / "requirements.txt").write_text("subject==2.0\n")
    assert api.publish(made, to=tmp_path / "theirs").succeeded
    return Behaviour.folder(tmp_path / "theirs")


def _mirror(url: str, tmp_path: Path, **fields: Any) -> Any:
    asked = {"requirements": tmp_path / "requirements.txt", "machines": [tmp_path / "fleet.toml"], "slim": True}
    return api.publish(to=tmp_path / "mirror", indexes=[f"{url}/simple"], **{**asked, **fields})


def _wheels_asked(behaviour: Behaviour) -> set[str]:
    return {path for method, path, _ in behaviour.asked if path.endswith(".whl") and method == "GET"}


def test_at_the_terminal(world: Behaviour, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands install what was asked for, and others' faults are a line, unless they are asked for."""
    command = ["publish", "-r", "requirements.txt", "--for", "fleet.toml", "--slim", "--to", "mirror"]
    with serving(world) as url:
        assert main([*command, "--index", f"{url}/simple"]) == 0
        first = capsys.readouterr().out
        assert main([*command, "--index", f"{url}/simple", "--verbose"]) == 0
        again = capsys.readouterr().out
    for shown in (first, again):  # also where nothing was new
        assert "  uv pip sync mirror/pylock.rack.toml\n" in shown
        assert "  pip install -r mirror/pylock.rack.toml\n" in shown
    assert "on wheels as their publishers made them: licence-none" in " ".join(first.split())
    assert "it contains no licence file" not in first
    assert first.index("subject") < first.index("needed")  # the largest first


def test_a_mirror_is_smaller_checked_and_brings_only_what_is_new(world: Behaviour, tmp_path: Path) -> None:
    with serving(world) as url:
        first = _mirror(url, tmp_path)
        assert first.succeeded, first.findings
        world.asked.clear()
        again = _mirror(url, tmp_path)
        asked_again = _wheels_asked(world)
    mirror = tmp_path / "mirror"
    assert {each.file for each in first.wheels} == {f"subject-{CUT}-{LINUX}.whl", "needed-1.0-py3-none-any.whl"}
    assert first.mirror.bytes_after < first.mirror.bytes_before
    assert set(first.mirror.new) == {f"subject-2.0-{LINUX}.whl", "needed-1.0-py3-none-any.whl"}
    assert (again.mirror.new, again.mirror.bytes_after) == ((), first.mirror.bytes_after)
    assert not asked_again, "nothing is downloaded twice"
    assert api.publish_check(mirror).succeeded
    assert (mirror / "files" / f"subject-{CUT}-{LINUX}.whl.cuwheel.json").is_file()
    lock = codec.parse_toml((mirror / "pylock.rack.toml").read_bytes())
    assert {each["version"] for each in lock["packages"]} == {CUT, "1.0"}
    assert lock["tool"]["cuwheel"]["packages"] == {"subject": f"{CUT} (native)"}
    assert all(each["wheels"][0]["path"].startswith("files/") for each in lock["packages"])
    (tmp_path / "requirements.txt").write_text("subject==2.0\nneeded\nlater\n")
    later = wheel(tmp_path / "more", "later", "1.0")
    api.publish([later], to=tmp_path / "theirs")
    with serving(Behaviour.folder(tmp_path / "theirs")) as url:
        third = _mirror(url, tmp_path)
    assert third.mirror.new == ("later-1.0-py3-none-any.whl",)
    assert [each.file for each in third.wheels] == ["later-1.0-py3-none-any.whl"]


def test_another_fleet_makes_other_names_and_what_was_cut_before_is_yanked(world: Behaviour, tmp_path: Path) -> None:
    """The file for the H100 alone stays for its lock; nobody who resolves gets it on the A100 that came."""
    mirror, fleet = tmp_path / "mirror", tmp_path / "fleet.toml"

    def listed() -> dict[str, bool]:
        page = json.loads((mirror / "simple" / "subject" / "index.json").read_text())
        return {each["filename"].split("-")[1]: bool(each.get("yanked")) for each in page["files"]}

    with serving(world) as url:
        first = _mirror(url, tmp_path)
        cut = (mirror / "files" / f"subject-{CUT}-{LINUX}.whl").read_bytes()
        only_h100 = fleet.read_text()
        with fleet.open("a") as file:
            file.write(MACHINE.format(name="older", gpu="a100"))
        world.asked.clear()
        both = _mirror(url, tmp_path)
        assert {path.rpartition("/")[2] for path in _wheels_asked(world)} == {f"subject-2.0-{LINUX}.whl"}
        assert both.succeeded, both.findings
        (for_both,) = set(listed()) - {CUT}
        assert listed() == {CUT: True, for_both: False}
        assert for_both.startswith("2.0+slim.sm80.sm90.h")
        assert for_both in (mirror / "pylock.older.toml").read_text()
        assert (mirror / "files" / f"subject-{CUT}-{LINUX}.whl").read_bytes() == cut
        assert _mirror(url, tmp_path).mirror.new == ()
        fleet.write_text(only_h100)
        world.asked.clear()
        back = _mirror(url, tmp_path)
        assert not _wheels_asked(world)
        assert listed() == {CUT: False, for_both: True}
        assert back.mirror.bytes_after == first.mirror.bytes_after
    assert api.publish_check(mirror).succeeded


def test_a_machine_that_is_not_served_is_told_before_anything_is_written(
    world: Behaviour, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "fleet.toml").open("a") as file:
        file.write(MACHINE.format(name="old", gpu="gtx 1080 ti"))
    with serving(world) as url:
        words = ["publish", "-r", "requirements.txt", "--for", "fleet.toml", "--slim", "--to", "mirror"]
        assert main([*words, "--index", f"{url}/simple"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "old: subject: 2.0: it has no code for the GeForce GTX 1080 Ti" in shown
    assert not (tmp_path / "mirror").exists()


def test_a_dry_run_says_what_would_be_brought(world: Behaviour, tmp_path: Path) -> None:
    with serving(world) as url:
        told = _mirror(url, tmp_path, dry_run=True)
    assert told.succeeded
    assert len(told.mirror.new) == 2
    assert not (tmp_path / "mirror").exists()


def test_a_pin_with_a_local_version_is_rewritten_in_the_lock(world: Behaviour, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("subject==2.1+cu130\n")
    with serving(world) as url:
        done = _mirror(url, tmp_path)
    assert done.succeeded
    assert [each.rule for each in done.findings if each.rule.startswith("mirror")] == ["mirror-pin-rewritten"]
    lock = codec.parse_toml((tmp_path / "mirror" / "pylock.rack.toml").read_bytes())
    assert {each["version"] for each in lock["packages"]} == {CUT.replace("2.0+", "2.1+cu130."), "1.0"}


def test_without_slim_the_files_are_those_of_the_index(world: Behaviour, tmp_path: Path) -> None:
    with serving(world) as url:
        done = _mirror(url, tmp_path, slim=False)
    assert done.succeeded
    for each in (tmp_path / "mirror" / "files").glob("*.whl"):
        assert each.read_bytes() == (tmp_path / "dist" / each.name).read_bytes()
    assert done.mirror.bytes_after == done.mirror.bytes_before


def test_packages_under_nvidias_terms_stay_as_they_are_with_originals(tmp_path: Path) -> None:
    made = wheel(tmp_path / "dist", "subject", "2.0", library="many-130.so", members=MORE, tag=LINUX)
    _with_licence(made)
    (tmp_path / "fleet.toml").write_text(MACHINE.format(name="rack", gpu="h100"))
    (tmp_path / "requirements.txt").write_text("subject\n")
    with serving(Behaviour.of(made)) as url:
        kept = _mirror(url, tmp_path, originals=True)
        assert [each.file for each in kept.wheels] == [made.name]
        assert _mirror(url, tmp_path, originals=True).mirror.new == ()
        cut = _mirror(url, tmp_path)
        assert _mirror(url, tmp_path).mirror.new == ()
        assert _mirror(url, tmp_path, originals=True).mirror.bytes_after == kept.mirror.bytes_after
    assert [each.file for each in cut.wheels] == [f"subject-{CUT}-{LINUX}.whl"]
    assert "licence-on-changes" in {each.rule for each in cut.findings}


def _with_licence(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        there = {each: archive.read(each) for each in archive.namelist()}
    name = next(each for each in there if each.endswith("METADATA"))
    there[name] = there[name].replace(b"\nVersion", b"\nLicense: NVIDIA Proprietary Software\nVersion")
    record = next(each for each in there if each.endswith("RECORD"))
    rows = [f"{each},{digest(body)},{len(body)}\n" for each, body in there.items() if each != record]
    there[record] = "".join([*rows, f"{record},,\n"]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, body in there.items():
            archive.writestr(each, body)


def test_installers_take_the_slimmed_wheel_offline(world: Behaviour, tmp_path: Path) -> None:
    """By the lock and by resolving: a pin without a local version accepts `+slim`."""
    with serving(world) as url:
        assert _mirror(url, tmp_path).succeeded
    mirror = tmp_path / "mirror"
    carried = tmp_path / "carried"
    mirror.rename(carried)  # a lock names its files relative to itself
    uv, pip = [str(venvs.uv()), "pip"], [sys.executable, "-m", "pip", "--python", "ENV"]
    offline = ["--offline", "--no-config", "--python", "ENV"]
    with serving(Behaviour.folder(carried)) as url:
        for number, command in enumerate((
            [*uv, "sync", *offline, "--preview-features", "pylock", str(carried / "pylock.rack.toml")],
            [*pip, "install", "--no-index", "-r", str(carried / "pylock.rack.toml")],
            [*uv, "install", "--no-config", "--python", "ENV", "--default-index", f"{url}/simple", "subject==2.0"],
            [*pip, "install", "--index-url", f"{url}/simple", "subject==2.0"],
        )):  # fmt: skip
            env = tmp_path / f"env-{number}"
            venvs.make(env, venvs.find_python())
            ready = [str(env) if word == "ENV" else word for word in command]
            done = subprocess.run(ready, capture_output=True, text=True, check=False, cwd=carried, timeout=300)
            assert done.returncode == 0, (command, done.stderr)
            assert versions(env) >= {f"subject-{CUT}", "needed-1.0"}, command
    env = tmp_path / "own"
    venvs.make(env, venvs.find_python())
    own = api.install(locked=carried, env=env, on=["h100"], no_index=True)
    assert own.succeeded, own


PROJECT = """
[project]
name = "user"
version = "0"
requires-python = ">={python}"
dependencies = ["subject==2.0"]
[tool.poetry]
package-mode = false
[[tool.poetry.source]]
name = "mirror"
url = "{url}/simple"
priority = "primary"
[tool.pdm]
distribution = false
[[tool.pdm.source]]
name = "pypi"
url = "{url}/simple"
verify_ssl = false
"""


@pytest.mark.download
@pytest.mark.parametrize("tool", ["poetry", "pdm"])
def test_poetry_and_pdm_lock_and_install_the_slimmed_wheel(tool: str, world: Behaviour, tmp_path: Path) -> None:
    """Of pdm what its own lock names: what it merely requires does not fit together since hishel 2 and unearth 0.19."""
    with serving(world) as url:
        assert _mirror(url, tmp_path).succeeded
    venvs.make(tmp_path / "tools", venvs.find_python())
    what = "pdm[locked]" if tool == "pdm" else tool
    installing = [str(venvs.uv()), "pip", "install", "-q", "--python", str(tmp_path / "tools"), what]
    subprocess.run(installing, env=OUTSIDE, check=True, timeout=600)
    project = tmp_path / "project"
    project.mkdir()
    own = {"POETRY_VIRTUALENVS_IN_PROJECT": "1", "PDM_CHECK_UPDATE": "0", "PDM_IGNORE_ACTIVE_VENV": "1"}
    with serving(Behaviour.folder(tmp_path / "mirror")) as url:
        (project / "pyproject.toml").write_text(PROJECT.format(url=url, python=PYTHON))
        for words in (["lock"], ["install", "--no-interaction"] if tool == "poetry" else ["install"]):
            command = [str(tmp_path / "tools" / "bin" / tool), *words]
            done = subprocess.run(
                command,
                cwd=project,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    assert versions(project / ".venv") >= {f"subject-{CUT}", "needed-1.0"}


def test_what_a_publisher_promises_too_much_is_a_warning_in_a_mirror(tmp_path: Path) -> None:
    """NVIDIA's own wheels are tagged for older systems than their libraries need; the fleet's systems are known."""
    own = {"subject/libnew.so": Path(_ctypes.__file__).read_bytes()}  # Python's own, made for a glibc of today
    tag = "py3-none-manylinux_2_5_x86_64"
    made = wheel(tmp_path / "dist", "subject", "2.0", library="many-130.so", members=own, tag=tag)
    (tmp_path / "fleet.toml").write_text(MACHINE.format(name="rack", gpu="h100"))
    (tmp_path / "requirements.txt").write_text("subject\n")
    alone = api.publish([made], to=tmp_path / "index")
    assert "tag-glibc" in {each.rule for each in alone.findings if each.severity == "error"}
    with serving(Behaviour.of(made)) as url:
        done = _mirror(url, tmp_path)
    assert done.succeeded, done.findings
    assert "tag-glibc" in {each.rule for each in done.findings if each.severity == "warning"}


def test_a_copy_never_shows_a_page_before_its_file(
    world: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at after every file that is written: whatever a page links to is there."""
    copied = tmp_path / "www"
    real = files.copy
    seen: list[Path] = []

    def copy(source: Path, to: Path) -> Path:
        made = real(source, to)
        for page in copied.glob("simple/*/index.json"):
            listed = json.loads(page.read_text())["files"]
            seen.append(page)
            assert all((copied / "files" / each["filename"]).is_file() for each in listed), page
        return made

    with serving(world) as url:
        monkeypatch.setattr(files, "copy", copy)
        first = _mirror(url, tmp_path, copy_to=str(copied))
        assert seen
        assert {each.path for each in first.copied} == {
            each.relative_to(copied).as_posix() for each in copied.rglob("*") if each.is_file()
        }
        assert api.publish_check(copied).succeeded
        assert _mirror(url, tmp_path, copy_to=str(copied)).copied == ()
    gone = api.publish(to=tmp_path / "mirror", remove=["needed==1.0"], copy_to=str(copied))
    removed = [each.path for each in gone.copied if each.action == "removed"]
    assert "files/needed-1.0-py3-none-any.whl" in removed
    assert removed.index("simple/needed/index.json") < removed.index("files/needed-1.0-py3-none-any.whl")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("")
    with pytest.raises(UsageError, match="is not a copy of an index"):
        api.publish(to=tmp_path / "mirror", copy_to=str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "letter.txt").exists()


@pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed here")
def test_a_copy_by_rsync(world: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a shell in place of ssh."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    monkeypatch.setenv("RSYNC_RSH", str(shell))
    with serving(world) as url:
        done = _mirror(url, tmp_path, copy_to=f"host:{tmp_path / 'www'}/")
    assert done.copied
    assert api.publish_check(tmp_path / "www").succeeded
    paths = [each.path for each in done.copied]
    assert paths.index(f"files/subject-{CUT}-{LINUX}.whl") < paths.index("simple/subject/index.json")
    assert paths.index("simple/subject/index.json") < paths.index("simple/index.json")


def test_a_mirror_needs_machines_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("x\n")
    for fields in ({"requirements": tmp_path / "requirements.txt"}, {"slim": True, "wheels": ["x.whl"]}):
        with pytest.raises(UsageError):
            api.publish(to=tmp_path / "mirror", **fields)
