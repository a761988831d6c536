"""What workflows talk to, on loopback: Pages, releases and packages, issues, and an index with trusted publishing."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.fixtures import servers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

ID_TOKEN, UPLOAD_TOKEN, JOB_TOKEN, OWN_TOKEN = "an.identity.token", "pypi-for-minutes", "of-the-job", "of-the-project"
_FILE = re.compile(rb'filename="([^"]+\.(?:whl|tar\.gz))"')
_FIELD = re.compile(rb'name="([^"]+)"\r\n\r\n([^\r]*)\r\n')


@dataclass
class Services:
    """A folder that is served: `pages`, and `github` with its releases; and what was asked of them."""

    folder: Path
    url: str = ""
    uploads: list[str] = field(default_factory=list)
    issues: list[dict[str, str]] = field(default_factory=list)
    pipelines: list[dict[str, str]] = field(default_factory=list)

    @property
    def pages(self) -> Path:
        return self.folder / "pages"

    @property
    def github(self) -> Path:
        return self.folder / "github"

    def gh(self, tools: Path) -> dict[str, str]:
        """A folder for PATH with `gh` in it, and what that reads."""
        tools.mkdir(exist_ok=True)
        self.github.mkdir(exist_ok=True)
        program = Path(__file__).with_name("pretend_gh.py")
        (tools / "gh").write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
        (tools / "gh").chmod(0o755)
        return {"PRETEND_GITHUB": str(self.github)}

    def put(self, path: str, headers: Any, data: bytes) -> int:
        if headers["JOB-TOKEN"] != JOB_TOKEN:
            return 401
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return 201

    def answer(self, method: str, address: str, headers: Any, data: bytes) -> tuple[int, Any]:
        path, asked = urlsplit(address).path, parse_qs(urlsplit(address).query)
        if path == "/_/oidc/audience":
            return 200, {"audience": "pypi"}
        if path == "/identity":  # GitHub's, for a job that may have one
            right = headers["Authorization"].lower() == "bearer of-the-runner" and asked["audience"] == ["pypi"]
            return (200, {"value": ID_TOKEN}) if right else (403, {})
        if path == "/_/oidc/mint-token":
            right = json.loads(data)["token"] == ID_TOKEN
            return (200, {"success": True, "token": UPLOAD_TOKEN}) if right else (422, {"message": "not trusted"})
        if path == "/legacy/":
            return self._uploaded(headers, data)
        if path.endswith("/trigger/pipeline"):
            fields = {name.decode(): value.decode() for name, value in _FIELD.findall(data)}
            if fields.pop("token", "") != JOB_TOKEN:
                return 404, {}
            self.pipelines.append(fields)
            return 201, {}
        if path.endswith("/issues"):
            if headers["PRIVATE-TOKEN"] != OWN_TOKEN:
                return 401, {}
            if method == "GET":
                wanted = asked["search"][0]
                return 200, [each for each in self.issues if wanted in each["description"]]
            self.issues.append({name: value[0] for name, value in parse_qs(data.decode()).items()})
            return 201, {}
        return 404, {}

    def _uploaded(self, headers: Any, data: bytes) -> tuple[int, Any]:
        login = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        if login != f"__token__:{UPLOAD_TOKEN}":
            return 403, {}
        self.uploads += [each.decode() for each in _FILE.findall(data)]
        return 200, {}


class _Handler(SimpleHTTPRequestHandler):
    services: Services

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, directory=str(self.services.folder), **more)

    def log_message(self, *_args: object) -> None:
        pass

    def _data(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        status, value = self.services.answer("GET", self.path, self.headers, b"")
        if status == 404:
            super().do_GET()
        else:
            self._answer(status, value)

    def do_POST(self) -> None:
        self._answer(*self.services.answer("POST", self.path, self.headers, self._data()))

    def do_PUT(self) -> None:
        self._answer(self.services.put(self.path, self.headers, self._data()), {})


@contextlib.contextmanager
def serving(services: Services, tls: ssl.SSLContext | None = None) -> Iterator[Services]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"services": services}))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    services.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    with servers.answering(server):
        yield services
