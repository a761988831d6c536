"""What a check prints, as it comes: the beginning and the end are kept, texts are looked for in all of it."""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Iterable

try:  # in a kit it lies beside this package
    from ..support import printable as printable  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0414
except ImportError:
    printable = importlib.import_module("cuwheel_core.support.printable")

HEAD = 8 * 1024
TAIL = 24 * 1024
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class Bounded:
    """The first and the last bytes of a stream of any length."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._most_head, self._most_tail = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self._most_head - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    def text(self) -> str:
        tail = bytes(self._tail[-self._most_tail :]) if self._most_tail else b""
        dropped = self.total - len(self._head) - len(tail)
        if dropped <= 0:
            return shown(bytes(self._head) + tail)
        return f"{shown(bytes(self._head))}\n… {dropped:,} bytes left out …\n{shown(tail)}"


class Search:
    """Which of some texts a stream holds, whatever pieces it comes in."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._wanted = {text: text.encode("utf-8", "replace") for text in texts}
        self._rest = b""
        self.found: set[str] = set()

    def add(self, piece: bytes) -> None:
        missing = {text: wanted for text, wanted in self._wanted.items() if text not in self.found}
        if not missing:
            return
        seen = self._rest + piece
        self.found |= {text for text, wanted in missing.items() if wanted in seen}
        overlap = max(len(wanted) for wanted in missing.values()) - 1
        self._rest = seen[-overlap:] if overlap > 0 else b""


class Capture:
    """Both streams of a check. Of the numbers printed only the last one of standard output is asked for."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.whole = Bounded()
        self._printed = Bounded(head=0)
        self._searches = {"stdout": Search(texts), "stderr": Search(texts)}

    def add(self, stream: str, piece: bytes) -> None:
        self.whole.add(piece)
        self._searches[stream].add(piece)
        if stream == "stdout":
            self._printed.add(piece)

    def found(self) -> set[str]:
        return set().union(*(search.found for search in self._searches.values()))

    def last_number(self) -> float | None:
        numbers = _NUMBER.findall(self._printed.text())
        return float(numbers[-1]) if numbers else None


def shown(raw: bytes) -> str:
    """Output as text that is safe to print and to keep."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    found: str = printable.text(_ESCAPE.sub("", text))
    return found


# Both streams of a program as they come, without waiting for it.


_PIECE = 1 << 16
_AHEAD = 16  # pieces that nobody has taken yet: one that prints without end waits then
_STREAMS = ("stdout", "stderr")


class Pipes:
    """Pipes of POSIX, where the system says which one has something."""

    def __init__(self, child: subprocess.Popen[bytes], capture: Capture) -> None:
        self._capture, self._selector = capture, selectors.DefaultSelector()
        for name in _STREAMS:
            stream = getattr(child, name)
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, name)

    @property
    def are_open(self) -> bool:
        return bool(self._selector.get_map())

    def take(self, wait: float) -> bool:
        """One piece of each stream that has one; whether there was any."""
        some = False
        for key, _ in self._selector.select(wait):
            try:
                piece = os.read(key.fd, _PIECE)
            except BlockingIOError:
                continue
            if piece:
                self._capture.add(str(key.data), piece)
                some = True
            else:
                self._selector.unregister(key.fileobj)
        return some

    def drain(self, patience: float) -> None:
        """What is in the pipes now; one that goes on writing is not waited for."""
        until = time.monotonic() + patience
        while self.are_open and self.take(0) and time.monotonic() < until:
            pass

    def close(self) -> None:
        self._selector.close()


class PipesOfWindows(Pipes):
    """There a pipe must be read to know whether it has something: a thread for each."""

    def __init__(self, child: subprocess.Popen[bytes], capture: Capture) -> None:
        self._capture, self._open = capture, len(_STREAMS)
        self._pieces: queue.Queue[tuple[str, bytes]] = queue.Queue(_AHEAD)
        # Descriptors of the threads' own: when the child's are closed, their numbers are soon those of other pipes.
        sources = {name: os.dup(getattr(child, name).fileno()) for name in _STREAMS}
        self._threads = [threading.Thread(target=self._read, args=each, daemon=True) for each in sources.items()]
        for each in self._threads:
            each.start()

    def _read(self, name: str, source: int) -> None:
        with contextlib.suppress(OSError):
            while piece := os.read(source, _PIECE):
                self._pieces.put((name, piece))
        os.close(source)
        self._pieces.put((name, b""))

    @property
    def are_open(self) -> bool:
        return self._open > 0

    def take(self, wait: float) -> bool:
        try:
            name, piece = self._pieces.get(timeout=wait) if wait else self._pieces.get_nowait()
        except queue.Empty:
            return False
        if piece:
            self._capture.add(name, piece)
        else:
            self._open -= 1
        return True

    def drain(self, patience: float) -> None:
        """Also what a thread has read and not yet handed over: each says when its pipe is empty and closed."""
        until = time.monotonic() + patience
        while self.are_open and time.monotonic() < until:
            self.take(min(patience, 0.05))

    def close(self) -> None:
        """Nobody takes any more: what the threads still have is thrown away until they end."""
        for each in self._threads:
            while each.is_alive() and self.take(0):
                pass


def open_pipes(child: subprocess.Popen[bytes], capture: Capture) -> Pipes:
    return PipesOfWindows(child, capture) if os.name == "nt" else Pipes(child, capture)
