"""Lines in other languages into the English that the signatures are written in: the phrases of `foreign.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from cuwheel.errors import FactsError

TABLE = Path(__file__).with_name("foreign.toml")
_QUOTES = str.maketrans(dict.fromkeys("\u2018\u2019\u201c\u201d`\u00ab\u00bb", "'"))
_NAME = r"'([^']{1,200})'"
_LONGEST = 4000  # of the lines whose words are put in order: no compiler's message is longer
# Those whose words stand in another order, after quotation marks were made one: a sign of them, the whole, in English.
_TURNED = (
    ("未定义的引用", re.compile(r"对\s?'?([^'对]{1,200}?)'?\s?未定义的引用"), r"undefined reference to '\1'"),
    ("sin definir", re.compile(rf"referencia a {_NAME} sin definir"), r"undefined reference to '\1'"),
    ("没有名为", re.compile(rf"{_NAME}\s?没有名为\s?{_NAME}\s?的成员"), r"'\1' has no member named '\2'"),
    ("的成员", re.compile(rf"{_NAME}\s?不是\s?{_NAME}\s?的成员"), r"'\1' is not a member of '\2'"),
    ("nicht finden", re.compile(r"kann (-l[\w.+-]{1,80}) nicht finden"), r"cannot find \1"),
    ("が見つかりません", re.compile(r"(-l[\w.+-]{1,80}) が見つかりません"), r"cannot find \1"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    english: str
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """foreign.toml."""

    phrase: tuple[Phrase, ...]


@cache
def english_of() -> dict[str, str]:
    """By what is said, in small letters."""
    try:
        table = msgspec.convert(msgspec.toml.decode(TABLE.read_bytes()), Phrases)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise FactsError([f"{TABLE.name}: {error}"]) from error
    return {said.lower(): phrase.english for phrase in table.phrase for said in phrase.said}


class Translator:
    """Knows which of the phrases a log has at all: its lines are compared with these alone."""

    def __init__(self, text: str) -> None:
        lowered = text.lower()
        self._english = {said: english for said, english in english_of().items() if said in lowered}
        found = sorted(self._english, key=len, reverse=True)
        self._phrases = re.compile("|".join(map(re.escape, found)), re.IGNORECASE) if found else None
        self._turned = tuple((pattern, form) for sign, pattern, form in _TURNED if sign in lowered)

    def __bool__(self) -> bool:
        return bool(self._english or self._turned)

    def english(self, line: str) -> str:
        """The same line where nothing in it is known."""
        said = line
        if self._turned and len(line) <= _LONGEST:
            quoted = line.translate(_QUOTES)
            for pattern, form in self._turned:
                if pattern.search(quoted):
                    said = quoted = pattern.sub(form, quoted)
        return self._phrases.sub(lambda match: self._english[match[0].lower()], said) if self._phrases else said
