"""A published index, met by those it is for: real pip, real uv, a server on loopback, signatures by ssh-keygen."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cuwheel
from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import ToolError, UsageError
from tests.fixtures import servers
from tests.integration import index_server
from tests.unit.delivery import published
from tests.unit.delivery.published import cuda_wheel, wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration
_UV = str(Path(sys.executable).with_name("uv"))
_TIMEOUT_S = 120


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    index_server.clean_environment(monkeypatch, tmp_path)
    return tmp_path / "dist"


@pytest.fixture
def index(tmp_path: Path, dist: Path) -> Path:
    """Two CUDA versions of one package, as local versions; one pinned to a torch; and one without CUDA."""
    made = [
        cuda_wheel(dist, "1.0+cu124", library="plain-124.so"),
        cuda_wheel(dist, "1.0+cu130"),
        cuda_wheel(dist, "0.9+cu130.torch2.11", name="bar"),
        wheel(dist, "0.5"),
    ]
    assert cuwheel.publish(made, to=tmp_path / "index").succeeded
    return tmp_path / "index"


@contextlib.contextmanager
def _address(kind: str, index: Path) -> Iterator[str]:
    if kind == "file":
        yield index.as_uri()
        return
    with servers.files_of(index) as url:
        yield url


def _install(tool: str, target: Path, simple: str, *words: str) -> subprocess.CompletedProcess[str]:
    begin = [sys.executable, "-m", "pip", "install"] if tool == "pip" else [_UV, "pip", "install"]
    command = [
        *begin,
        "--no-cache-dir" if tool == "pip" else "--no-cache",
        "--index-url",
        simple,
        "--target",
        str(target),
    ]
    environ = {**os.environ, "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}  # what is damaged stays so
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environ
    )


def _installed(target: Path) -> list[str]:
    return sorted(path.name.removesuffix(".dist-info") for path in target.glob("*.dist-info"))


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize("kind", ["file", "http"])
def test_installed_by_name_and_by_channel(tool: str, kind: str, index: Path, tmp_path: Path) -> None:
    with _address(kind, index) as url:
        rows = [
            ("", "foo", "foo-1.0+cu130"), ("cu130/torch2.11/", "bar", "bar-0.9+cu130.torch2.11"),
            ("cu124/", "foo", "foo-1.0+cu124"), ("cu130/", "foo", "foo-1.0+cu130"),
        ]  # fmt: skip
        if tool == "pip":  # which takes ten times as long: two rows from files, two from a server
            rows = rows[2:] if kind == "file" else rows[:2]
        for number, (channel, name, expected) in enumerate(rows):
            target = tmp_path / f"{number}"
            done = _install(tool, target, f"{url}/{channel}simple", name)
            assert done.returncode == 0, done.stdout + done.stderr
            assert _installed(target) == [expected]
        if (tool, kind) != ("pip", "file"):
            done = _install(tool, tmp_path / "none", f"{url}/cu124/simple", "bar")
            assert done.returncode != 0


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("uv", "file"), ("uv", "http"), ("pip", "http"), pytest.param("pip", "file", marks=pytest.mark.slow)],
)
def test_installed_with_hashes_required(tool: str, kind: str, index: Path, tmp_path: Path) -> None:
    (file,) = published.page(index, "cu124/simple/foo")["files"]
    required = tmp_path / "required.txt"
    with _address(kind, index) as url:
        for number, (sha256, status) in enumerate([(file["hashes"]["sha256"], 0), ("0" * 64, 1)]):
            required.write_text(f"foo==1.0+cu124 --hash=sha256:{sha256}\n")
            words = ("--require-hashes", "-r", str(required))
            done = _install(tool, tmp_path / f"{number}", f"{url}/cu124/simple", *words)
            assert (done.returncode != 0) == bool(status), done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize("damage", ["exchanged", "truncated"])
def test_a_damaged_file_is_refused(tool: str, damage: str, index: Path, tmp_path: Path) -> None:
    """By installers, since the page has its hash; and named by --check."""
    path = index / "files" / "foo-1.0+cu130-py3-none-linux_x86_64.whl"
    data = path.read_bytes()
    path.write_bytes(data[:-100] if damage == "truncated" else data[:60] + bytes([data[60] ^ 1]) + data[61:])
    with servers.files_of(index) as url:
        done = _install(tool, tmp_path / "target", f"{url}/cu130/simple", "foo")
        assert done.returncode != 0
        assert re.search("hash|invalid zip", done.stdout + done.stderr, re.IGNORECASE)
        answer = api.publish_check(url)
    (told,) = [each for each in answer.findings if each.severity == "error"]
    assert told.rule == "index-hash"
    assert path.name in told.message
    assert ("truncated" in told.message) == (damage == "truncated")


def test_yanked_only_where_it_is_pinned(index: Path, tmp_path: Path) -> None:
    cuwheel.publish(to=index, yank=["foo==1.0+cu130", "foo==1.0+cu124"], reason="wrong results on <sm_90>")
    with servers.files_of(index) as url:
        done = _install("pip", tmp_path / "a", f"{url}/simple", "foo")
        assert _installed(tmp_path / "a") == ["foo-0.5"], done.stderr
        done = _install("pip", tmp_path / "b", f"{url}/simple", "foo==1.0+cu130")
        assert "wrong results on <sm_90>" in done.stderr
        assert _installed(tmp_path / "b") == ["foo-1.0+cu130"]
        done = _install("uv", tmp_path / "c", f"{url}/simple", "foo")
        assert _installed(tmp_path / "c") == ["foo-0.5"], done.stderr


def test_uv_reads_upload_times_and_python_from_html(
    tmp_path: Path, dist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "index"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    cuwheel.publish(
        [wheel(dist), wheel(dist, "9.0", headers=("Requires-Python: >=3.99", "License-File: LICENSE"))], to=root
    )
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    cuwheel.publish(wheel(dist, "2.0"), to=root)
    with servers.files_of(root) as url:
        _install("uv", tmp_path / "a", f"{url}/simple", "foo")
        assert _installed(tmp_path / "a") == ["foo-2.0"]
        _install("uv", tmp_path / "b", f"{url}/simple", "foo", "--exclude-newer", "2021-01-01T00:00:00Z")
        assert _installed(tmp_path / "b") == ["foo-1.0"]
        _install("pip", tmp_path / "c", f"{url}/simple", "foo")
        assert _installed(tmp_path / "c") == ["foo-2.0"]


def test_dependencies_are_chosen_from_metadata_files_alone(tmp_path: Path, dist: Path) -> None:
    root = tmp_path / "index"
    cuwheel.publish(
        [wheel(dist, requires=["bar>=2"]), wheel(dist, "1.0", name="bar"), wheel(dist, "2.0", name="bar")], to=root
    )
    for path in (root / "files").glob("*.whl"):
        path.write_bytes(b"")
    with servers.files_of(root) as url:
        command = [_UV, "pip", "compile", "-", "--no-cache", "--no-header", "--index-url", f"{url}/simple"]
        done = subprocess.run(command, input="foo\n", capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert "bar==2.0" in done.stdout, done.stderr


def test_files_served_from_elsewhere(tmp_path: Path, dist: Path) -> None:
    root, assets = tmp_path / "index", tmp_path / "assets"
    with servers.files_of(assets) as elsewhere:
        cuwheel.publish(cuda_wheel(dist, "1.0+cu130"), to=root, files_url=f"{elsewhere}/v1")
        answer = api.publish_check(root)
        assert {each.rule for each in answer.findings} == {"index-link"}
        (root / "files").rename(tmp_path / "uploaded")
        assets.mkdir()
        shutil.copytree(tmp_path / "uploaded", assets / "v1")
        with servers.files_of(root) as url:
            done = _install("pip", tmp_path / "a", f"{url}/cu130/simple", "foo")
            assert _installed(tmp_path / "a") == ["foo-1.0+cu130"], done.stderr
            assert api.publish_check(url).findings == ()
        assert api.publish_check(root).findings == ()


def test_a_check_over_the_network(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with servers.files_of(index) as url:
        assert main(["publish", "--check", url]) == 0
        assert main(["publish", "--check", f"{url}/simple/"]) == 0
        (index / "cu130" / "simple" / "foo" / "index.html").unlink()
        capsys.readouterr()
        assert main(["publish", "--check", url, "--json"]) == 1
        answer = json.loads(capsys.readouterr().out)
    assert [each["rule"] for each in answer["findings"]] == ["index-page"]
    assert "cu130/simple/foo/index.html" in answer["findings"][0]["message"]


def test_a_link_to_a_server_that_is_gone(tmp_path: Path, dist: Path) -> None:
    port = index_server.unused_port()
    cuwheel.publish(wheel(dist), to=tmp_path / "index", files_url=f"http://127.0.0.1:{port}/x")
    answer = api.publish_check(tmp_path / "index")
    assert "index-link" in {each.rule for each in answer.findings}


def _key(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True, timeout=60)
    return path


def _signers(folder: Path, *keys: Path) -> Path:
    path = folder / "signers"
    path.write_text("".join(f"{key.name}@example.com {key.with_suffix('.pub').read_text()}" for key in keys))
    return path


def test_signed_and_demanded(tmp_path: Path, dist: Path) -> None:
    root, keys = tmp_path / "index", tmp_path / "keys"
    alice, mallory = _key(keys, "alice"), _key(keys, "mallory")
    trusted = _signers(keys, alice)
    cuwheel.publish(wheel(dist), to=root)
    assert "not signed" in api.publish_check(root, signers=trusted).findings[0].message
    cuwheel.publish(wheel(dist, "2.0"), to=root, sign=alice)
    assert api.publish_check(root, signers=trusted).findings == ()
    assert [(each.rule, each.severity) for each in api.publish_check(root).findings] == [("index-signature", "note")]
    with pytest.raises(UsageError, match="signed"):
        cuwheel.publish(wheel(dist, "3.0"), to=root)
    with servers.files_of(root) as url:
        assert api.publish_check(url, signers=trusted).succeeded
    by_hand: list[str | Path] = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        trusted,
        "-I",
        "alice@example.com",
        "-n",
        "cuwheel-index",
    ]
    with (root / "SHA256SUMS").open() as sums:
        subprocess.run([*by_hand, "-s", root / "SHA256SUMS.sig"], stdin=sums, check=True, timeout=60)
    cuwheel.publish(wheel(dist, "3.0"), to=root, sign=mallory)
    answer = api.publish_check(root, signers=trusted)
    assert ["not made by any of the signers" in each.message for each in answer.findings] == [True]


def _signed(path: Path, key: Path, purpose: str) -> bytes:
    with path.open() as given:
        command: list[str | Path] = ["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", purpose]
        return subprocess.run(command, stdin=given, capture_output=True, check=True, timeout=60).stdout


def test_a_signature_of_something_else(tmp_path: Path, dist: Path) -> None:
    root, alice = tmp_path / "index", _key(tmp_path / "keys", "alice")
    trusted = _signers(tmp_path / "keys", alice)
    cuwheel.publish(wheel(dist), to=root, sign=alice)
    old = (root / "SHA256SUMS.sig").read_bytes()
    cuwheel.publish(wheel(dist, "2.0"), to=root, sign=alice)
    (root / "SHA256SUMS.sig").write_bytes(old)
    assert "not of this content" in api.publish_check(root, signers=trusted).findings[0].message
    # One of two signatures fits: as between the two files being renamed.
    new = _signed(root / "SHA256SUMS", alice, "cuwheel-index")
    (root / "SHA256SUMS.sig").write_bytes(old + new)
    assert api.publish_check(root, signers=trusted).succeeded
    other = _signed(root / "SHA256SUMS", alice, "git")
    (root / "SHA256SUMS.sig").write_bytes(other)
    assert not api.publish_check(root, signers=trusted).succeeded
    (root / "SHA256SUMS.sig").write_bytes(b"\0" * 100)
    assert "not an OpenSSH signature" in api.publish_check(root, signers=trusted).findings[0].message


def test_a_key_that_is_none_changes_nothing(tmp_path: Path, dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("not a key")
    with pytest.raises(ToolError, match="could not sign"):
        cuwheel.publish(wheel(dist), to=tmp_path / "index", sign=tmp_path / "key")
    assert published.state(tmp_path / "index") == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="not installed"):
        cuwheel.publish(wheel(dist), to=tmp_path / "index", sign=tmp_path / "key")


def test_several_publishers_at_once(tmp_path: Path, dist: Path) -> None:
    made = [wheel(dist, f"1.{number}") for number in range(3)]
    root = tmp_path / "index"
    words = [sys.executable, "-m", "cuwheel", "publish", "--to", str(root), "--quiet", "--json"]
    started = [subprocess.Popen([*words, str(each)], stdout=subprocess.DEVNULL) for each in made]
    assert [each.wait(_TIMEOUT_S) for each in started] == [0] * len(made)
    assert published.names(root) == sorted(each.name for each in made)
    assert api.publish_check(root).findings == ()
    assert not (root / ".cuwheel").exists()


@pytest.mark.skipif(os.name != "posix" or shutil.which("setpriv") is None, reason="needs setpriv, to be nobody")
def test_a_read_only_folder(tmp_path: Path, dist: Path) -> None:
    made = wheel(dist)
    root = tmp_path / "index"
    root.mkdir()
    words = [sys.executable, "-m", "cuwheel", "publish", str(made), "--to", str(root)]
    for path in (tmp_path, *tmp_path.parents):
        with contextlib.suppress(OSError):
            path.chmod(path.stat().st_mode | 0o055)
    nobody = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    root.chmod(0o555)
    done = subprocess.run([*nobody, *words], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert "not writable" in done.stderr
    assert list(root.iterdir()) == []


def test_hashes_are_those_of_sha256sum(index: Path) -> None:
    for line in (index / "SHA256SUMS").read_text().splitlines():
        digest, _, path = line.partition("  ")
        assert hashlib.sha256((index / path).read_bytes()).hexdigest() == digest
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=index, check=True, timeout=60)
