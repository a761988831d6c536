"""Both streams of a program as they come, without waiting for it."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import subprocess
import threading
import time

from .capture import Capture

_PIECE = 1 << 16
_AHEAD = 16  # pieces that nobody has taken yet: one that prints without end waits then
_STREAMS = ("stdout", "stderr")


class Pipes:
    """Of POSIX, where the system says which pipe has something."""

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


def of(child: subprocess.Popen[bytes], capture: Capture) -> Pipes:
    return PipesOfWindows(child, capture) if os.name == "nt" else Pipes(child, capture)
