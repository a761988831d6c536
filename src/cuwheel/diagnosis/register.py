"""Notes, to-do lists, READMEs and tutorials speak of errors too, and nothing failed there: prose is told from output.

A document is taken for prose only where people's writing shows (markup, sentences that ask, advise or tell) and
outweighs what programs print. Even then a log inside it, in a code block or on lines of its own, is a log.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.support import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TABLE = Path(__file__).with_name("register.toml")
_JUDGED = 400  # lines at either end by which a document is judged
_LONGEST = 400  # letters of a line that are looked at: enough to tell who wrote it
_TITLE = 2  # words
_SHORTEST_TITLE = 3  # letters
_SENTENCE = 5  # words
_MESSAGE = 2  # lines of a program's own message that may explain and advise
_SENTENCES = 4  # without an error among them: no log says so much and nothing else
_FENCE = re.compile(
    r"(?:\s*(?:[-*+]\s+)?(`{3,})\s*([\w+#-]*)[^`]*| {0,3}(~{3,}) ?([\w+#-]*)\s*"
    r"|\s*(?:<details>)?\s*<(?:/code></)?/?pre>(?:<code[^>]*>)?\s*)"
)
_QUOTE = re.compile(r"^(?:> ?){1,2}(?!>)")  # a mail's; not Python's prompt
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
# Markup that no tool prints: boxes to tick, what is to be done, comments, links, pictures, directives, tables.
_MARKUP = re.compile(
    r"\s*(?:[-*+•]|\d{1,2}[.)])\s+\[[ xX~-]\]\s|\s*\[[ xX]\]\s+\w|\s*[☐☑☒✅❌✓✗]\s"
    r"|\s*(?:[-*+]\s+)?(?:\*\*)?(?i:to-?dos?|fixme|action items?)\b[\s:)*]|\s*\.\. \w+::|\s*<!--"
    r"|\s*<(?:details|summary|p |h\d|br|img)|.*\[[^\]\n]{1,80}\]\(\S{1,300}\)|.*!\[|\s*\|?(?:\s*:?-{3,}:?\s*\|){1,}"
)
_HEADING = re.compile(r"#{1,6} (?!R\d)[\w`\"'\[(*]|={3,}\s*$")
_BULLET = re.compile(
    r"\s*(?:[-*+•–—]|\d{1,2}[.)]|[a-z]\)|\d{4}-\d\d-\d\d:?(?! \d\d:)|(?i:day|week|step|item) \d{1,3}:)\s+"
    r"(?=[\w`*\"'(\[])"
)
_ITEM = re.compile(rf"{_BULLET.pattern}|\s*\|.*\|\s*$")  # of a list, or a row of a table
_EMPHASIS = re.compile(
    r"``[^`\n]{1,200}``|\*\*[^*\n]{1,200}\*\*|(?<![\w`])`[^`\n]{1,200}`(?![\w`])|(?<!\w)_[^_\n]{2,80}_(?!\w)"
)
_MACHINE = re.compile(
    r"(?<!\w)--?\w|[/\\\[\]{}=<>|;$%^]|: |\w[(]|0x|\.\w{2,4}\b"
)  # what a note of a few words does without
_SENTENCE_END = re.compile(r"(?<=[a-z\d)\"'][.?!]) +(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")


_REPORT = 80  # lines: who asks is brief
_BRIEF = 12  # lines: a question, or what somebody was asked for
_PAGE, _CHAPTERS = 60, 4  # lines and headings from which on a document is a manual
# Over many lines: what may be empty before a line's first word does not go on into the next line, or a log of lines
# without words is read once more for each of them.
_FORM = re.compile(
    r"(?m)^[^\w\n]*[QA]:|<!--"
    r"|(?i:^[^\w\n]*(?:to-?do|changelog|faq|agenda|attendees|post-?mortem|root cause|lessons learned)\b)"
)
# Forms in which failures are reported: what they tell their reader, what was confirmed, and what they ask.
_COMMENT, _COMMENT_END = "<!--", "-->"
_BOX = re.compile(r"(?m)^[^\S\n]*(?:[-*+][^\S\n]+)?\[ ?[xX ] ?\]\s")
_TICKED = re.compile(r"(?m)^[^\S\n]*(?:[-*+][^\S\n]+)?\[ ?[xX] ?\]\s")
_FILLED = re.compile(r"(?m)^(?![^\w\n]*\[)(?:[^\s:#]+ ){6,}[^\s:]+$")  # a sentence
_ASKED = re.compile(
    r"(?im)^[^\w\n]*(describe the (?:bug|issue|problem)|(?:steps )?to reproduce|reproduc\w+(?: steps)?"
    r"|(?:expected|actual|current) (?:behaviou?r|results?)"
    r"|repro steps|what (?:should have )?happened|what is the issue|what went wrong|relevant log output|(?:console "
    r"|debug )?logs?"
    r"|bug(?: description| report)?|issue(?: type| description)?|summary|description|system info(?:rmation)?"
    r"|(?:your current |additional )?environment(?: info(?:rmation)?)?|minimal reproducible example|versions?"
    r"|(?:error )?traceback"
    r"|error messages?(?:, stack traces, or logs)?|problem(?: description| statement)?|steps)(?: the (?:problem"
    r"|issue|bug|behaviou?r))?\W{0,6}$"
)
_TITLED = re.compile(r"(?m)^#{2,6} \w")
_FIELDS = 2  # of such a form
_FIRST_PERSON = re.compile(r"\b(?:[Ii]|[Mm]y|[Ww]e|me)\b")
_TELLS = re.compile(
    r"(?i)\b(?:get|got|getting|meet|met|encounter\w*|receiv\w+|find|found|see|saw|fac(?:e|ing)|have|had|having|hit)\b[^\n]{0,80}"
    r"\b(?:errors?|problems?|issues?|warnings?|exceptions?|failures?)\b|报错|错误"
    r"|\b(?:this|the following|the same|similar|above|below) (?:error|problem|issue|message)\b"
    r"|\berror (?:says|saying|message|is|was|when|occurs|occurred|shows?)\b|\bit (?:shows?|says|said|tells)\b"
    r"|\b(?:triggers?|throws?|raises?|produces?|causes?|yields?|results? in|leads? to|suffer(?:ed)?)\b"
    r"[^\n]{0,60}\b(?:errors?|exceptions?|failures?|not supported)\b"
    r"|\b(?:gives?|gave) me\b|\b(?:says|warns|complains|reports) (?:that )?[\"'`“]"
    r"|\b(?:stops?|stopped|fails|failed|ends|ended|crashes|crashed|dies|died|exits|exited) with\b"
    r"|\w: ?[\"“][A-Z]"
    r"|\bhow (?:to|do i|can i|should i|could i|did you) (?:fix|solve|resolve)|\banybody\b.{0,40}\bsolve"
)
_ANNOUNCED = re.compile(
    r"(?i)\b(?:get|gets|got|getting|gives?|gave|shows?|meet|met|see|saw|encounter\w*|receiv\w+)\b[^\n]{0,60}\b(?:errors?|exceptions?|failures?)\W*$"
)
_FAILS = re.compile(
    r"(?i)\b(?:\w*error|fatal|unsupported|fail|could ?n.t|could not|cannot|can.t|unable|not found|no such|undefined"
    r"|mismatch|incompatible|not compatible|not support|insufficient|out of \w*\s?memory)"
)
_QUOTABLE = 4000  # letters of a line in which that is looked for
_QUOTED = 6  # words of a program's message that somebody repeats without saying that it is one
_ASKS = re.compile(
    r"[?\uff1f]\s*$|(?i:^[^\w\n]*(?:bug|usage|installation|help|question|issue type|current behaviou?r)\b)",
    re.MULTILINE,
)
_TOOL = re.compile(r"(?:nvcc|ptxas|nvlink|cicc|fatbinary|cudafe\+\+) {1,4}(?:fatal|error) {0,4}:")
_LABELLED = re.compile(r"\W*(?i:error|error message|exception|failure)\W{0,3}[:\uff1a]")
_REPEATED = re.compile(
    r"`([^`\n]{8,400})`|[\"“]([^\"”\n]{8,400})[\"”]"
    r"|((?<![A-Za-z0-9])(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}?(?:Error|Exception): [^\n]{8,400})"
    rf"|({_TOOL.pattern} ?[^\n]{{8,400}})"
    r"|((?:fatal error(?: [A-Z]{1,4}\d{3,5})?|error [A-Z]{1,4}\d{3,5}): ?[^\n]{8,400})"
)
_COMPLAINT = (
    r"fail|errors?\b|can ?(?:'|no)t\b(?! (?:understand|decide|wait|explain|figure))|could ?(?:n't|not)\b|unable"
    r"|not able|(?:does|did|do|is|are|was|has|have|wo)(?:n't| not)\b"
    r"|not (?:work|used|detect|found|avail|compat|match)|unavailable|broken|stuck|hang|freez|crash|problem"
    r"|trouble(?!shoot)|wrong|missing"
    r"|\bfalse\b|instead of|no longer|无法|失败|报错|出错|不支持|不支援|不兼容|用不了|找不到|不可用|動作しない"
)
_OF_GPUS = (
    r"install|build|compil|\bimport|setup\.py|\bpip\b|wheel|cmake|nvcc|cuda|\bgpu|driver|nvidia|cudnn|toolkit|docker"
    r"|container|\bwsl|jetson|cublas"
    r"|显卡|\b[rg]tx|\b[345]0[5-9]0\b|\blib[a-z]|flash[-_ ]?att"
)
_COMPLAINS = re.compile(rf"(?i){_COMPLAINT}")
_CONDITION = re.compile(r"(?i)\b(?:if|when|where|unless|without|for)\b")
_WISHED = re.compile(
    r"(?i)(?:#{1,6} )?(?:\[[\w /-]{1,30}\]:? ?|feat(?:ure)?(?: request)?: ?|improve: ?|build: ?|ci: ?|docs?: ?)*"
    r"(?:force|allow|add|support|enable|disable|make|let|fall back|handle|fix|improve|silence|drop|remove|update"
    r"|avoid|prevent|ensure|provide|introduce"
    r"|implement|raise|warn|skip|stop|bump|refactor|document|switch|move|rename|deprecate|feature request)\b"
)
_QUESTION = re.compile(r"(?i)#{1,6} (?:which|what|is|are|can|will|should|could|does|do)\b.*[?\uff1f]\s*$")
_TROUBLE = re.compile(rf"(?i)(?:{_COMPLAINT}).{{0,120}}(?:{_OF_GPUS})|(?:{_OF_GPUS}).{{0,120}}(?:{_COMPLAINT})")
_OTHERWISE = re.compile(
    r"(?i)\bnan\b|\b(?:too |very |so |quite |is |are )slow|^\W*slow|\b(?:training|traning|inference|loading"
    r"|iteration) speed|utili[sz]ation\b|gpu-util"
    r"|\bloss(?:es)?\b|\bepochs?\b|data ?loader|\baccuracy\b|keyerror|\bworkflow|\bnode (?:id|type)|(?:custom"
    r"|missing) nodes|\bfeature request"
    r"|\b(?:would|might) (?:be nice|like to (?:know|see))\b|\bwould there be\b|\bsuggest|\bis it possible to (?:add"
    r"|have|run)\b|pull request|\bthis pr\b"
    r"|^\W*changes\b|\bwill (?:no longer |not )be\b|\bwe(?:'re| are) making\b|\bshould i\b|\bcan i use\b"
    r"|restrictions|\bsolved\b|\bworks now\b"
    r"|\bnow works\b|\bfinally\b|\bi (?:don't|do not) want\b|\bwant to know\b|\bplans? to\b"
)
_GUESSES = re.compile(
    r"(?i)\b(?:I|we) (?:think|guess|believe|suspect|assume)\b|\b(?:maybe|perhaps|probably|might be"
    r"|could be(?! (?:found|located|loaded|detected|resolved|used|read|opened|imported)))\b"
)


_ALONE = re.compile(
    r"(?:#{1,6} |\[?(?:[Cc]ompile )?(?i:bug|error|issue)\]?:? )*"
    r"(?:`[^`]+`\s*$|(?:[\w./+-]+ ){0,3}[\w./+-]*\w: \S|(?<=# )\S)"
)


def stands_alone(line: str) -> bool:
    """Whether it is a program's message as that prints it (who, a colon, what), marked as code, or a title."""
    is_row = line.rstrip().endswith("|")  # of a table, whose first bar is gone as the prefix of a builder
    return not is_row and not _QUESTION.match(line) and not _ITEM.match(line) and bool(_ALONE.match(line))


def is_guess(line: str) -> bool:
    return bool(_GUESSES.search(line))


class Words(Struct, frozen=True, kw_only=True):
    """register.toml."""

    asks: tuple[str, ...]
    before_asking: tuple[str, ...]
    speaks: tuple[str, ...]
    speaks_exactly: tuple[str, ...]
    advises: tuple[str, ...]
    labels: tuple[str, ...]
    little: frozenset[str]
    code: frozenset[str]
    printed: tuple[str, ...]


class _Signs(Struct, frozen=True, kw_only=True):
    asks: re.Pattern[str]
    personal: re.Pattern[str]
    speaks: re.Pattern[str]
    advises: re.Pattern[str]
    label: re.Pattern[str]
    printed: re.Pattern[str]
    little: frozenset[str]
    code: frozenset[str]


@cache
def _signs() -> _Signs:
    words = codec.own_table(TABLE, Words)
    return _Signs(
        asks=re.compile(
            rf"(?i:(?:(?:{_any(words.before_asking)}) )?(?:{_any(words.asks)})\b(?!:| \.\.\.|…))",
        ),
        personal=re.compile(rf"(?<![\w\[])(?:{_any(words.speaks_exactly)})(?![\w\]])"),
        speaks=re.compile(
            rf"(?<![\w\[])(?:{_any(words.speaks_exactly)})(?![\w\]])|\b(?i:{_any(words.speaks)})(?!\w)"
            r"|(?<![\w.-])@[a-z]\w+\b(?![ /]*[=/])"
        ),
        advises=re.compile(rf"\b(?i:{_any(words.advises)})(?!\w)|[?]\s*$"),
        label=re.compile(
            rf"\s*(?:\*\*|__)?(?i:(?:{_any(words.labels)})(?:\*\*|__)?(?:\s*[:,](?:\s|$)| (?:for|of|on) |\s*\(?\d|\s*$"
            r"| [A-Z]+-\d)|(?:dear|hi|hello|hey) \w+,|as an? \w+ i want )",
        ),
        printed=re.compile(rf"\s*(?:[│|] |# )?(?:{'|'.join(words.printed)})"),
        little=words.little,
        code=words.code,
    )


def _any(texts: tuple[str, ...]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


def is_report(lines: Sequence[str]) -> bool:
    """Whether somebody tells of a failure that they have, or asks: the messages in it are then what they saw.

    Questions with their answers, forms that nobody filled in and lists of things to do tell of failures that others
    may have.
    """
    text = _without_comments(lines)
    if _is_long(lines) or _is_form(text):
        return False
    return (
        bool((_FIRST_PERSON.search(text) or _reports(text)) and _TELLS.search(text))
        or _announces(text)
        or (_shows_message(text) and not is_wish(lines))
    )


def _shows_message(text: str) -> bool:
    """Whether a program's complaint stands among the lines, and none before it says that this is what may happen."""
    before = ""
    for line, inside in _fenced(line[:_LONGEST] for line in text.split("\n")):
        if not inside and line.strip():
            said = _ITEM.match(line) or _HEADING.match(line) or _speaks(line) or _is_sentence(line)
            if (not said or stands_alone(line.strip())) and _FAILS.search(line) and not _CONDITION.search(before):
                return True
            before = line
    return False


def _announces(text: str) -> bool:
    """Whether a line that ends in "got error" or the like is followed by a program's complaint."""
    lines = [line for line in text.split("\n") if line.strip()]
    return any(
        _ANNOUNCED.search(line[:_LONGEST]) and not _CONDITION.search(line[:_LONGEST]) and _FAILS.search(following)
        for line, following in pairwise(lines)
    )


def is_account(lines: Sequence[str]) -> bool:
    """Whether somebody speaks of what they have before them, be it no more than versions and that it does not work."""
    text = _without_comments(lines)
    if _is_long(lines) or _is_form(text):
        return False
    title = next((line for line in lines if line.strip()), "")[:_LONGEST]
    complains = _HEADING.match(title) and (_TROUBLE.search(title) or _FAILS.search(title)) and not is_wish(lines)
    speaks = complains or _FIRST_PERSON.search(text) or _ASKS.search(text)
    return len(lines) <= _BRIEF or _reports(text) or bool(speaks)


def _without_comments(lines: Sequence[str]) -> str:
    text, kept, at = "\n".join(lines), [], 0
    while (begin := text.find(_COMMENT, at)) >= 0:
        end = text.find(_COMMENT_END, begin + len(_COMMENT))
        if end < 0:
            break
        kept.append(text[at:begin])
        at = end + len(_COMMENT_END)
    return "".join(kept) + text[at:]


def _is_long(lines: Sequence[str]) -> bool:
    """What is said; a log that is shown in a code block may be long."""
    return sum(not inside for _, inside in _fenced(line[:_LONGEST] for line in lines)) > _REPORT


def _is_form(text: str) -> bool:
    titled = _reports(text) or len(_TITLED.findall(text)) >= _FIELDS
    filled = titled and bool(_TICKED.search(text) or _FILLED.search(text))
    return bool(_FORM.search(text) or (_BOX.search(text) and not filled))


def _reports(text: str) -> bool:
    return len({match[1].lower() for match in _ASKED.finditer(text)}) >= _FIELDS


def is_wish(lines: Sequence[str]) -> bool:
    """Whether somebody asks for a change, or makes one: what does not work is then what others may meet."""
    title = next((line for line in lines if line.strip()), "")[:_LONGEST]
    return bool(_WISHED.match(title)) and not _COMPLAINS.search(_CONDITION.split(title)[0])


def is_trouble(lines: Sequence[str]) -> bool:
    """Whether somebody tells, or asks, of a GPU or a build that does not do what it should, and of nothing else.

    What is wished for, changed or mended, slow or learns nothing is no such trouble, nor is another program's.
    """
    whole = _without_comments(lines)
    outside = [line for line, inside in _fenced(line[:_LONGEST] for line in whole.split("\n")) if not inside]
    own = [line for line in outside if line.strip() and not is_printed(line)]
    if not own or _is_long(lines) or _is_form(whole) or any(map(_OTHERWISE.search, own)) or is_wish(lines):
        return False
    text = "\n".join(own)
    title, person = own[0], bool(_FIRST_PERSON.search(text))
    if not _ITEM.match(title) and not _SENTENCE_END.search(title) and _TROUBLE.search(title):
        return person or bool(_HEADING.match(title) or _ASKS.search(text) or _reports(text))
    tells = person and (_TELLS.search(text) or _ASKS.search(text))
    return bool(tells) and any(map(_TROUBLE.search, own))


def of_form(lines: Sequence[str]) -> Iterator[int]:
    """Indexes of the lines of a form that its makers wrote: comments, and what is to be confirmed."""
    hidden = False
    for index, line in enumerate(lines):
        if hidden or _COMMENT in line or _BOX.match(line):
            yield index
        hidden = line.rfind(_COMMENT) > line.rfind(_COMMENT_END) or (hidden and _COMMENT_END not in line)


def said_by_programs(line: str, *, reported: bool) -> tuple[str, ...]:
    """What a sentence repeats: words in quotation marks or marked as code, and an exception from its name on.

    `reported`: somebody says that it failed so. Else it takes a whole message.
    """
    found = [next(filter(None, match.groups())) for match in _REPEATED.finditer(line, 0, _QUOTABLE)]
    if reported:
        return tuple(each for each in found if len(_WORD.findall(each)) > _TITLE)
    labelled = _LABELLED.match(line)
    whole = [each for each in found if _TOOL.match(each) or len(_WORD.findall(each)) >= _QUOTED]
    return tuple(each for each in whole if labelled or _FAILS.search(each))


def _is_manual(lines: Sequence[str]) -> bool:
    """Pages with chapters, in which nobody tells of a failure: what their code blocks show are examples."""
    chapters = sum(line.startswith("#") and bool(_HEADING.match(line)) for line in lines[: 2 * _JUDGED])
    personal = any(re.search(r"\bI(?:'m|'ve)? \w", line) for line in lines[: 2 * _JUDGED])
    return len(lines) > _PAGE and chapters >= _CHAPTERS and not personal


def prose(numbered: Sequence[tuple[int, str]]) -> frozenset[int]:
    """Indexes of the lines that somebody wrote and no program printed; none where it is a log."""
    if not numbered or not _by_people(numbered):
        return frozenset()
    if _is_manual([line for _, line in numbered]):
        return frozenset(range(len(numbered)))
    kept = set[int]()
    for block in _blocks([_bare(line) for _, line in numbered]):
        kept.update(block)
    return frozenset(set(range(len(numbered))) - kept)


def _by_people(numbered: Sequence[tuple[int, str]]) -> bool:
    lines = [_bare(line) for _, line in (*numbered[:_JUDGED], *numbered[max(_JUDGED, len(numbered) - _JUDGED) :])]
    fenced = list(_fenced(lines))
    outside = list(dict.fromkeys(line for line, inside in fenced if not inside and line.strip()))
    if not outside:
        return False
    printed = sum(is_printed(line) and not _ITEM.match(line) for line in outside)
    titles = sum(map(_underlines, outside[1:], outside))
    parts = [part for line in outside for part in ([line] if is_printed(line) else _SENTENCE_END.split(line))]
    # Tools emphasise too, a little: that alone is one sign and no more.
    emphasis = any(map(_EMPHASIS.search, parts))
    markup = sum(map(_markup, parts)) + titles + 2 * any(each for _, each in fenced)
    spoken = sum(map(_speaks, parts))
    sentences = sum(map(_is_sentence, parts))
    if markup + emphasis > 1:
        return max(markup + emphasis, spoken, sentences) > printed
    if printed:
        return False
    if not any(map(_signs().personal.search, outside)):
        # A message that gives a reason and then advice speaks twice: what counts is the lines that do.
        spoken = max(0, sum(map(_speaks, outside)) - _MESSAGE)
        emphasis = False
    mostly_words = spoken > 1 or sentences + spoken > _SENTENCES
    if (mostly_words and 2 * max(spoken, sentences) >= len(parts)) or (markup + emphasis and spoken):
        return True
    return _is_list(outside, markup + emphasis + spoken)


def _is_list(lines: Sequence[str], signs: int) -> bool:
    """Items below one another, or a few words on each line; and a script, which is written too."""
    items = [line for line in lines if (bullet := _BULLET.match(line)) and line[bullet.end()].isalpha()]
    bare = [line for line in lines if _BULLET.match(line) or not _MACHINE.search(line)]
    return (
        (len(items) > 1 and 2 * len(items) >= len(lines) and not any(line.endswith(":") for line in lines))
        or (bool(signs) and 1 < len(lines) == len(bare))
        or lines[0].startswith("#!")
    )


def _is_titled(line: str) -> bool:
    return len(_WORD.findall(line)) > _TITLE


def _bare(line: str) -> str:
    return _QUOTE.sub("", line[:_LONGEST])


def is_printed(line: str) -> bool:
    return bool(_signs().printed.match(line))


def _underlines(line: str, title: str) -> bool:
    differ = abs(len(line) - len(title.strip()))
    return not line.strip("-=~") and len(line) > _SHORTEST_TITLE > differ


def _markup(line: str) -> int:
    """How surely a line is markup: 2 where one such line is enough."""
    if _MARKUP.match(line):
        return 2
    if is_printed(line):
        return 0
    if _signs().label.match(line):
        return 1
    bullet = _BULLET.match(line)
    rest = line[bullet.end() :] if bullet else line
    words = _WORD.findall(rest)
    if _HEADING.match(line) and (len(words) > 1 or line.startswith("##")):
        return 1
    if len(words) <= _TITLE:
        return 0
    signs = _signs()
    item = bullet and (signs.asks.match(rest) or signs.speaks.search(rest) or signs.advises.search(rest))
    return int(bool(item))


def _speaks(line: str) -> bool:
    if is_printed(line):
        return False
    bullet = _BULLET.match(line)
    rest = line[bullet.end() :] if bullet else line.strip()
    return _is_titled(rest) and bool(_signs().asks.match(rest) or _signs().speaks.search(rest))


def _is_sentence(line: str) -> bool:
    words = _WORD.findall(line.lower())
    if len(words) < _SENTENCE or is_printed(line):
        return False
    return sum(word in _signs().little for word in words) * 4 >= len(words)


def _fenced(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it stands in a code block; the fences themselves are in it."""
    inside = ""
    for line in lines:
        mark = _fence(line)[0]
        yield line, bool(inside or mark)
        if mark and (not inside or inside == mark):
            inside = "" if inside else mark


def _fence(line: str) -> tuple[str, str]:
    """What a line begins or ends a code block with, and the language; nothing where it is no fence."""
    match = _FENCE.fullmatch(line)
    if match is None:
        return "", ""
    return (match[1] or match[3] or "pre")[:3], (match[2] or match[4] or "").lower()


def _blocks(lines: Sequence[str]) -> Iterator[range]:
    """What programs printed: code blocks, indented ones and lines that show it."""
    index = 0
    while index < len(lines):
        mark, language = _fence(lines[index])
        if mark:
            end = next((each for each in range(index + 1, len(lines)) if _fence(lines[each])[0] == mark), len(lines))
            block, following, is_code = range(index + 1, end), end + 1, language in _signs().code
        elif _INDENTED.match(lines[index]) and not (index and lines[index - 1].strip()):
            following = _end_of_indented(lines, index)
            block, is_code = range(index, following), True
        else:
            block, following, is_code = range(index, index + 1), index + 1, True
        text = [lines[each] for each in block if lines[each].strip()]
        written = not mark and len(block) == 1 and any(_ITEM.match(each) or _markup(each) for each in text)
        if text and not written and (not is_code or any(map(is_printed, text))):
            yield block
        index = following


def _end_of_indented(lines: Sequence[str], start: int) -> int:
    for index in range(start, len(lines)):
        if lines[index].strip() and not _INDENTED.match(lines[index]):
            return index
    return len(lines)
