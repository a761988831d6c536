"""Lines in other languages, and of other compilers, into the words that the signatures are written in.

The phrases are in `foreign.toml`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = Path(__file__).with_name("foreign.toml")
_QUOTES = str.maketrans(dict.fromkeys('\u2018\u2019\u201c\u201d"`\u00ab\u00bb', "'"))
_NAME = r"'([^']{1,200})'"
_LONGEST = 4000  # of the lines whose words are put in order: no compiler's message is longer
_MISSING = r"\1: No such file or directory"
_UNDEFINED = r"undefined reference to '\1'"
# Those whose words stand in another order, after quotation marks were made one: a sign of them, the whole, in English.
# Then those of other compilers and linkers, as GCC and GNU's linker say it.
_TURNED = tuple(
    (sign, re.compile(whole, re.IGNORECASE), form)
    for sign, whole, form in (
        ("未定义的引用", r"对\s?'?([^'对]{1,200}?)'?\s?未定义的引用", _UNDEFINED),
        ("sin definir", rf"referencia a {_NAME} sin definir", _UNDEFINED),
        ("没有名为", rf"{_NAME}\s?没有名为\s?{_NAME}\s?的成员", r"'\1' has no member named '\2'"),
        ("的成员", rf"{_NAME}\s?不是\s?{_NAME}\s?的成员", r"'\1' is not a member of '\2'"),
        ("nicht finden", r"kann (-l[\w.+-]{1,80}) nicht finden", r"cannot find \1"),
        ("nicht gefunden werden", r"(-l[\w.+-]{1,80}) kann nicht gefunden werden", r"cannot find \1"),
        ("が見つかりません", r"(-l[\w.+-]{1,80}) が見つかりません", r"cannot find \1"),
        ("open source file", rf"(?:cannot|could not) open source file {_NAME}", _MISSING),
        ("open include file", rf"cannot open include file: {_NAME}", _MISSING),
        ("file not found", rf"{_NAME} file not found", _MISSING),
        ("c1083", rf"c1083\b[^']{{1,80}}{_NAME}", _MISSING),  # in whatever language
        (
            "lnk1",
            r"lnk1(?:104|181)\b[^']{1,80}'(?:[^']{0,200}[\\/])?(?:lib)?([\w.+-]{1,80})\.lib'",
            r"cannot find -l\1",
        ),
        ("include file", rf"include file {_NAME} not found", _MISSING),
        ("unresolved external symbol", r"unresolved external symbol '?(?:__imp_)?([\w@?$.]{1,200})'?", _UNDEFINED),
        ("library", r"(?:unable to find library|library not found for) (-l[\w.+-]{1,80})", r"cannot find \1"),
        (
            ".lib",
            r"cannot open (?:input )?file '(?:[^']{0,200}[\\/])?(?:lib)?([\w.+-]{1,80})\.lib'",
            r"cannot find -l\1",
        ),
    )
)


class Phrase(Struct, frozen=True, kw_only=True):
    english: str
    wordings: tuple[str, ...]


class Phrases(Struct, frozen=True, kw_only=True):
    """foreign.toml."""

    phrase: tuple[Phrase, ...]


@cache
def english_of() -> dict[str, str]:
    """By what is said, in small letters."""
    table = codec.own_table(TABLE, Phrases)
    return {text.lower(): phrase.english for phrase in table.phrase for text in phrase.wordings}


class Translator:
    """Knows which of the phrases a log has at all: its lines are compared with these alone."""

    def __init__(self, text: str, may_hold: Callable[[str], bool]) -> None:
        """`may_hold`: whether all words of a phrase are somewhere in the text, which is quicker to say."""
        lowered = text.lower()
        plain = text.isascii()  # then most of them need not be looked for
        self._english = {
            phrase: english
            for phrase, english in english_of().items()
            if not (plain and not phrase.isascii()) and may_hold(phrase) and phrase in lowered
        }
        found = sorted(self._english, key=len, reverse=True)
        self._phrases = re.compile("|".join(map(re.escape, found)), re.IGNORECASE) if found else None
        self._turned = tuple(each for each in _TURNED if may_hold(each[0]) and each[0] in lowered)

    def __bool__(self) -> bool:
        return bool(self._english or self._turned)

    def english(self, line: str) -> str:
        """The same line where nothing in it is known."""
        translated = self._phrases.sub(lambda match: self._english[match[0].lower()], line) if self._phrases else line
        if not self._turned or len(line) > _LONGEST:
            return translated
        lowered = translated.lower()
        if turned := [each for each in self._turned if each[0] in lowered]:
            quoted = translated.translate(_QUOTES)
            for _, pattern, form in turned:
                if pattern.search(quoted):
                    translated = quoted = pattern.sub(form, quoted)
        return translated
