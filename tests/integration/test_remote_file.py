"""A wheel on a server, read in parts: servers that send ranges, ignore them, break off, lie or change the file."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.device_code.survey import survey, survey_wheel
from cuwheel.errors import NetworkError
from cuwheel.network import client, transfer
from cuwheel.network.remote import RemoteFile
from cuwheel.network.transfer import Budget, OverBudgetError
from cuwheel.wheel.file import WheelFile
from cuwheel_core.errors import CuwheelError
from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURES = Path(__file__).parents[1] / "fixtures" / "bin"


def _wheel() -> bytes:
    data = io.BytesIO()
    noise = random.Random(7).randbytes(3_000_000)  # noqa: S311 - the same in every run
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/weights.txt", noise)  # text by its name: never looked at
        archive.write(FIXTURES / "plain-130.so", "pkg/libpkg.so")
        archive.writestr("pkg/more.txt", noise)
        archive.writestr("pkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pkg\nVersion: 1.0\n")
        archive.writestr("pkg-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\n")
        archive.writestr("pkg-1.0.dist-info/RECORD", "")
    return data.getvalue()


BODY = _wheel()


class _Server(ThreadingHTTPServer):
    """`sent`: bytes of bodies. `breaks`: how many answers end half-way before one is whole."""

    sent = 0
    answers = 0
    breaks = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self.server.answers += 1
        how = self.path.strip("/")
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if match is None or how == "whole":
            self._send(200, BODY, {})
            return
        first = int(match[1]) if match[1] else len(BODY) - int(match[2])
        last = int(match[2]) if match[1] and match[2] else len(BODY) - 1
        if how == "shifted" and match[1]:
            first += 1
        size = len(BODY) + (1 if how == "changing" and match[1] else 0)
        told = f"bytes {first}-{last}/{size}"
        tag = str(self.server.answers) if how == "replaced" else "one"
        headers = {"Content-Range": "nonsense" if how == "silly" else told, "ETag": tag}
        self._send(206, BODY[first : last + 1], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.path == "/breaking" and self.server.answers > 1 and self.server.breaks:
            self.server.breaks -= 1
            body, self.close_connection = body[: len(body) // 2], True
        if self.path == "/longer":
            body += b"x" * 100
        self.server.sent += len(body)
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    httpd = _Server(("127.0.0.1", 0), _Handler)
    httpd.handle_error = lambda *_: None  # type: ignore[method-assign] # who reads a part hangs up
    with servers.answering(httpd):
        yield httpd


def _url(server: _Server, how: str) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{how}"


def _read(remote: RemoteFile, count: int) -> bytes:
    with contextlib.closing(remote):
        return remote.read(0, count)


@pytest.mark.parametrize("how", ["ranges", "whole", "breaking"])
def test_a_wheel_is_surveyed_as_if_it_were_here(server: _Server, how: str, tmp_path: Path) -> None:
    server.breaks = 2
    here = tmp_path / "pkg-1.0-py3-none-linux_x86_64.whl"
    here.write_bytes(BODY)
    with client.Session() as session, WheelFile(Path(here.name), RemoteFile(_url(server, how), session=session)) as it:
        found = survey_wheel(it, detail="containers")
    assert found.libraries == survey(here, detail="containers").libraries
    assert found.distribution is not None
    assert found.distribution.name == "pkg"


def test_only_what_is_read_is_fetched(server: _Server) -> None:
    library = (FIXTURES / "plain-130.so").stat().st_size
    budget = Budget(library + (1 << 19))
    with WheelFile(Path("pkg-1.0-py3-none-linux_x86_64.whl"), RemoteFile(_url(server, "ranges"), budget=budget)) as it:
        survey_wheel(it, detail="containers")
    assert server.sent == budget.used < len(BODY) / 2


@pytest.mark.parametrize("how", ["ranges", "whole"])
def test_a_budget_ends_it_before_more_is_fetched(server: _Server, how: str) -> None:
    budget = Budget(1 << 17)
    with pytest.raises(OverBudgetError, match="bytes allowed"):
        _read(RemoteFile(_url(server, how), budget=budget), len(BODY))
    assert budget.used <= 1 << 17


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("silly", "without saying which"),
        ("shifted", "another part"),
        ("changing", "changed while it was read"),
        ("replaced", "changed while it was read"),
    ],
)
def test_a_server_that_cannot_be_relied_on(server: _Server, how: str, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        _read(RemoteFile(_url(server, how)), 100)


def test_another_size_than_the_index_says_is_another_file(server: _Server) -> None:
    with pytest.raises(NetworkError, match="announced: it is another file"):
        RemoteFile(_url(server, "ranges"), size=len(BODY) - 1)


@pytest.mark.parametrize("threads", [1, 8])
def test_reads_in_any_order_give_the_same_bytes_and_nothing_comes_twice(server: _Server, threads: int) -> None:
    chance = random.Random(3)  # noqa: S311 - the same in every run
    remote = RemoteFile(_url(server, "ranges"))
    places = [(start, start + chance.randrange(200_000)) for start in chance.choices(range(len(BODY)), k=60)]
    with ThreadPoolExecutor(threads) as pool:
        read = pool.map(lambda each: remote.read(each[0], min(each[1], len(BODY)) - each[0]), places)
        assert [*read] == [BODY[start:stop] for start, stop in places]
    assert server.sent <= len(BODY)
    with pytest.raises(CuwheelError, match="cut short"):
        remote.read(len(BODY) - 1, 2)
    remote.close()


class _Packing(BaseHTTPRequestHandler):
    """An index whose pages come packed to those who take that."""

    def do_GET(self) -> None:
        takes = self.headers.get("Accept-Encoding") == "gzip"
        body = gzip.compress(PAGE) if takes else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        if takes:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)
        self.server.sent = len(body)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


PAGE = b'<a href="demo-1.0-py3-none-any.whl">demo</a>\n' * 500


def test_a_page_comes_packed() -> None:
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Packing)
    with servers.answering(httpd), client.Session() as session:
        url = f"http://127.0.0.1:{httpd.server_port}/simple/demo/"
        found = transfer.read_page(url, accept="text/html", limit=len(PAGE), session=session)
    assert found.body == PAGE
    assert httpd.sent < len(PAGE) / 20  # type: ignore[attr-defined]
