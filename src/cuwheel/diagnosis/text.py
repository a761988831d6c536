"""A log as bytes, from whatever printed, wrapped, coloured or cut it, into lines that can be searched."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.diagnosis import events, pattern, register
from cuwheel.diagnosis.pattern import REACH, Pattern, fold, read_pattern
from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


HALF = 8 * 1024 * 1024  # of a log too long to search whole: its beginning, and as much of its end
_CHUNK = 4 * 1024 * 1024
_SHOWN = 300  # of a line, as evidence
_NARROWEST, _WIDEST = 60, 200  # of terminals that wrap
_USUAL_WIDTH = 80
_LONG = 300  # lines: where a log is longer, one line of some length proves nothing
_PIECES = 12  # of one wrapped line
_MESSAGES = 1000  # that go on below their first line: the first errors are the ones that matter
_CONTINUED, _TOGETHER = 8, 1500  # lines and letters of a message that goes on below its first line
_ASKED_PYTHON = re.compile(r"(?:\([\w.-]+\) )?(?:>>>|In \[\d+\]:|\.\.\.) ?")  # its prompts: the answer stands below
_ESCAPED = 400  # a line longer than this that holds "\n" as two characters is many lines

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_=>()][0-9A-Z]?)")
# What buildkite puts before a line, and escape characters that an upload lost: "[32m", "[0;31m".
_LOST_ANSI = re.compile(r"_bk;t=\d{10,16}\x07?|\[(?:\d{1,3};){0,4}\d{1,3}m")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\ufeff]")
_ESCAPED_QUOTE = re.compile(r'\\{1,15}"')  # JSON within JSON within a log
# A test that was skipped for want of a GPU, as pytest, unittest, GoogleTest and CTest say it: that is no failure.
_SKIPPED = re.compile(r"\bSKIPPED (?:\[\d|\()|\.\.\. skipped\b|\[ SKIPPED \]|\*\*\*Skipped|^SKIP: ")
_LONGEST_NAME = 400  # of a test
_BLANKS = re.compile(r"[ \t\u00a0]{2,}|\t")
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# Prefixes of CI systems, in the order in which they stand: job and step, time, stream, builder's step, container. Then
# what cargo, pip, a mail that is answered and pytest put before what others said.
_PREFIX = re.compile(
    r"(?:[^\t\n]{1,80}\t[^\t\n]{1,80}\t(?=\d{4}-))?"
    rf"(?:\[?{_STAMP}\]?:?[ \t]{{0,4}}(?:\d\d[OE][ +]?)?|\[?\d\d:\d\d:\d\d(?:\.\d{{1,6}})?\]?[ \t]{{1,4}})?"
    r"(?:##\[(?:error|warning|debug|group|section)\]|#\d{1,4} (?:\d{1,6}\.\d{1,4} )?|[\w.-]{1,40}[ \t]{1,8}\| )?"
    r"(?:(?:cargo:warning=|\(stderr\) |\(stdout\) |stderr: |[ \t]{0,12}[│|] |> |E   ))?"
)


class Log(Struct, frozen=True, dict=True):  # no slots: what is worked out is kept
    """Lines as they are shown, each with its number in the file; wrapped ones follow again, put together.

    Then those in other languages again, in English: `printed` has them as they were.
    `truncated`: lines that were left out of the middle of a log too long to read. `prose`: those that somebody wrote
    and no program printed, which are left out too, unless they are `quoted`: numbers of the lines of somebody who tells
    of a failure, in which a known message is one where it was `reported`. `repeated`: indexes of lines that are
    what somebody repeats of a program's words. `trouble`: somebody tells of a GPU or a build that does not work.
    `wish`: they ask for a change, or make one.
    """

    lines: tuple[str, ...]
    numbers: tuple[int, ...]
    total: int
    truncated: int = 0
    prose: int = 0
    printed: dict[int, str] = field(default_factory=dict)
    quoted: frozenset[int] = frozenset()
    reported: bool = False
    repeated: frozenset[int] = frozenset()
    trouble: bool = False
    wish: bool = False

    @cached_property
    def folded(self) -> str:
        return fold("\n".join(self.lines))

    def is_told(self, index: int) -> bool:
        """Whether somebody said it, and no program, in their own words."""
        return self.numbers[index] in self.quoted and index not in self.repeated

    @cached_property
    def words(self) -> frozenset[str]:
        return pattern.words(self.folded)

    @cached_property
    def _vocabulary(self) -> str:
        return " ".join(self.words)

    def may_hold(self, text: str) -> bool:
        """False where one of its words is nowhere: quick, as a log says the same words over and over."""
        whole, cut = pattern.words_of(text)
        return self.has_words(whole, cut)

    def has_words(self, whole: frozenset[str], within: tuple[str, ...]) -> bool:
        """`within`: those that may be parts of longer ones."""
        if not whole <= self.words:
            return False
        known = self._parts_of_words
        for text in within:
            found = known.get(text)
            if found is None:
                found = known[text] = text in self.words or text in self._vocabulary
            if not found:
                return False
        return True

    @cached_property
    def _parts_of_words(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.lines)]

    def index_at(self, offset: int) -> int:
        """The line that a place in `folded` belongs to."""
        return bisect_right(self._starts, offset) - 1

    def span(self, index: int) -> tuple[int, int]:
        return self._starts[index], self._starts[index + 1] - 1

    def shown(self, index: int) -> str:
        text = self.printed.get(index, self.lines[index]).strip()
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def read_log(stream: BinaryIO) -> Log:
    """The whole, or the beginning and the end of what is too long; of the lines between them only the number."""
    text, before_gap, skipped = _ends(stream)
    return parse(text, before_gap=before_gap, skipped=skipped) if text else parse("")


def _ends(stream: BinaryIO) -> tuple[str, int, int]:
    """The text, the lines before the gap in it, and how many lines are missing there."""
    head = stream.read(HALF)
    tail: deque[bytes] = deque()
    kept = skipped = 0
    while chunk := stream.read(_CHUNK):
        tail.append(chunk)
        kept += len(chunk)
        while kept - len(tail[0]) >= HALF:
            kept -= len(tail[0])
            skipped += tail.popleft().count(b"\n")
    end = b"".join(tail)
    tail.clear()
    excess = max(0, kept - HALF)
    skipped += end.count(b"\n", 0, excess)
    return decode(head + (b"\n" if skipped else b"") + end[excess:]), head.count(b"\n") + 1, skipped


def parse(text: str, *, before_gap: int = 0, skipped: int = 0) -> Log:
    """`before_gap`: lines of the beginning of a log of whose middle `skipped` lines were left out."""
    log = _as_printed(text, before_gap, skipped)
    foreign = list(_foreign(log))
    if not foreign:
        return log  # with the words that were looked for already
    return replace(
        log,
        lines=(*log.lines, *(english for _, english, _ in foreign)),
        numbers=(*log.numbers, *(number for number, _, _ in foreign)),
        printed={len(log.lines) + index: line for index, (_, _, line) in enumerate(foreign)},
    )


def _as_printed(text: str, before_gap: int, skipped: int) -> Log:
    plain = _without_decoration(bounded(text))
    numbered = list(_numbered(plain))
    if skipped:
        shift = skipped - 1  # one line's end was put in between
        numbered = [(number + shift if number > before_gap else number, line) for number, line in numbered]
    total = plain.count("\n") + max(0, skipped - 1) + (not plain.endswith("\n") and bool(plain))
    told = numbered
    written = register.prose(numbered)
    prose = sum(numbered[index][0] <= total for index in written)  # what follows the last line's end is no line
    quoted: frozenset[int] = frozenset()
    repeated: list[tuple[int, str]] = []
    reported = False
    if written and (
        (reported := register.is_report(lines := [line for _, line in numbered])) or register.is_account(lines)
    ):
        asked = frozenset(register.of_form(lines))
        quoted = frozenset(numbered[index][0] for index in written)
        written = frozenset(index for index in written if index in asked or register.is_guess(numbered[index][1]))
        repeated = [
            (number, part)
            for index, (number, line) in enumerate(numbered)
            if number in quoted and index not in asked
            for part in register.said_by_programs(line, reported=reported)
        ]
    if written:
        numbered = [each for index, each in enumerate(numbered) if index not in written]
    both = [
        *_split(numbered),
        *_split([*_unwrapped(numbered), *_broken(numbered), *islice(_continued(numbered), _MESSAGES)]),
    ]
    first = len(both)
    both += _split(repeated)
    return Log(
        lines=tuple(line for _, line in both),
        numbers=tuple(number for number, _ in both),
        total=total,
        truncated=skipped,
        prose=prose,
        quoted=quoted,
        reported=reported,
        repeated=frozenset(range(first, len(both))),
        wish=len(told) <= _LONG and register.is_wish([line for _, line in told]),
        trouble=len(told) <= _LONG and register.is_trouble([line for _, line in told]),
    )


def _foreign(log: Log) -> Iterator[tuple[int, str, str]]:
    """The lines that are not in English, or whose quotation marks JSON escaped: their number, in plain, as printed."""
    text = "\n".join(log.lines)
    translator, has_escaped = Translator(text, log.may_hold), '\\"' in text
    del text
    if translator or has_escaped:
        for number, line in zip(log.numbers, log.lines, strict=True):
            if (plain := _ESCAPED_QUOTE.sub('"', translator.english(line))) != line:
                yield number, plain, line


def _without_decoration(text: str) -> str:
    text = text.replace("\r\n", "\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "[" in text or "_bk;" in text:
        text = _LOST_ANSI.sub("", text)
    return _CONTROL.sub("", text)


def _numbered(plain: str) -> Iterator[tuple[int, str]]:
    """A progress bar writes one line many times over: what it wrote last may hide what it wrote before."""
    for number, line in enumerate(plain.split("\n"), start=1):
        if "\r" in line:
            yield from ((number, piece) for piece in line.split("\r") if piece)
        else:
            yield number, line


def _split(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Without prefixes and runs of blanks; a line that holds the text of many, as those."""
    for number, whole in numbered:
        line = whole[_prefix_end(whole) :]
        if "  " in line or "\t" in line or "\u00a0" in line:
            line = _BLANKS.sub(" ", line)
        if ("SKIP" in line or "kipped" in line) and _SKIPPED.search(line, 0, _LONGEST_NAME):
            continue
        if len(line) > _ESCAPED and line.count("\\n") > 2:  # noqa: PLR2004 - not a path such as C:\new
            yield from ((number, piece) for piece in re.split(r"\\r?\\n", line.replace("\\r\\n", "\\n")))
        else:
            yield number, line


def _prefix_end(line: str) -> int:
    match = _PREFIX.match(line)
    return match.end() if match else 0


def _unwrapped(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that a terminal or a mail cut at its width, put together again, beside the pieces."""
    for glue, width in _wrappings(numbered):
        index = 0
        while index < len(numbered) - 1:
            count = 1
            while count < _PIECES and index + count < len(numbered):
                if not _was_cut(numbered[index + count - 1][1], numbered[index + count][1], width, glue):
                    break
                count += 1
            if count > 1:
                pieces = [line for _, line in numbered[index : index + count]]
                joined = glue.join([pieces[0], *(each.lstrip() if glue else each for each in pieces[1:])])
                yield numbered[index][0], joined
            index += max(1, count - 1)


def _broken(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines cut inside a word, at no width that others share: in a short log, as people copy them."""
    index = 0
    while index < len(numbered) - 1 < _LONG:
        count = 1
        while index + count < len(numbered) and count < _PIECES:
            line, following = numbered[index + count - 1][1], numbered[index + count][1]
            if len(line) < _NARROWEST or not line[-1:].isalnum() or not following[:1].islower():
                break
            if events.begins_message(following):  # "was used" and "nvcc fatal" are two lines
                break
            count += 1
        if count > 1:
            yield numbered[index][0], "".join(line for _, line in numbered[index : index + count])
        index += count


def _continued(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Messages that go on below their first line, as CMake's do, and errors that end in a colon: as one line."""
    for index, (number, line) in enumerate(numbered):
        if line.startswith("##") and (
            value := next((each for _, each in numbered[index + 1 : index + 3] if each.strip()), "")
        ):
            yield (
                number,
                f"{line.lstrip('# ')} {value.strip()}"[:_TOGETHER],
            )  # a form: what is asked, and the answer below
        if match := _ASKED_PYTHON.match(line):
            answer = next((each for _, each in numbered[index + 1 : index + 2]), "").strip()
            if answer and not _ASKED_PYTHON.match(answer):
                yield number, f"{line[match.end() :].strip()} {answer}"[:_TOGETHER]
        of_cmake = "CMake Error" in line
        if not of_cmake and not (("rror" in line or "RROR" in line) and line.rstrip().endswith(":")):
            continue
        pieces = [line.strip()]
        for _, following in numbered[index + 1 : index + 1 + _CONTINUED]:
            piece = following[_prefix_end(following) :].strip(" \t│|*")
            if piece.startswith(("Call Stack", "-- ")) or (not piece and not of_cmake and len(pieces) > 1):
                break
            if piece:
                pieces.append(piece)
        if len(pieces) > 1:
            yield number, " ".join(pieces)[:_TOGETHER]


def _was_cut(line: str, following: str, width: int, glue: str) -> bool:
    if not following.strip() or len(line) > width:
        return False
    if glue and not (len(line) > width // 2 and len(line) + 1 + len(following.split(maxsplit=1)[0]) > width):
        return False
    if not (glue or len(line) == width) or line.rstrip().endswith((".", "!", "?")):
        return False  # a sentence that ended was not cut
    return not events.begins_message(following)


def _wrappings(numbered: list[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    """How lines may have been cut: a terminal cuts anywhere, a mail between words.

    At the width of the longest line; at one that many lines share, as nothing else makes them equal; or at that of all
    terminals, where words end before it.
    """
    lengths = Counter(len(line) for _, line in numbered)
    longest = max(lengths, default=0)
    common = [(count, length) for length, count in lengths.items() if _NARROWEST <= length <= _WIDEST]
    count, length = max(common, default=(0, 0))
    if _NARROWEST <= longest <= _WIDEST and lengths[longest] > len(numbered) // _LONG:
        yield "", longest
    elif count >= max(3, len(numbered) // 10):
        yield "", length
    if _NARROWEST <= longest <= (_WIDEST if len(numbered) < _LONG else _USUAL_WIDTH):
        yield " ", longest
    if longest != _USUAL_WIDTH and longest <= _USUAL_WIDTH + _USUAL_WIDTH // 2:
        yield " ", _USUAL_WIDTH


# From bytes to text, in bounded time: whatever encoding; without what is binary, and lines that no program prints.

_SAMPLE = 4000
_BLOCK = 1024
_BINARY = 0.05  # share of control characters from which on a block is no text: of random bytes it is 0.11
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r\x1b\b\f"))
_HOLE = re.compile(rb"\x00{64,}")  # what a machine that died leaves in a log, or whoever cut a file that is written to
_LONGEST_LINE = 1 << 20  # letters of a line: command lines may be two megabytes long, and errors are not on those
_USUAL = 1 << 16  # of lines within a line


def decode(data: bytes) -> str:
    wide = _wide(data)
    if wide:
        return data.decode(wide, errors="replace")
    data = _without_binary(_HOLE.sub(b"", data))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A multi-byte character cut in two is no reason to take the rest for another encoding.
        text = data.decode("utf-8-sig", errors="replace")
        return text if text.count("\ufffd") * 200 <= len(text) else data.decode("cp1252", errors="replace")


def _wide(data: bytes) -> str:
    """UTF-16 by its mark, or without one, as PowerShell's `>` cut to pieces leaves it: every other byte is zero."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    sample = data[:_SAMPLE]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    many, few = len(sample) // 4, len(sample) // 40
    if odd > many and even <= few:
        return "utf-16-le"
    return "utf-16-be" if even > many and odd <= few else ""


def _without_binary(data: bytes) -> bytes:
    """Blocks that are no text leave their line ends, so that lines keep their numbers; all of them, nothing."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)]
    binary = [_is_binary(block) for block in blocks]
    if sum(binary) * 10 > len(blocks) * 9:
        return b""
    if not any(binary):
        return data
    return b"".join(b"\n" * block.count(b"\n") if skip else block for block, skip in zip(blocks, binary, strict=True))


def _is_binary(block: bytes) -> bool:
    return len(block) - len(block.translate(None, _CONTROLS)) > _BINARY * len(block)


def bounded(text: str) -> str:
    """Without the lines that are longer than any program's."""
    lines = text.split("\n")
    if max(map(len, lines)) <= _LONGEST_LINE:
        return text
    return "\n".join(line if len(line) <= _LONGEST_LINE else _shortened(line) for line in lines)


def _shortened(line: str) -> str:
    """A progress bar's holds many and is split later; of a log that was printed as one string the ends are kept."""
    if len(line) <= _USUAL * line.count("\r"):
        return line
    packed = len(line) <= _USUAL * line.count("\\n")
    return f"{line[: _LONGEST_LINE // 2]} … {line[-_LONGEST_LINE // 2 :]}" if packed else ""


# Lines in other languages, and of other compilers, into the words that the signatures are written in.
#
# The phrases are in `foreign.toml`.

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
        ("could not find -l", r"could not find (-l[\w.+-]{1,80})", r"cannot find \1"),
        ("nicht finden", r"kann (-l[\w.+-]{1,80}) nicht finden", r"cannot find \1"),
        ("nicht gefunden werden", r"(-l[\w.+-]{1,80}) kann nicht gefunden werden", r"cannot find \1"),
        ("が見つかりません", r"(-l[\w.+-]{1,80}) が見つかりません", r"cannot find \1"),
        ("open source file", rf"(?:cannot|could not) open source file {_NAME}", _MISSING),
        ("open include file", rf"cannot open include file: {_NAME}", _MISSING),
        ("file not found", rf"{_NAME} file not found", _MISSING),
        ("c1083", rf"c1083\b(?:[^']|(?<=\w)'(?=\w)){{1,80}}{_NAME}", _MISSING),  # in whatever language
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
    """The English of each phrase, by its wordings in small letters."""
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


# Patterns over a log. Each is looked for by its needle in the whole text, and compared only where that stands.

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
        self._found: dict[tuple[str, bool], tuple[Hit, ...]] = {}

    def hits(self, text: str) -> tuple[Hit, ...]:
        """The first lines that have it, commands too."""
        return self._lines_with(text, said=False)

    def said(self, text: str) -> tuple[Hit, ...]:
        """The first lines in which somebody says it: no command, and no list of files."""
        return self._lines_with(text, said=True)

    def has(self, text: str) -> bool:
        return bool(self.hits(text))

    def _lines_with(self, text: str, *, said: bool) -> tuple[Hit, ...]:
        found = self._found.get((text, said))
        if found is None:
            pattern = read_pattern(text)
            # Of thousands of patterns a log has the words of a few.
            possible = self.log.has_words(pattern.words, pattern.fragments)
            found = self._found[text, said] = tuple(self._hits(pattern, said=said)) if possible else ()
        return found

    def _hits(self, pattern: Pattern, *, said: bool) -> Iterator[Hit]:
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
            if held is not None and said:
                shown = self.log.lines[index]
                spoken = events.spoken(shown)
                held = held if spoken is shown else pattern.find(fold(spoken), spoken, place - start)
            if held is not None:
                yield Hit(line=index, pattern=pattern.text, held=held)
                kept += not self.log.is_told(index)  # what a person says may not count
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
