"""Uploads to a real server on loopback, and the rules of the public index, which are checked before."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import ToolError
from cuwheel.network import addresses, resolver
from tests.fixtures import servers
from tests.integration import index_server
from tests.unit.delivery.published import cuda_wheel, wheel
from tests.unit.delivery.test_attestations import attestation

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    index_server.clean_environment(monkeypatch, tmp_path)
    return tmp_path / "dist"


@contextlib.contextmanager
def serving(store: Path) -> Iterator[str]:
    """pypiserver, which takes any login."""
    store.mkdir()
    port = index_server.unused_port()
    program = str(Path(sys.executable).with_name("pypi-server"))
    words = [program, "run", "-p", str(port), "-i", "127.0.0.1", "-a", ".", "-P", ".", str(store)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()


def _wait(port: int) -> None:
    import socket

    for _ in range(1200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    pytest.fail("the server does not answer")


def test_uploaded_and_installed_from_there(dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [wheel(dist), cuda_wheel(dist, "2.0+cu130")]
    with serving(tmp_path / "store") as address:
        answer = api.publish_upload(*made, url=f"http://alice:secret@{address}/")
        assert [each.outcome for each in answer.wheels] == ["uploaded", "uploaded"], answer.findings
        assert "secret" not in answer.place
        assert {path.name for path in (tmp_path / "store").iterdir()} == {each.name for each in made}
        words = ["--index-url", f"http://{address}/simple/", "--no-cache-dir", "--target", str(tmp_path / "target")]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words, "foo==1.0"], check=True, timeout=300)
        # There already: the server says so, the first is the last, and no password is shown.
        assert main(["publish", *map(str, made), "--upload", f"http://alice:secret@{address}/"]) == 1
        shown = capsys.readouterr()
        assert "already exists" in " ".join(shown.out.split())
        assert "0 of 2 wheels uploaded" in shown.out
        assert "skipped" in shown.out
        assert "secret" not in shown.out + shown.err


class _Refusing(http.server.BaseHTTPRequestHandler):
    """An index that knows nobody."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(403)
        self.end_headers()
        self.wfile.write(b"<h1>Invalid or non-existent authentication information.</h1>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def test_a_wrong_login(dist: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    with servers.answering(server) as url:
        answer = api.publish_upload(wheel(dist), url=f"{url.replace('://', '://alice:guess@')}/")
    assert not answer.succeeded
    assert [each.rule for each in answer.findings] == ["upload-failed"]
    assert "Invalid or non-existent authentication" in " ".join(answer.findings[0].evidence)
    assert "guess" not in str(answer)


def test_a_server_that_is_not_there(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")  # nobody will listen later either
    answer = api.publish_upload(wheel(dist), url=f"http://x:y@127.0.0.1:{index_server.unused_port()}/")
    assert [each.rule for each in answer.findings] == ["upload-failed"]


def test_the_rules_of_the_public_index(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, and nothing is sent."""
    monkeypatch.setattr("cuwheel.delivery.publishing._uploaded", lambda *_: pytest.fail("it was sent"))
    public = f"https://upload.{addresses.origin(resolver.public_index())[1]}/legacy/"
    large = wheel(dist, name="bar")
    given = [cuda_wheel(dist, "2.0+cu130"), wheel(dist), large]
    answer = api.publish_upload(*given, url=public, limit=large.stat().st_size - 1)
    assert {each.rule for each in answer.findings} == {"upload-local-version", "upload-platform", "upload-size"}
    spelt = wheel(dist, "3.0", name="Foo.Bar")
    assert {each.rule for each in api.publish_upload(spelt, url=public).findings} == {"upload-name"}
    assert not any(each.added for each in answer.wheels)
    assert api.publish_upload(wheel(dist), url=public, dry_run=True).succeeded
    broken = wheel(dist, "9.0", metadata_version="8.0")
    assert {each.rule for each in api.publish_upload(broken, url=public).findings} == {"metadata-differs"}


def test_other_indexes_have_rules_of_their_own(dist: Path) -> None:
    answer = api.publish_upload(cuda_wheel(dist, "2.0+cu130"), url="https://a.example/legacy/", dry_run=True)
    assert answer.succeeded
    assert [each.outcome for each in answer.wheels] == ["planned"]


def test_attested_where_the_machine_has_an_identity(
    dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for `pypi-attestations`, which needs a signing service."""
    made = wheel(dist)
    (tmp_path / "attestation").write_text(json.dumps(attestation(made)))
    program = tmp_path / "bin" / "pypi-attestations"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" = sign ] || exit 9\nshift\n'
        f'for each; do cp {tmp_path}/attestation "$each.publish.attestation"; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "https://example.com")
    answer = api.publish(made, to=tmp_path / "index", attest=True)
    assert answer.findings == ()
    assert (tmp_path / "index" / "files" / f"{made.name}.provenance").exists()
    program.write_text("#!/bin/sh\necho nobody knows you >&2\nexit 1\n")
    with pytest.raises(ToolError, match="nobody knows you"):
        api.publish(wheel(dist, "2.0"), to=tmp_path / "index", attest=True)
