"""Indexes with logins and signatures, and Pythons that are not plain environments."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING

import msgspec
import pytest

from cuwheel import api
from cuwheel.device_code import wheel_facts
from cuwheel.facts import packages
from cuwheel.facts.rows.packages import PackageProfile
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from cuwheel.support import files
from cuwheel.wheel import record
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import UnreadableError
from cuwheel_core.wheel import metadata
from tests.integration.index_server import Behaviour, clean_environment, serving
from tests.integration.install_world import state, versions, wheel

if TYPE_CHECKING:
    from pathlib import Path

LINUX = "py3-none-linux_x86_64"


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


def test_an_index_with_a_login(env: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path / "dist", "subject", "1.0", requires="needed")
    other = wheel(tmp_path / "dist", "needed", "1.0")
    behaviour = Behaviour(login="me:secret")
    for each in (made, other):
        body = each.read_bytes()
        address = f"/files/{each.name}?X-Amz-Expires=60&X-Amz-Signature=hunter2"
        link = f'<a href="{address}#sha256={hashlib.sha256(body).hexdigest()}">x</a>'
        behaviour.files |= {f"/files/{each.name}": body, f"/simple/{each.name.partition('-')[0]}/": link.encode()}
    with serving(behaviour) as url:
        index = url.replace("://", "://me:secret@") + "/simple"
        done = api.install("subject", env=env, indexes=[index], on=["h100"])
    assert done.succeeded, done
    assert versions(env) >= {"subject-1.0", "needed-1.0"}
    assert "secret" not in repr(done)
    # An installer writes the address into the environment.
    told = {path: path.read_bytes() for path in env.rglob("*.dist-info/*")}
    assert not [path for path, text in told.items() if b"hunter2" in text or b"me:secret" in text]
    (info,) = env.rglob("subject-1.0.dist-info")
    rows = {row.path: row for row in metadata.record_rows(told[info / "RECORD"].decode())}
    origin = rows["subject-1.0.dist-info/direct_url.json"]
    assert origin.hash == record.digest_of(info / "direct_url.json").hash
    assert {login for _, path, login in behaviour.asked if path.startswith("/files")} == {"me:secret"}


def test_a_wheel_with_a_link_in_it_is_not_installed(env: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=LINUX)
    data = bytearray(made.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 38 : at + 42] = (0o120777 << 16).to_bytes(4, "little")
    made.write_bytes(data)
    before = state(env)
    done = api.install("subject", env=env, find_links=[str(made.parent)], no_index=True, on=["h100"])
    assert not done.succeeded
    assert "symbolic link" in repr(done)
    assert state(env) == before


def test_only_files_that_a_signer_vouches_for(env: Path, tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not installed here")
    for name in ("ours", "theirs"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
        (tmp_path / f"{name}.txt").write_text(f"{name}@example.com {(tmp_path / f'{name}.pub').read_text()}")
    wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=LINUX, requires="needed")
    wheel(tmp_path / "dist", "needed", "1.0")
    index = tmp_path / "index"
    assert api.publish([tmp_path / "dist"], to=index, sign=tmp_path / "ours").succeeded
    before = state(env)
    refused = api.install("subject", env=env, indexes=[str(index)], on=["h100"], signers=tmp_path / "theirs.txt")
    assert not refused.succeeded
    assert "is in no index that is signed by any of" in refused.problem
    assert state(env) == before
    wheel(tmp_path / "more", "needed", "2.0")
    beside = {"find_links": [str(tmp_path / "more")], "signers": tmp_path / "ours.txt"}
    stranger = api.install("subject", env=env, indexes=[str(index)], on=["h100"], **beside)  # type: ignore[call-overload]
    assert "needed-2.0" in stranger.problem, "what it requires counts too"
    assert state(env) == before
    done = api.install("subject", env=env, indexes=[str(index)], on=["h100"], signers=tmp_path / "ours.txt")
    assert done.succeeded, done
    (index / "SHA256SUMS.sig").unlink()
    unsigned = api.install("subject", env=env, indexes=[str(index)], on=["h100"], signers=tmp_path / "ours.txt")
    assert unsigned.succeeded, "nothing is installed any more"


def test_a_signed_index_that_shows_less_or_something_else(env: Path, tmp_path: Path) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not installed here")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"us@example.com {(tmp_path / 'key.pub').read_text()}")
    index, older = tmp_path / "index", tmp_path / "older"
    for version in ("1.0", "2.0"):
        made = wheel(tmp_path / "dist", "subject", version, library="plain-130.so", tag=LINUX)
        assert api.publish([made], to=index, sign=tmp_path / "key").succeeded
        shutil.copytree(index, older, dirs_exist_ok=True) if version == "1.0" else None

    def told() -> tuple[str | None, str]:
        done = api.install("subject", env=env, indexes=[str(index)], on=["h100"], signers=signers, dry_run=True)
        return done.packages[0].version, done.problem

    assert told() == ("2.0", "")
    assert (index / "SHA256SUMS").read_text().endswith("# serial 2\n")
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=index, check=False)
    assert checked.returncode == 0, "other tools read it, too"
    page = index / "simple" / "subject" / "index.json"
    whole = page.read_bytes()
    listing = msgspec.json.decode(whole)
    newest = [each for each in listing["files"] if "-2.0-" in each["filename"]]
    page.write_bytes(
        msgspec.json.encode({**listing, "files": [each for each in listing["files"] if each not in newest]})
    )
    taken, problem = told()
    assert taken == "1.0"
    assert "a release is hidden" in problem
    facts = index / "files" / f"{newest[0]['filename']}{wheel_facts.SUFFIX}"
    digest = hashlib.sha256(facts.read_bytes()).hexdigest().encode()
    facts.write_bytes(facts.read_bytes() + b"\n")
    page.write_bytes(whole.replace(digest, hashlib.sha256(facts.read_bytes()).hexdigest().encode()))
    assert "are not those that were signed" in told()[1]
    shutil.rmtree(index)
    shutil.copytree(older, index)
    taken, problem = told()
    assert taken == "1.0"
    assert "an older state of it is shown" in problem


def _python_in(prefix: Path, folder: str) -> Path:
    """A prefix with a Python of its own that is no environment, as a system or conda has it."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / folder / "site-packages").mkdir(parents=True)
    (prefix / "bin/python").symlink_to(venvs.find_python().path)
    return prefix


@pytest.mark.parametrize("program", ["python", "python3"])
def test_a_python_of_the_system(tmp_path: Path, program: str) -> None:
    prefix = _python_in(tmp_path / "usr", "python3.12")
    (prefix / "bin/python").rename(prefix / "bin" / program)
    (prefix / "lib/python3.12/EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    made = wheel(tmp_path / "dist", "subject", "1.0")
    before = state(prefix)
    with pytest.raises(UnreadableError, match="managed by the system") as caught:
        api.install("subject", env=prefix, find_links=[str(made.parent)], no_index=True)
    assert "venv" in caught.value.hint
    assert state(prefix) == before


def test_a_conda_environment(env: Path, tmp_path: Path) -> None:
    """Its activation scripts are a folder."""
    (env / "conda-meta").mkdir()
    libraries = {"bitsandbytes/libbitsandbytes_cuda122.so": "plain-124.so"}
    made = wheel(tmp_path / "dist", "bitsandbytes", "0.49.0", files=libraries)
    before = state(env)

    case = Refinement(torch_cuda="12.4", driver="535.54.03")
    place = {"find_links": [str(made.parent)], "no_index": True, "pin": ["activate"], "refine": case}
    done = api.install("bitsandbytes", env=env, on=["h100"], **place)  # type: ignore[call-overload]
    assert done.succeeded, done
    assert "export BNB_CUDA_VERSION=122" in (env / "etc/conda/activate.d/cuwheel.sh").read_text()
    api.install_undo(env)
    assert state(env) == before


@pytest.mark.parametrize(("folder", "taken"), [("python3.13", "cp313"), ("python3.13t", "cp313t")])
def test_wheels_for_a_python_without_the_gil(tmp_path: Path, folder: str, taken: str) -> None:
    prefix = _python_in(tmp_path / "env", folder)
    for abi in ("cp313", "cp313t"):
        wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=f"cp313-{abi}-linux_x86_64")
    told = api.find("subject", env=prefix, find_links=[str(tmp_path / "dist")], no_index=True, on=["h100"])
    assert [each.file for each in told.candidates if each.chosen] == [f"subject-1.0-cp313-{taken}-linux_x86_64.whl"]
    (other,) = (each for each in told.candidates if not each.chosen)
    assert "the GIL" in other.reasons[0]


@pytest.mark.parametrize(("python", "version"), [(None, "1.0"), ("3.13", "1.0"), ("3.13t", "2.0")])
def test_a_python_without_the_gil_has_to_be_asked_for(tmp_path: Path, python: str | None, version: str) -> None:
    wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag="cp313-cp313-linux_x86_64")
    wheel(tmp_path / "dist", "subject", "2.0", library="plain-130.so", tag="cp313-cp313t-linux_x86_64")
    place = {"find_links": [str(tmp_path / "dist")], "no_index": True}
    told = api.find("subject", on=["h100"], refine=Refinement(python=python), **place)  # type: ignore[call-overload]
    chosen, other = told.candidates
    assert (chosen.chosen, str(chosen.version)) == (True, version)
    assert (other.outcome, "the GIL" in other.reasons[0]) == ("fails", True)


def test_facts_that_the_file_contradicts_install_nothing(env: Path, tmp_path: Path) -> None:
    """The index says that the wheel has code for the T4, which only another wheel has."""
    made = wheel(tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=LINUX)
    other = wheel(tmp_path / "other", "subject", "1.0", library="names-130.so", tag=LINUX)
    index = tmp_path / "index"
    assert api.publish([made], to=index).succeeded
    with WheelFile(other) as opened:
        forged = msgspec.structs.replace(wheel_facts.of_wheel(opened), sha256=files.sha256(made))
    place = index / "files" / f"{made.name}{wheel_facts.SUFFIX}"
    before, after = place.read_bytes(), wheel_facts.encoded(forged)
    place.write_bytes(after)
    old, new = (hashlib.sha256(each).hexdigest().encode() for each in (before, after))
    for page in (each for each in (index / "simple").rglob("*") if each.is_file()):
        page.write_bytes(page.read_bytes().replace(old, new))
    behaviour = Behaviour.folder(index)
    untouched = state(env)
    with serving(behaviour) as url:
        told = api.install("subject", env=env, indexes=[f"{url}/simple"], on=["t4"], dry_run=True)
        assert [each.outcome for each in told.packages] == ["native"]
        done = api.install("subject", env=env, indexes=[f"{url}/simple"], on=["t4"])
        assert not done.succeeded
        assert [each.rule for each in done.findings] == ["facts-contradict-file"]
        assert "fails here" in done.problem
        again = api.install("subject", env=env, indexes=[f"{url}/simple"], on=["t4"], dry_run=True)
        assert not again.succeeded, "what the file says is remembered"
        assert state(env) == untouched
        honest = api.install("subject", env=env, indexes=[f"{url}/simple"], on=["h100"])
    assert honest.succeeded, "what the file has for another GPU"


@pytest.mark.parametrize(("rest", "fits"), [("plain-130.so", True), ("family-130.so", False)])
def test_what_was_read_in_part_is_read_whole_before_it_is_installed(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rest: str, fits: bool
) -> None:
    """The second library counts as one that the table says has no device code."""
    host = PackageProfile(names=("subject",), loads="every", source=(), host=("*/rest.so",))
    monkeypatch.setattr(packages, "find_profile", lambda *_: host)
    made = wheel(
        tmp_path / "dist", "subject", "1.0", library="plain-130.so", tag=LINUX, files={"subject/rest.so": rest}
    )
    with serving(Behaviour.of(made)) as url:
        done = api.install("subject", env=env, indexes=[f"{url}/simple"], on=["a100"])
    assert done.succeeded == fits
    assert [each.rule for each in done.findings] == ([] if fits else ["facts-contradict-file"])


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_variables_that_lead_installers_elsewhere(
    tool: str, env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip follows these with status 0, and the environment that was asked for has nothing."""
    if tool == "pip":
        monkeypatch.setattr(venvs, "uv", lambda: None)
    elsewhere = {f"PIP_{name}": str(tmp_path / "elsewhere") for name in ("TARGET", "PREFIX", "ROOT", "REPORT")}
    flags = dict.fromkeys(
        ("PIP_DRY_RUN", "PIP_NO_DEPS", "PIP_REQUIRE_HASHES", "UV_REQUIRE_HASHES", "PIP_ISOLATED"), "1"
    )
    others = {"PIP_PYTHON": "/usr/bin/python3", "PIP_PLATFORM": "win_amd64", "UV_WORKING_DIRECTORY": "/nonsense"}
    for name, value in (elsewhere | flags | others).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pip.conf").write_text("[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    wheel(tmp_path / "dist", "subject", "1.0", requires="needed")
    wheel(tmp_path / "dist", "needed", "1.0")
    done = api.install("subject", env=env, find_links=[str(tmp_path / "dist")], no_index=True, on=["h100"])
    assert done.succeeded, done
    assert versions(env) >= {"subject-1.0", "needed-1.0"}
    assert not (tmp_path / "elsewhere").exists()


def test_a_configuration_that_leads_pip_elsewhere(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venvs, "uv", lambda: None)
    (tmp_path / "pip.conf").write_text(f"[install]\ntarget = {tmp_path / 'elsewhere'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    wheel(tmp_path / "dist", "subject", "1.0")
    before = state(env)
    done = api.install("subject", env=env, find_links=[str(tmp_path / "dist")], no_index=True, on=["h100"])
    assert not done.succeeded
    assert "a setting of pip sends it elsewhere" in (done.problem or "")
    assert state(env) == before
