"""Patterns over a log. Each is looked for by its needle in the whole text, and compared only where that stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.diagnosis.pattern import REACH, read_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.diagnosis.pattern import Pattern
    from cuwheel.diagnosis.text import Log

_TRIES = 200  # lines that are compared with one pattern: a hostile log has its needle on every line
_KEPT = 3


class Hit(Struct, frozen=True, kw_only=True):
    """A line that has a pattern. `line`: its index in the log; `held`: what the pattern's holes hold there."""

    line: int
    pattern: str
    held: dict[str, str]


class Search:
    """Remembers what it has looked for: several causes ask for the same text."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._found: dict[str, tuple[Hit, ...]] = {}

    def hits(self, text: str) -> tuple[Hit, ...]:
        """The first lines that have it."""
        found = self._found.get(text)
        if found is None:
            pattern = read_pattern(text)
            # Of thousands of patterns a log has the words of a few.
            possible = self.log.has_words(pattern.words, pattern.fragments)
            found = self._found[text] = tuple(self._hits(pattern)) if possible else ()
        return found

    def has(self, text: str) -> bool:
        return bool(self.hits(text))

    def _hits(self, pattern: Pattern) -> Iterator[Hit]:
        if not all(any(map(self.log.may_hold, texts)) for texts in pattern.choices):
            return
        folded = self.log.folded
        kept, seen = 0, set()
        for index, (start, end), place in self._places(pattern):
            line = folded[start:end]
            around = line[max(0, place - start - REACH) : place - start + REACH]
            if around in seen:
                continue
            seen.add(around)
            held = pattern.find(line, self.log.lines[index], place - start)
            if held is not None:
                yield Hit(line=index, pattern=pattern.text, held=held)
                kept += 1
                if kept == _KEPT:
                    return

    def _places(self, pattern: Pattern) -> Iterator[tuple[int, tuple[int, int], int]]:
        for needle in pattern.needles:
            if not self.log.may_hold(needle):
                continue
            place, tries = self.log.folded.find(needle), 0
            while place >= 0 and tries < _TRIES:
                index = self.log.index_at(place)
                span = self.log.span(index)
                yield index, span, place
                # The same line may hold the needle again, and fit only there if it is very long.
                place, tries = self.log.folded.find(needle, min(span[1], place + REACH)), tries + 1
