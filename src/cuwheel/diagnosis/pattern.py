"""The little language in which signatures are written, and its matcher.

Regular expressions can be made to run away, and are hard to review in a file of facts. A pattern here is the text of
a message with four kinds of holes:

- `*`: anything, later in the same line;
- `<a|b|c>`: one of these, `<a|>`: or nothing;
- `{kind}` or `{kind:name}`: a version, a number, a word, … (`KINDS`), kept under that name;
- a blank: any run of blanks; before a colon also none, as people copy nvcc's `fatal   :` in all ways.

Case does not count, all quotation marks are one, and a backslash is a slash: see `fold`. The parts between `*` are
searched one after the other, each leftmost. Nothing in a part repeats but the holes, which are bounded, so that the
work is linear in the length of the line.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


KINDS = {
    "n": r"\d{1,9}",
    "version": r"\d{1,5}(?:\.\d{1,6}){0,4}",
    "dotted": r"\d{1,5}(?:\.\d{1,6}){1,4}",
    "word": r"[^\s',;:()\[\]]{1,120}",
    "name": r"[\w.+-]{1,120}",
    "path": r"[^\s'<>|]{1,300}",
    "quoted": r"[^']{1,300}",
    "arch": r"(?:sm_|compute_)?\d{2,3}[af]?",
    "b": r"(?<![a-z0-9_])(?=[a-z0-9_])|(?<=[a-z0-9_])(?![a-z0-9_])",  # Chinese has no blanks round a word
    "fortran": r"[a-z]{3,6}[a-z0-9]_(?![a-z0-9_])",
    "less": "<=?",
    "more": ">=?",
}
_SHORT = {"b", "less", "more"}  # nothing, or a sign: another hole may follow
_WORD = re.compile(r"[a-z0-9_]+")  # of folded text
_PART = 1 << 20  # letters whose words are listed at once
_SHORTEST_NEEDLE = 3
REACH = 2000  # how far from its needle the rest of a pattern may stand
_HOLE = re.compile(r"\{([a-z]+)(?::([a-z_0-9]+))?\}")
_HOLES = re.compile(r"\{[^{}]*\}|<[^<>]*>| (?=:)")
_CHOICE = re.compile(r"<([^<>]*)>")
_TOKEN = re.compile(r"(?P<hole>\{[^{}]*\})|(?P<choice><[^<>]*>)|(?P<stray>[{}<|])|(?P<blank> +)|(?P<text>[^{}<| ]+)")
_QUOTES = '"`\u00b4\u2018\u2019\u201c\u201d\u00ab\u00bb'
_FOLDED = {ord(each): "'" for each in _QUOTES} | {ord("\\"): "/", 0xA0: " ", ord("\t"): " ", 0xFF1A: ":"}


def fold(text: str) -> str:
    """The text as it is compared; as long as it was, so that a place in one is a place in the other."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals have no small letter of the same length
        lowered = "".join(low if len(low := each.lower()) == 1 else each for each in text)
    return lowered.translate(_FOLDED)


class PatternError(ValueError):
    """What is wrong with a pattern."""


def words(folded: str) -> frozenset[str]:
    """A part of the text at a time: the list of all words, most of them many times over, would be large."""
    found, place = set[str](), 0
    while place < len(folded):
        line_end = folded.find("\n", place + _PART)
        end = len(folded) if line_end < 0 else line_end
        found.update(_WORD.findall(folded, place, end))
        place = end + 1
    return frozenset(found)


@cache
def words_of(text: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Those that are whole, and those at its ends, which may go on where it stands."""
    found = _WORD.findall(text)
    if not found:
        return frozenset(), ()
    first = 1 if text.startswith(found[0]) else 0
    last = len(found) - 1 if text.endswith(found[-1]) else len(found)
    return frozenset(found[first:last]), (*found[:first], *found[max(first, last) :])


class Pattern(Struct, frozen=True, kw_only=True):
    """Every line that matches has all `words`, all `fragments` within words, and one text of each of `choices`.

    `needles`: the rarest text that it must have, to search for; of a choice all of them.
    """

    text: str
    words: frozenset[str]
    fragments: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    needles: tuple[str, ...]

    @property
    def parts(self) -> tuple[re.Pattern[str], ...]:
        """Compiled when a needle was found, and not before: of a thousand patterns a log has a few."""
        return _compiled(self.text)

    def find(self, folded: str, shown: str, near: int = 0) -> dict[str, str] | None:
        """What its holes hold, where a line has it; `near`: where one of its needles stands."""
        start, end = max(0, near - REACH), near + REACH
        held: dict[str, str] = {}
        for part in self.parts:
            match = part.search(folded, start, end)
            if match is None:
                return None
            held.update({name: shown[slice(*match.span(name))] for name, value in match.groupdict().items() if value})
            start = match.end()
        return held


@cache
def read_pattern(text: str) -> Pattern:
    demands = tuple(_demands(_parts(text)))
    plain = [words_of(texts[0]) for texts in demands if len(texts) == 1]
    return Pattern(
        text=text,
        words=frozenset(word for whole, _ in plain for word in whole),
        fragments=tuple(sorted({each for _, cut in plain for each in cut}, key=len, reverse=True)),
        choices=tuple(texts for texts in demands if len(texts) > 1),
        needles=_needles(demands),
    )


def check_pattern(text: str) -> Pattern:
    """Raises PatternError for everything that is wrong with it."""
    pattern = read_pattern(text)
    _compiled(text)
    return pattern


@cache
def _compiled(text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(_expression(part)) for part in _parts(text))
    except re.error as error:  # two holes of one name
        raise PatternError(str(error)) from error


def _parts(text: str) -> list[str]:
    folded = " ".join(fold(text).split())
    if parts := [part.strip() for part in folded.split("*") if part.strip()]:
        return parts
    raise PatternError("is empty")


def _expression(part: str) -> str:
    found: list[str] = []
    after_hole = False
    for token in _TOKEN.finditer(part):
        kind, text = token.lastgroup, token[0]
        if kind == "stray":
            raise PatternError(f"has a stray {text!r}")
        is_hole = kind == "hole" and text[1:-1] not in _SHORT
        if is_hole and after_hole:
            raise PatternError("has two holes without text between them")
        after_hole = is_hole
        if kind == "hole":
            found.append(_hole(text))
        elif kind == "choice":
            found.append("(?:" + "|".join(_expression(each) for each in text[1:-1].split("|")) + ")")
        else:
            found.append(re.escape(text) if kind == "text" else " {1,40}")
    return "".join(found).replace(" {1,40}:", " {0,40}:")


def _hole(text: str) -> str:
    match = _HOLE.fullmatch(text)
    if match is None or match[1] not in KINDS:
        raise PatternError(f"has a hole of an unknown kind: {text}")
    return f"(?P<{match[2]}>{KINDS[match[1]]})" if match[2] else f"(?:{KINDS[match[1]]})"


def _demands(parts: list[str]) -> Iterator[tuple[str, ...]]:
    """The texts outside the holes, and of each choice all its texts, unless one of them is nothing."""
    for part in parts:
        for run in _HOLES.split(part):
            if len(run.strip()) >= _SHORTEST_NEEDLE:
                yield (run.strip(),)
        for choice in _CHOICE.findall(part):
            texts = tuple(max(_HOLES.split(each), key=len).strip() for each in choice.split("|"))
            if all(texts):
                yield texts


def _needles(demands: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The longest text that must be there; failing one, the choice whose shortest text is the longest."""
    plain = [texts for texts in demands if len(texts) == 1]
    for found in (plain, demands):
        best = max(found, key=lambda texts: min(map(len, texts)), default=("",))
        if min(map(len, best)) >= _SHORTEST_NEEDLE:
            return best
    raise PatternError(f"has no plain text of {_SHORTEST_NEEDLE} letters to search for")
