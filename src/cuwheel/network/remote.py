"""A file on a server of which only the parts that are read are fetched: a zip's directory, one member of it."""

from __future__ import annotations

import io
import os

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client

_AT_LEAST = 1 << 16
_PARTIAL = 206


class RemoteFile(io.RawIOBase):
    """Opened at its end, where a zip has its directory; `_window` is the part that was fetched last."""

    def __init__(self, url: str) -> None:
        self._url, self._position = url, 0
        self._size, self._start, self._window = 0, 0, b""
        self._fetch(f"-{_AT_LEAST}")

    def _fetch(self, part: str) -> None:
        with client.request("GET", self._url, {"Range": f"bytes={part}"}) as response:
            told = response.headers.get("Content-Range", "")
            if response.status_code != _PARTIAL or "-" not in told:
                raise NetworkError(addresses.plain(self._url), "the server does not send parts of a file")
            self._window = response.read()
        span, _, size = told.removeprefix("bytes ").partition("/")
        self._start, self._size = int(span.partition("-")[0]), int(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._size - self._position if size < 0 else min(size, self._size - self._position)
        if wanted <= 0:
            return b""
        ahead = self._position - self._start
        if ahead < 0 or ahead + wanted > len(self._window):
            last = min(self._position + max(wanted, _AT_LEAST), self._size) - 1
            self._fetch(f"{self._position}-{last}")
            ahead = 0
        self._position += wanted
        return self._window[ahead : ahead + wanted]
