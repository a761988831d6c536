"""A file on a server of which only the parts that are read are fetched: a zip's directory, some of its members.

What came is kept in a file without a name, so that nothing is fetched twice and nothing is left behind. A server that
does not send parts of a file sends all of it.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client, transfer
from cuwheel.network.transfer import Budget, OverBudgetError, TooSlowError
from cuwheel_core.errors import UnreadableError
from cuwheel_core.support import bounded
from cuwheel_core.support.buffer import check

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import httpx

_AT_LEAST = 1 << 16
_AT_ONCE = 1 << 22
_PARTIAL, _UNSATISFIABLE = 206, 416
_ATTEMPTS = 3
_PATIENCE_S = 30.0  # of one part, after which it has to come at the slowest rate, too
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII | re.IGNORECASE)


class RemoteFile:
    """A buffer. Opened at its end, where a zip has its directory. `size`: what its index says of it."""

    def __init__(
        self,
        url: str,
        *,
        session: client.Session | None = None,
        budget: Budget | None = None,
        size: int | None = None,
    ) -> None:
        self.name = addresses.plain(url)
        self.size = 0
        self._session = session
        self._budget = budget or Budget()
        self._changed = threading.Condition()
        self._asked_for: list[tuple[int, int]] = []  # spans that some thread is fetching
        self._tag: str | None = None
        self._starts: list[int] = []  # of the spans that are here, in order; none touches another
        self._ends: list[int] = []
        self._windows: dict[int, int] = {}  # end of a span → how much was fetched to get there
        try:
            self._file = tempfile.TemporaryFile(prefix="cuwheel-")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UnreadableError.from_os(error, tempfile.gettempdir()) from error
        try:
            self._open(size)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def read(self, offset: int, count: int) -> bytes:
        """From any thread: several fetch at once, but not the same."""
        check(self, offset, count)
        position = offset
        with self._changed:
            while position < offset + count:
                if (end := self._here_until(position)) is not None:
                    position = end
                elif any(start <= position < stop for start, stop in self._asked_for):
                    self._changed.wait()
                else:
                    self._fetch(position, offset + count)
            self._file.seek(offset)
            return self._file.read(count)

    def _open(self, size: int | None) -> None:
        with self._asked(f"-{_AT_LEAST}") as response:
            if response.status_code == _UNSATISFIABLE:
                raise NetworkError(self.name, "is empty, or the server does not send parts of a file")
            self._size_is(response, size)
            self._take(response, self._start(response))

    def _size_is(self, response: httpx.Response, announced: int | None) -> None:
        size = _whole_size(response)
        if size is None:
            raise NetworkError(self.name, "the server does not say how large it is")
        if announced is not None and size != announced:
            raise NetworkError(
                self.name, f"it has {size:,} bytes, but {announced:,} were announced: it is another file"
            )
        self.size, self._tag = size, response.headers.get("ETag")

    def _start(self, response: httpx.Response) -> int:
        """Where in the file an answer begins: at its start where the server sends all of it."""
        if response.status_code != _PARTIAL:
            return 0
        match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if match is None or not bounded.digits(match[1]) <= bounded.digits(match[2]) < bounded.digits(match[3]):
            raise NetworkError(self.name, "the server sends parts of a file without saying which")
        return bounded.digits(match[1])

    def _fetch(self, start: int, wanted: int) -> None:
        """From `start` to at least some way further. Held while it is decided what, and not while it comes."""
        window = min(2 * self._windows.pop(start, _AT_LEAST // 2), _AT_ONCE)
        index = bisect_right(self._starts, start)
        following = (*self._starts[index : index + 1], *(each for each, _ in self._asked_for if each > start))
        stop = min(max(wanted, start + window), self.size, start + _AT_ONCE, *following)
        self._asked_for.append((start, stop))
        self._changed.release()
        try:
            self._fetch_span(start, stop)
        finally:
            self._changed.acquire()
            self._asked_for.remove((start, stop))
            self._changed.notify_all()

    def _fetch_span(self, start: int, stop: int) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._asked(f"{start}-{stop - 1}") as response:
                    self._must_be_same(response, start)
                    self._take(response, self._start(response))
            except (client.NotReachableError, OverBudgetError, TooSlowError):
                raise
            except NetworkError:
                if attempt == _ATTEMPTS and self._come_until(start) is None:
                    raise
            if self._come_until(start) is not None:
                return
        raise NetworkError(self.name, f"the server sends nothing at {start:,}")

    def _come_until(self, start: int) -> int | None:
        """The same as `_here_until` of what was fetched from there, which is remembered: the next part is larger."""
        with self._changed:
            if (end := self._here_until(start)) is not None:
                self._windows[end] = end - start
            return end

    def _asked(self, part: str) -> AbstractContextManager[httpx.Response]:
        return client.request("GET", self.name, {"Range": f"bytes={part}"}, session=self._session)

    def _must_be_same(self, response: httpx.Response, start: int) -> None:
        if _whole_size(response) != self.size or response.headers.get("ETag") != self._tag:
            raise NetworkError(self.name, "it changed while it was read", hint="try again")
        if self._start(response) > start:
            raise NetworkError(self.name, "the server sends another part than the one that was asked for")

    def _take(self, response: httpx.Response, at: int) -> None:
        """What an answer holds, as it comes: what came before a connection breaks is kept."""
        if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise NetworkError(self.name, "the answer is compressed in a way that was not requested")
        if response.status_code != _PARTIAL:
            self._budget.must_allow(self.name, self.size)
        began, count = time.monotonic(), 0
        for chunk in self._within(response, at):
            self._budget.spend(self.name, len(chunk))
            with self._changed:
                try:
                    self._file.seek(at)
                    self._file.write(chunk)
                except OSError as error:
                    raise UnreadableError.from_os(error, tempfile.gettempdir()) from error
                self._have(at, at + len(chunk))
            at += len(chunk)
            count += len(chunk)
            if time.monotonic() - began > _PATIENCE_S + count / transfer.SLOWEST:
                raise TooSlowError(
                    self.name, f"it comes too slowly: {count:,} bytes in {time.monotonic() - began:.0f} s"
                )

    def _within(self, response: httpx.Response, at: int) -> Iterator[bytes]:
        for chunk in response.iter_raw():
            if at + len(chunk) > self.size:
                raise NetworkError(self.name, f"it sends more than the {self.size:,} bytes that were announced")
            at += len(chunk)
            yield chunk

    def _here_until(self, offset: int) -> int | None:
        index = bisect_right(self._starts, offset) - 1
        return self._ends[index] if index >= 0 and offset < self._ends[index] else None

    def _have(self, start: int, end: int) -> None:
        first = bisect_right(self._starts, start)
        if first and self._ends[first - 1] >= start:
            first -= 1
            start = self._starts[first]
        last = first
        while last < len(self._starts) and self._starts[last] <= end:
            end = max(end, self._ends[last])
            last += 1
        self._starts[first:last], self._ends[first:last] = [start], [end]


def _whole_size(response: httpx.Response) -> int | None:
    """The size of the whole file that a part was asked of."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    return bounded.digits(match[3]) if match else transfer.length(response)
