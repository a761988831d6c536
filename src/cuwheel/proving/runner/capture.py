"""What a check prints, as it comes: the beginning and the end are kept, texts are looked for in all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

HEAD = 8 * 1024
TAIL = 24 * 1024
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\b(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# As in cuwheel's `printable`, which does not travel with this: what a terminal acts on, or does not show.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


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
    """As text that is safe to print and to keep."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return printable(_ESCAPE.sub("", text))


def printable(text: str) -> str:
    return _UNSHOWN.sub("\ufffd", text)
