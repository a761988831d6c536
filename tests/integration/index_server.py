"""Package indexes and proxies on loopback: with a private authority, with logins, silent, or not there at all."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SET = ("PIP_", "UV_", "SSL_CERT", "SSL_CLIENT")
NAMED = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC", "VIRTUAL_ENV", "CONDA_PREFIX", "CUWHEEL_CACHE")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def wheel(name: str = "demo_cuda", version: str = "1.0") -> bytes:
    import io

    info = f"{name}-{version}.dist-info"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"{name}/__init__.py", name)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return data.getvalue()


@dataclass
class Behaviour:
    """`files` by path; `login` as `user:password`, for everything; `asked`: method, path and login of each request."""

    files: dict[str, bytes] = field(default_factory=dict)
    login: str = ""
    redirect: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    @classmethod
    def index(
        cls, *, project: str = "demo-cuda", file: str = "demo_cuda-1.0-py3-none-any.whl", **options: str
    ) -> Behaviour:
        """Of one project with one wheel."""
        body = wheel()
        digest = hashlib.sha256(body).hexdigest()
        href = options.pop("href", f"/files/{file}")
        page = f'<!DOCTYPE html><html><body><a href="{href}#sha256={digest}">{file}</a></body></html>'
        return cls(files={f"/simple/{project}/": page.encode(), f"/files/{file}": body}, **options)  # type: ignore[arg-type]

    @classmethod
    def of(cls, *paths: Path, at: str = "/simple") -> Behaviour:
        """Of these wheels and sources, with their hashes."""
        pages: dict[str, str] = {}
        found = cls()
        for path in paths:
            project = path.name.rsplit("-", 1 if path.suffix == ".gz" else 4)[0].lower().replace("_", "-")
            body = path.read_bytes()
            link = f'<a href="/files/{path.name}#sha256={hashlib.sha256(body).hexdigest()}">{path.name}</a>'
            pages[project] = pages.get(project, "<!DOCTYPE html>") + link
            found.files[f"/files/{path.name}"] = body
        found.files |= {f"{at}/{project}/": page.encode() for project, page in pages.items()}
        found.files[f"{at}/"] = "".join(f'<a href="{each}/">{each}</a>' for each in pages).encode()
        return found

    @classmethod
    def folder(cls, root: Path) -> Behaviour:
        """What `cuwheel publish` wrote, as a server of files shows it: pages without `index.html`."""
        found = cls()
        for path in (each for each in root.rglob("*") if each.is_file()):
            name = f"/{path.relative_to(root).as_posix()}"
            found.files[name.removesuffix("index.html")] = path.read_bytes()
        return found


class _Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        login = base64.b64decode(given.removeprefix("Basic ")).decode() if given.startswith("Basic ") else ""
        path = unquote(urlsplit(self.path).path)
        self.behaviour.asked.append((self.command, path, login))
        if self.behaviour.login and login != self.behaviour.login:
            self._send(401, b"", {"WWW-Authenticate": 'Basic realm="private"'})
        elif path in self.behaviour.redirect:
            self._send(302, b"", {"Location": self.behaviour.redirect[path]})
        elif path in self.behaviour.files:
            kind = "text/html" if path.endswith("/") else "application/octet-stream"
            self._send(200, self.behaviour.files[path], {"Content-Type": kind, **self.behaviour.headers})
        else:
            self._send(404, b"", {})

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class _Proxy(_Handler):
    """Passes plain requests on, and joins the two ends of a CONNECT."""

    def do_GET(self) -> None:
        self.behaviour.asked.append((self.command, self.path, self.headers.get("Proxy-Authorization", "")))
        parts = urlsplit(self.path)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        kept = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
        connection.request(self.command, parts.path, headers=kept)
        answer = connection.getresponse()
        body = answer.read()
        headers = (
            dict(answer.getheaders())
            if self.command == "HEAD"
            else {**dict(answer.getheaders()), "Content-Length": str(len(body))}
        )
        self._send(answer.status, body, headers)
        connection.close()

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def do_CONNECT(self) -> None:
        self.behaviour.asked.append(("CONNECT", self.path, self.headers.get("Proxy-Authorization", "")))
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pump, args=(far, self.connection), daemon=True)
            back.start()
            _pump(self.connection, far)
            back.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def serving(behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, proxy: bool = False) -> Iterator[str]:
    """Its address, without a slash at the end."""
    handler = type("Handler", (_Proxy if proxy else _Handler,), {"behaviour": behaviour})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    httpd.handle_error = lambda *_: None  # type: ignore[method-assign] # refused handshakes are expected
    if tls:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    with servers.answering(httpd) as url:
        yield url.replace("http://127.0.0.1", "https://localhost") if tls else url


@contextlib.contextmanager
def swallowing() -> Iterator[str]:
    """A port where connections never come about: its queue is full, and the system drops what else knocks."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)  # noqa: FBT003
            caller.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """A port that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Authority:
    """A private one: `ca` is what clients must trust, `client` what they show."""

    ca: Path
    certificate: Path
    client: Path

    def context(self, *, ask_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        if ask_client:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_authority(folder: Path) -> Authority:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed here")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Private CA",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "30", "-out", f"{name}.crt", "-extfile", "names")  # fmt: skip
        (folder / f"{name}.pem").write_text((folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text())
    return Authority(folder / "ca.pem", folder / "server.pem", folder / "client.pem")


def clean_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Callable[..., None]:
    """Nothing of this machine's configuration; a function that sets variables."""
    for name in list(os.environ):
        if name.startswith(SET) or name in NAMED or name.lower() in PROXIES:
            monkeypatch.delenv(name)
    home = folder / "home"
    home.mkdir()
    (folder / "pip.conf").write_text("")

    def given(**variables: str | Path) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    given(
        HOME=home, XDG_CONFIG_HOME=home / ".config", XDG_CONFIG_DIRS=home / "none", XDG_CACHE_HOME=folder / "cache",
        UV_CACHE_DIR=folder / "uv", PIP_CACHE_DIR=folder / "pip-cache", PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1",
    )  # fmt: skip
    return given
