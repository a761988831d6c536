"""The only place that talks to servers. Downloads resume, are checked, and appear whole or not at all."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from cuwheel import log
from cuwheel.errors import NetworkError, UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

TIMEOUT_S = 60.0
CHUNK = 1 << 20


def _client() -> httpx.Client:
    import httpx  # noqa: PLC0415 - a tenth of a second that most verbs never need

    return httpx.Client(follow_redirects=True, timeout=TIMEOUT_S)


def fetch(url: str, *, limit: int) -> bytes:
    """A small document: a manifest, an index page. More than `limit` bytes is an error, not memory."""
    import httpx  # noqa: PLC0415

    body = bytearray()
    try:
        with _client() as client, client.stream("GET", url) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > limit:
                    raise NetworkError(url, f"the answer is larger than the {limit:,} bytes allowed")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _error(url, error) from error
    return bytes(body)


def size_of(url: str) -> int | None:
    """The bytes a download would take, where the server tells."""
    import httpx  # noqa: PLC0415

    try:
        with _client() as client:
            response = client.head(url, headers={"Accept-Encoding": "identity"})
            response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _error(url, error) from error
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def download(url: str, to: Path, *, sha256: str | None = None, label: str = "") -> None:
    """Fetch `url` into `to`, continuing an earlier attempt and checking the hash before it gets its name."""
    import httpx  # noqa: PLC0415

    part = to.with_name(to.name + ".part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        _stream(url, part, label or to.name)
        _verify(url, part, sha256)
        part.replace(to)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _error(url, error) from error
    except OSError as error:
        raise UnreadableError.from_os(error, to) from error


def _stream(url: str, part: Path, label: str) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with _client() as client, client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:  # noqa: PLR2004 - range not satisfiable: all of it is here already
            return
        response.raise_for_status()
        resumed = response.status_code == 206  # noqa: PLR2004 - partial content; a plain 200 starts over
        length = response.headers.get("Content-Length", "")
        total = int(length) + (have if resumed else 0) if length.isdigit() else None
        with part.open("ab" if resumed else "wb") as file, log.progress(label, total) as progress:
            progress.advance(have if resumed else 0)
            for chunk in response.iter_bytes():  # as they come: what has come survives a break
                file.write(chunk)
                progress.advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())


def _verify(url: str, part: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != sha256.lower():
        part.unlink()  # or the next attempt would resume from bytes that are wrong
        raise NetworkError(
            url,
            f"sha256 is {digest.hexdigest()}, expected {sha256}",
            hint="it came damaged, or is another file under that name: try again, or another mirror",
        )


def _error(url: str, error: Exception) -> NetworkError:
    return NetworkError(url, str(error) or type(error).__name__, hint="check the network, or the index URL")
