"""What the code of a package gets to see when it is verified, here and in a kit; and what a killed run leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.device_code.survey import survey
from cuwheel.proving import kit
from cuwheel.proving.request import PackRequest
from cuwheel.proving.runner import child as runner_child
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from cuwheel.proving.outcomes import Installation

SECRETS = {
    "PGPASSWORD": "pg-hunter2-pg",
    "GITHUB_TOKEN": "gh-hunter2-gh",
    "CUDA_API_KEY": "cuda-hunter2",
    "SSH_AUTH_SOCK": "/run/agent-of-mine",
    "MY_OWN_THING": "just-mine",
}
# Prints all that it finds: what reaches JSON and proofs then shows in the test.
NOSY = """\
import json, os, socket, tempfile
print("SAW " + json.dumps(dict(os.environ)))
print("HOME", os.path.expanduser("~"), "TMP", tempfile.gettempdir())
with socket.socket() as server:  # a program may talk to itself
    server.bind(("127.0.0.1", 0))
    server.listen()
    socket.create_connection(server.getsockname(), 2).close()
print("NETWORKS", sorted(name for _, name in socket.if_nameindex()))
"""


def tried(wheel: Path, **more: Any) -> Installation:
    (found,) = api.verify(wheel, offline=True, **more).wheels
    (installation,) = found.installations
    return installation


def seen(output: str) -> dict[str, str]:
    line = next(line for line in output.splitlines() if line.startswith("SAW "))
    found: dict[str, str] = json.loads(line[4:])
    return found


@pytest.fixture
def nosy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BNB_CUDA_VERSION", "122")
    monkeypatch.setenv("HOME", str(tmp_path / "my-home"))
    return Wheel(files={"subject/__init__.py": NOSY}).write(tmp_path)


def test_a_clean_environment_of_its_own(nosy: Path, tmp_path: Path) -> None:
    (check, *_) = tried(nosy).checks
    assert check.outcome == "passed", check.output
    environ = seen(check.output)
    assert not environ.keys() & SECRETS.keys()
    assert environ["BNB_CUDA_VERSION"] == "122"
    assert "cuwheel-verify-" in environ["HOME"]
    assert str(tmp_path / "my-home") not in check.output.replace(environ["PATH"], "")
    assert f"HOME {environ['HOME']} TMP {environ['TMPDIR']}" in check.output
    for value in SECRETS.values():
        assert value not in check.output


def test_more_is_let_through_by_name_and_masked(nosy: Path) -> None:
    (check, *_) = tried(nosy, pass_env=["MY_OWN_THING", "PGPASSWORD"]).checks
    environ = seen(check.output)
    assert environ["MY_OWN_THING"] == "just-mine"
    assert environ["PGPASSWORD"] == "***"
    assert "pg-hunter2-pg" not in check.output


def test_no_network_where_the_system_can_cut_it_off(nosy: Path) -> None:
    found = tried(nosy)
    if not runner_child.can_cut_network():
        assert found.network == "open"
        pytest.skip("this system lets nobody have a network of their own")
    assert found.network == "cut"
    assert "NETWORKS ['lo']" in found.checks[0].output
    allowed = tried(nosy, network=True)
    assert allowed.network == "open"


def test_where_it_cannot_be_cut_it_is_said(nosy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_child, "can_cut_network", lambda: False)
    found = tried(nosy)
    assert (found.network, found.checks[0].outcome) == ("open", "passed")


def test_code_that_runs_when_python_starts_sees_no_more(nosy: Path, tmp_path: Path) -> None:
    """Whatever starts the environment's interpreter: `pip check` too."""
    mark = tmp_path / "mark"
    line = f"import os; open({str(mark)!r}, 'a').write(repr(dict(os.environ)) + chr(10))\n"
    wheel = Wheel(files={"subject/__init__.py": "", "subject.pth": line}).write(tmp_path / "other")
    tried(wheel)
    told = mark.read_text()
    assert "VIRTUAL_ENV" in told
    for value in SECRETS.values():
        assert value not in told
    assert nosy.exists()


def test_requirements_that_come_as_source_are_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building runs their code, with all that the installer may see."""
    monkeypatch.setenv("PGPASSWORD", "pg-hunter2-pg")
    mark, links = tmp_path / "mark", tmp_path / "links"
    source = tmp_path / "evil-1.0"
    (source).mkdir()
    links.mkdir()
    (source / "setup.py").write_text(f"import os; open({str(mark)!r}, 'w').write(repr(dict(os.environ)))\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    with tarfile.open(links / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "evil-1.0")
    wheel = Wheel(requires=["evil"]).write(tmp_path)
    found = tried(wheel, find_links=[links])
    assert found.outcome == "failed"
    assert not mark.exists()


def test_addresses_with_passwords_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_RETRIES", "UV_HTTP_RETRIES"):  # nobody will listen later either
        monkeypatch.setenv(name, "0")
    wheel = Wheel().write(tmp_path)
    address = "other@http://ann:hunter2hunter2@127.0.0.1:1/other-1.0-py3-none-any.whl"
    assert main(["verify", str(wheel), "--with", address, "--json"]) == 1
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "***@127.0.0.1" in out
    main(["verify", str(wheel), "--with", address, "--json", "--dry-run"])
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["A=B", "", "A B", "--x"])
def test_names_of_no_variable(tmp_path: Path, name: str) -> None:
    wheel = Wheel().write(tmp_path)
    assert main(["verify", str(wheel), f"--pass-env={name or '1A'}"]) == 2


def test_a_kit_confines_too(nosy: Path, tmp_path: Path) -> None:
    made = kit.write_kit(
        PackRequest(nosy, to=tmp_path / "kit.pyz"),
        [survey(nosy, detail="containers")],
        lambda _: [{"name": "it", "kind": "import", "text": "subject"}],
    )
    words = [sys.executable, "-I", made.path]
    for options, let in (((), set()), (("--pass-env", "MY_OWN_THING,GITHUB_TOKEN"), {"MY_OWN_THING", "GITHUB_TOKEN"})):
        done = subprocess.run([*words, *options], cwd=tmp_path, capture_output=True, text=True, check=True)
        text = (tmp_path / "proof.json").read_text()
        proof = json.loads(text)
        environ = seen(proof["wheels"][0]["checks"][0]["output"])
        assert environ.keys() & SECRETS.keys() == let
        assert "gh-hunter2-gh" not in text + done.stdout
        assert proof["network"] == ("cut" if runner_child.can_cut_network() else "open")
    assert "gh-hunter2-gh" not in str(api.verify_read(tmp_path / "proof.json"))


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()


@pytest.mark.parametrize("what", ["verify", "kit"])
def test_what_a_killed_run_started_dies_and_the_next_clears_its_files(tmp_path: Path, what: str) -> None:
    mark, scratch = tmp_path / "mark", tmp_path / "scratch"
    scratch.mkdir()
    # A child, and one that has left the session: both are to die.
    text = (
        "import os, pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
        f"pathlib.Path({str(mark)!r}).write_text('%d %d ' % (os.getpid(), child.pid))\n"
        "time.sleep(3600)\n"
    )
    wheel = Wheel(files={"subject/__init__.py": text}).write(tmp_path)
    environ = {**os.environ, "TMPDIR": str(scratch)}
    words = [sys.executable, "-m", "cuwheel", "verify", str(wheel), "--offline"]
    if what == "kit":
        check = {"name": "it", "kind": "import", "text": "subject"}
        request = PackRequest(wheel, to=tmp_path / "kit.pyz")
        words = [
            sys.executable,
            "-I",
            kit.write_kit(request, [survey(wheel, detail="containers")], lambda _: [check]).path,
        ]
    with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 600
        while not mark.exists() or not mark.read_text().endswith(" "):
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait(600)
    direct, orphan = map(int, mark.read_text().split())
    deadline = time.monotonic() + 600
    while (alive(direct) or alive(orphan)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(direct)
    assert not alive(orphan)
    assert list(scratch.iterdir())
    other = Wheel(name="other", files={"other/__init__.py": ""}).write(tmp_path)
    if what == "kit":
        check = {"name": "it", "kind": "import", "text": "other"}
        request = PackRequest(other, to=tmp_path / "other.pyz")
        words = [
            sys.executable,
            "-I",
            kit.write_kit(request, [survey(other, detail="containers")], lambda _: [check]).path,
        ]
    else:
        words = [*words[:-2], str(other), "--offline"]
    subprocess.run(words, env=environ, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert list(scratch.iterdir()) == []
