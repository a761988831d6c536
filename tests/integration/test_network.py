from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar

import pytest

from cuwheel.errors import NetworkError
from cuwheel.network import transfer
from cuwheel_core.errors import UnreadableError
from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODY = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves BODY with ranges; /cut breaks off half-way; /plain knows no ranges."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.asked.append(wanted)
        start = int(wanted[6:-1]) if wanted and self.path != "/plain" else 0
        if self.path == "/missing":
            self.send_error(404)
            return
        if start >= len(BODY):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(BODY) - start))
        self.end_headers()
        self.wfile.write(BODY[start : len(BODY) // 2] if self.path == "/cut" else BODY[start:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.asked.clear()
    with servers.answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


def test_a_download_appears_whole(server: str, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    transfer.download(f"{server}/file", target, sha256=SHA256)
    assert target.read_bytes() == BODY
    assert [each.name for each in target.parent.iterdir()] == ["file"]
    assert transfer.size_of(f"{server}/file") == len(BODY)


def test_a_broken_download_leaves_nothing_and_resumes(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    with pytest.raises(NetworkError):
        transfer.download(f"{server}/cut", target, sha256=SHA256)
    assert not target.exists()
    transfer.download(f"{server}/file", target, sha256=SHA256)
    assert target.read_bytes() == BODY
    assert Handler.asked[-1].startswith("bytes=")
    assert Handler.asked[-1] != "bytes=0-"


def test_a_server_without_ranges_starts_over(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(BODY[:1000])
    transfer.download(f"{server}/plain", target, sha256=SHA256)
    assert target.read_bytes() == BODY


def test_a_finished_part_is_taken(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(BODY)
    transfer.download(f"{server}/file", target, sha256=SHA256)
    assert target.read_bytes() == BODY


def test_a_wrong_hash_is_an_error_and_not_resumed_from(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    with pytest.raises(NetworkError, match="sha256"):
        transfer.download(f"{server}/file", target, sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_failures_are_ours(server: str, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="404"):
        transfer.fetch(f"{server}/missing", limit=10)
    with pytest.raises(NetworkError, match="larger than"):
        transfer.fetch(f"{server}/file", limit=1000)
    with pytest.raises(NetworkError):
        transfer.fetch("http://127.0.0.1:9/", limit=10)
    with pytest.raises(NetworkError):
        transfer.fetch("no-url", limit=10)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnreadableError):
        transfer.download(f"{server}/file", tmp_path / "file" / "below")
    assert transfer.fetch(f"{server}/file", limit=len(BODY)) == BODY
