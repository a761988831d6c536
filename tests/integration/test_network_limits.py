"""What a hostile or broken server sends: more than announced, for ever, compressed to nothing, or sent on elsewhere."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client, settings, transfer
from cuwheel.support import log
from tests.integration import index_server as site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BODY = bytes(range(256)) * 512


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(addresses, "_seen", {})
    site.clean_environment(monkeypatch, tmp_path)


@contextmanager
def speaking(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers each connection as it likes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        ended = threading.Event()

        def answer() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        speak(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def _endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def test_more_than_was_announced(tmp_path: Path) -> None:
    with speaking(_endless) as url, pytest.raises(NetworkError, match="more than the 1,000 bytes that were announced"):
        transfer.download(url, tmp_path / "file", size=1000)
    assert not (tmp_path / "file").exists()


def test_more_than_anything_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody announced a size."""
    monkeypatch.setattr(transfer, "LARGEST", 1_000_000)
    with speaking(_endless) as url, pytest.raises(NetworkError, match="more than the 1,000,000"):
        transfer.download(url, tmp_path / "file")
    with speaking(_endless) as url, pytest.raises(NetworkError, match="larger than the 5,000 bytes allowed"):
        transfer.fetch(url, limit=5000)


def test_another_size_than_was_announced(tmp_path: Path) -> None:
    with site.serving(site.Behaviour(files={"/file": BODY})) as url:
        with pytest.raises(NetworkError, match="were announced: it is another file"):
            transfer.download(f"{url}/file", tmp_path / "file", size=len(BODY) - 1)
        transfer.download(f"{url}/file", tmp_path / "file", size=len(BODY))
    assert (tmp_path / "file").read_bytes() == BODY


def test_more_than_the_disk_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))

    def boast(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 31000000000\r\n\r\n")

    with speaking(boast) as url, pytest.raises(NetworkError, match="there is room for"):
        transfer.download(url, tmp_path / "file")


def test_a_server_that_trickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(3000):
            connection.sendall(b"x")
            time.sleep(0.1)

    monkeypatch.setattr(transfer, "_START_S", 0.5)
    monkeypatch.setattr(transfer, "_DOCUMENT_S", 0.5)
    with speaking(trickle) as url:
        began = time.monotonic()
        with pytest.raises(NetworkError, match="too slow"):
            transfer.download(url, tmp_path / "file")
        with pytest.raises(NetworkError, match="was not complete within"):
            transfer.fetch(url, limit=10_000)
        assert time.monotonic() - began < 240


def test_a_document_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the time that a large document may take at a decent rate."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(3000):
            connection.sendall(b"x")
            time.sleep(0.1)

    monkeypatch.setattr(transfer, "_DOCUMENT_START_S", 0.5)
    with speaking(drip) as url:
        began = time.monotonic()
        with pytest.raises(NetworkError, match=r"not complete within 0.5 s: \d+ bytes came") as caught:
            transfer.fetch(url, limit=10_000)
        assert time.monotonic() - began < 240
        assert "use a mirror" in caught.value.hint


def test_a_server_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_silent(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
        time.sleep(1)

    monkeypatch.setattr(client, "IDLE_S", 0.3)
    with speaking(fall_silent) as url, pytest.raises(NetworkError, match=r"sent nothing for 0\.3 s"):
        transfer.fetch(url, limit=10_000)


@pytest.mark.parametrize("name", ["PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "UV_HTTP_TIMEOUT", "pip.conf"])
@pytest.mark.parametrize("what", ["document", "download"])
def test_the_time_limit_of_pip_and_uv_is_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, what: str
) -> None:
    def fall_silent(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        time.sleep(1)

    if name == "pip.conf":
        (tmp_path / "pip.conf").write_text("[global]\ntimeout = 0.25\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    else:
        monkeypatch.setenv(name, "0.25")
    with speaking(fall_silent) as url, pytest.raises(NetworkError, match=r"sent nothing for 0\.25 s") as caught:
        transfer.fetch(url, limit=10_000) if what == "document" else transfer.download(url, tmp_path / "file")
    assert "PIP_TIMEOUT" in caught.value.hint


def test_the_longer_one_of_both_time_limits_and_none_that_is_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "15")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "300")
    assert settings.read_settings().patience == 300
    for nonsense in ("soon", "-1", "nan", "inf", "0"):
        monkeypatch.setenv("UV_HTTP_TIMEOUT", nonsense)
        assert settings.read_settings().patience == 15


def test_a_download_that_pauses_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has longer than a document: a mirror may have to fetch it first, and it has hours in all."""
    asked = []

    def pause(connection: socket.socket) -> None:
        asked.append(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 500)
        time.sleep(1)
        connection.sendall(b"x" * 500)

    monkeypatch.setattr(client, "IDLE_S", 0.25)
    with speaking(pause) as url:
        transfer.download(url, tmp_path / "file")
    assert ((tmp_path / "file").read_bytes(), len(asked)) == (b"x" * 1000, 1)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_is_continued_counts_each_byte_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, ranges: bool
) -> None:
    """Also where the server starts over."""
    sent: list[int] = []
    counted: list[tuple[int | None, int]] = []

    def break_off(connection: socket.socket) -> None:
        start = 600 if ranges and sent else 0
        sent.append(start)
        status = b"206 Partial Content" if start else b"200 OK"
        connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, 1000 - start))
        connection.sendall(BODY[start : 600 if len(sent) == 1 else 1000])

    @contextmanager
    def listen(_label: str, total: int | None) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(advance=lambda amount: counted.append((total, amount)))

    monkeypatch.setattr(log, "_listener", listen)
    with speaking(break_off) as url:
        transfer.download(url, tmp_path / "file", size=1000)
    assert (tmp_path / "file").read_bytes() == BODY[:1000]
    assert len(sent) == 2
    assert {total for total, _ in counted} == {1000}
    assert sum(amount for _, amount in counted) == 1000


def test_a_bomb_is_not_unpacked() -> None:
    """Though nobody asked for compression."""
    bomb = gzip.compress(bytes(50_000_000))
    behaviour = site.Behaviour(
        files={"/file": bomb, "/small": gzip.compress(b"hello")}, headers={"Content-Encoding": "gzip"}
    )
    with site.serving(behaviour) as url:
        with pytest.raises(NetworkError, match="larger than the 10,000 bytes allowed"):
            transfer.fetch(f"{url}/file", limit=10_000)
        assert transfer.fetch(f"{url}/small", limit=10_000) == b"hello"
        behaviour.headers["Content-Encoding"] = "zstd"
        with pytest.raises(NetworkError, match="not requested: zstd"):
            transfer.fetch(f"{url}/small", limit=10_000)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//user:p4ss@127.0.0.1:1/x"])
def test_where_a_server_must_not_send_us(target: str) -> None:
    with site.serving(site.Behaviour(redirect={"/file": target})) as url:
        with pytest.raises(NetworkError) as caught:
            transfer.fetch(f"{url}/file", limit=10_000)
        assert "p4ss" not in caught.value.message


def test_from_tls_to_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = site.make_authority(tmp_path)
    monkeypatch.setenv("PIP_CERT", str(authority.ca))
    with site.serving(site.Behaviour(files={"/file": BODY})) as plain:
        behaviour = site.Behaviour(redirect={"/file": f"{plain}/file"})
        with (
            site.serving(behaviour, tls=authority.context()) as url,
            pytest.raises(NetworkError, match="which is not safe"),
        ):
            transfer.fetch(f"{url}/file", limit=10_000_000)


def test_a_circle() -> None:
    behaviour = site.Behaviour(redirect={"/a": "/b", "/b": "/a"})
    with site.serving(behaviour) as url, pytest.raises(NetworkError, match="redirects more than"):
        transfer.fetch(f"{url}/a", limit=10_000)
    assert len(behaviour.asked) < 20


def test_many_who_want_the_same_file_fetch_it_once(tmp_path: Path) -> None:
    behaviour = site.Behaviour(files={"/file": BODY})
    with site.serving(behaviour) as url:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                transfer.download(f"{url}/file", tmp_path / "file", sha256=hashlib.sha256(BODY).hexdigest())
            except BaseException as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert failures == []
    assert (tmp_path / "file").read_bytes() == BODY
    assert not (tmp_path / "file.part").exists()


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    for path in ("/missing", "/file"):
        with site.serving(site.Behaviour(files={"/file": BODY})) as url:
            secret = f"{url.replace('://', '://anna:p4ss@')}{path}"
            with pytest.raises(NetworkError) as caught:
                transfer.download(secret, tmp_path / "file", sha256="0" * 64)
            assert "p4ss" not in caught.value.message + caught.value.hint
            assert "anna" not in caught.value.message
