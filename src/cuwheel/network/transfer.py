"""Documents and downloads from servers. Downloads resume, are checked, and appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from cuwheel.errors import NetworkError
from cuwheel.network import addresses, client
from cuwheel.network.client import Page
from cuwheel.support import codec, files, log, system_calls
from cuwheel_core.errors import CuwheelError, UnreadableError
from cuwheel_core.support import bounded, opening
from cuwheel_core.support.wording import size

if TYPE_CHECKING:
    import httpx


LARGEST = 32 * 10**9  # bytes of a download whose size nobody announced
_DOCUMENT_S = 120.0
_DOCUMENT_START_S = 20.0  # after which a document has to come at the slowest rate, too
_START_S = 300.0
SLOWEST = 16_000  # bytes a second over the whole download: a server that trickles does not hold us for ever
_IDLE_S = 120.0  # without a single byte of a download, which has hours in all: caches and mirrors fetch it first
_RESUMED = 3  # times that a download which breaks off is continued, within one call
_PARTIAL, _COMPLETE = 206, 416  # statuses: a range of it; the range asked for lies behind its end


class OverBudgetError(NetworkError):
    """More would have to be downloaded than the user allows. `count`: how much, where that is known before."""

    def __init__(self, url: str, limit: int, count: int | None) -> None:
        self.words = f"reading it takes {size(count)}, more than is left" if count else "it takes more than is left"
        super().__init__(url, f"{self.words} of the {limit:,} bytes allowed")


class TooSlowError(NetworkError):
    """It comes, but would take hours: not tried again."""


class Budget:
    """Bytes that may be downloaded, for any number of files; None for no limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit, self.used = limit, 0
        self._lock = threading.Lock()

    def must_allow(self, url: str, count: int, *, is_all: bool = True) -> None:
        if self.limit is not None and self.used + count > self.limit:
            raise OverBudgetError(url, self.limit, count if is_all else None)

    def spend(self, url: str, count: int) -> None:
        with self._lock:
            self.must_allow(url, count, is_all=False)
            self.used += count


def fetch(url: str, *, limit: int, session: client.Session | None = None) -> bytes:
    """A small document: a manifest, an index page. More than `limit` bytes is an error, not memory."""
    with client.request("GET", url, session=session) as response:
        return body_of(response, limit)


def body_of(response: httpx.Response, limit: int) -> bytes:
    began = time.monotonic()
    body = bytearray()
    for chunk in _decoded(response, limit):
        body += chunk
        if len(body) > limit:
            raise NetworkError(str(response.url), f"the answer is larger than the {limit:,} bytes allowed")
        allowed = min(_DOCUMENT_S, _DOCUMENT_START_S + len(body) / SLOWEST)
        if time.monotonic() - began > allowed:
            problem = f"the answer was not complete within {allowed:.3g} s: {len(body):,} bytes came"
            raise NetworkError(str(response.url), problem, "the server is too slow: try again later, or use a mirror")
    return bytes(body)


def _decoded(response: httpx.Response, limit: int) -> Iterator[bytes]:
    """A server that compresses though nobody asked: unpacked in pieces, so that a bomb has no room to go off."""
    kind = response.headers.get("Content-Encoding", "identity").strip().lower()
    if kind in ("identity", ""):
        yield from response.iter_raw()
        return
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise NetworkError(str(response.url), f"the answer is compressed in a way that was not requested: {kind}")
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        for chunk in response.iter_raw():
            yield inflate.decompress(chunk, limit + 1)
            if inflate.unconsumed_tail:
                raise NetworkError(str(response.url), f"the answer is larger than the {limit:,} bytes allowed")
    except zlib.error as error:
        raise NetworkError(str(response.url), f"the answer is damaged: {error}") from error


def size_of(url: str) -> int | None:
    """The bytes a download would take, where the server tells."""
    with client.request("HEAD", url) as response:
        return length(response)


def patience_for(count: int) -> float:
    """Seconds that so many bytes may take in all."""
    return _START_S + count / SLOWEST


def length(response: httpx.Response) -> int | None:
    """What a server says that an answer will have."""
    text = response.headers.get("Content-Length", "")
    return bounded.whole(text)


def download(url: str, to: Path, *, sha256: str | None = None, size: int | None = None, label: str = "") -> None:
    """Fetch `url` into `to`, continuing an earlier attempt and checking size and hash before it gets its name.

    Another process that is at the same file is waited for, and what it fetched is taken.
    """
    url = addresses.plain(url)
    part = to.with_name(to.name + ".part")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with _held(part) as file:
            if file is None:
                _verify(url, to, sha256)
                return
            _complete(url, file, size, label or to.name)
            _verify(url, part, sha256)
            if os.name == "posix":
                system_calls.rename_over(part, to)
        if os.name == "nt":  # which renames no file that is open
            # Unless another process that waited for the file has done it.
            try:
                system_calls.rename_over(part, to)
            except (FileNotFoundError, PermissionError):
                if not to.exists():
                    raise
    except OSError as error:
        raise UnreadableError.from_os(error, to) from error


@contextlib.contextmanager
def _held(part: Path) -> Iterator[IO[bytes] | None]:
    """The unfinished file, ours alone; None where another process has just finished it."""
    with part.open("ab") as file:
        files.wait_for_lock(file.fileno(), what=part.name.removesuffix(".part"))
        ours = part.exists() and os.path.samestat(os.fstat(file.fileno()), part.stat())
        if ours or part.with_suffix("").exists():
            yield file if ours else None
            return
    with _held(part) as file:  # the other one gave up and removed it
        yield file


def _complete(url: str, file: IO[bytes], size: int | None, label: str) -> None:
    with contextlib.ExitStack() as stack:
        shown = _Shown(label, stack)
        for remaining in reversed(range(_RESUMED)):
            before = file.seek(0, os.SEEK_END)
            try:
                _stream(url, file, size, shown)
            except client.NotReachableError:
                raise
            except NetworkError as error:
                if not remaining or file.seek(0, os.SEEK_END) <= before or isinstance(error, _LimitError):
                    raise
                log.debug("%s: continuing", error.message)
            else:
                return


class _Shown:
    """The progress of a download over all its attempts: a byte counts once, though it be fetched again."""

    def __init__(self, label: str, stack: contextlib.ExitStack) -> None:
        self._label, self._stack, self._counted = label, stack, 0
        self._progress: log.Progress | None = None

    def reached(self, have: int, total: int | None) -> None:
        if self._progress is None:
            self._progress = self._stack.enter_context(log.progress(self._label, total))
        if have > self._counted:
            self._progress.advance(have - self._counted)
            self._counted = have


class _LimitError(NetworkError):
    """What comes is not what was announced, or does not end: not to be tried again."""


def _stream(url: str, file: IO[bytes], size: int | None, shown: _Shown) -> None:
    have = file.seek(0, os.SEEK_END)
    if size is not None and have > size:
        file.truncate(have := 0)
    with client.request("GET", url, {"Range": f"bytes={have}-"} if have else {}, idle=_IDLE_S) as response:
        if response.status_code == _COMPLETE:
            return
        if response.status_code != _PARTIAL:  # a plain answer starts over
            file.truncate(have := 0)
        remaining = length(response)
        total = None if remaining is None else remaining + have
        most = _most(url, file, size, total)
        deadline = time.monotonic() + patience_for(size or total or LARGEST)
        shown.reached(have, total)
        for chunk in response.iter_raw():  # as they come: what has come survives a break
            have += len(chunk)
            if have > most:
                file.truncate(0)
                raise _LimitError(url, f"it sends more than the {most:,} bytes that were announced")
            file.write(chunk)
            shown.reached(have, total)
            if time.monotonic() > deadline:
                raise _LimitError(url, f"it is too slow: {have:,} bytes in more than {_START_S:g} s")
        file.flush()
        os.fsync(file.fileno())
    if size is not None and have != size:
        raise NetworkError(url, f"it ended after {have:,} of {size:,} bytes")


def _most(url: str, file: IO[bytes], size: int | None, total: int | None) -> int:
    """How many bytes may come: known before the first is written."""
    if size is not None and total is not None and size != total:
        raise _LimitError(url, f"it has {total:,} bytes, but {size:,} were announced: it is another file")
    most = next((each for each in (size, total) if each is not None), LARGEST)
    if most > LARGEST:
        raise _LimitError(url, f"it has {most:,} bytes, more than the {LARGEST:,} allowed")
    room = shutil.disk_usage(os.path.dirname(file.name)).free + file.seek(0, os.SEEK_END)  # noqa: PTH120
    if (size or total) and most > room:
        raise _LimitError(url, f"it has {most:,} bytes, but there is room for only {room:,}", hint="free some space")
    return most


def _verify(url: str, path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    found = files.sha256(path)
    if found != sha256.lower():
        path.unlink()  # or the next attempt would resume from bytes that are wrong
        raise NetworkError(
            url,
            f"sha256 is {found}, expected {sha256}",
            hint="the download is damaged or is another file: try again, or use another mirror",
        )


# Pages of an index: kept with what their server says of their age, and asked for again only if they changed.

_NOT_MODIFIED = 304
_VALIDATORS = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))


def read_page(url: str, *, accept: str, limit: int, session: client.Session) -> Page:
    """Raises `client.NotThereError` where the server has none."""
    key = files.sha256_of(f"{accept}\n{addresses.plain(url)}".encode())
    if key in session.pages:
        return session.pages[key]
    place = files.cache_folder() / "pages" / key
    kept = _kept(place, limit)
    known = kept.validators if kept else {}
    headers = {asked: known[header] for header, asked in _VALIDATORS if header in known}
    headers |= {"Accept": accept, "Accept-Encoding": "gzip"}  # a page is text: a sixth of it comes
    with client.request("GET", url, headers, session=session) as response:
        if kept and response.status_code == _NOT_MODIFIED:
            return session.pages.setdefault(key, kept)
        page = Page(
            url=addresses.plain(str(response.url)),
            kind=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            body=body_of(response, limit),
            validators={header: value for header, _ in _VALIDATORS if (value := response.headers.get(header))},
        )
    if page.validators and "no-store" not in response.headers.get("Cache-Control", "").lower():
        # A cache that cannot be written is no reason to fail.
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            files.write(place, codec.pack(page))
        except (OSError, CuwheelError) as error:
            log.debug("%s is not kept: %s", page.url, error)
    return session.pages.setdefault(key, page)


def _kept(place: Path, limit: int) -> Page | None:
    try:
        with place.open("rb") as file:
            data = opening.read_up_to(file, 2 * limit + 1)
        return codec.unpack(data, Page) if len(data) <= 2 * limit else None
    except (OSError, msgspec.DecodeError):
        return None
