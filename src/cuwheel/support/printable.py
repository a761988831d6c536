"""What strangers wrote (names in wheels and records, what servers and programs say) as text that steers no terminal.

Everything that is shown to people goes through here where it is shown: messages, errors, progress, reports.
"""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|])")
_MARK = "\N{REPLACEMENT CHARACTER}"
# Of what a terminal acts on, line ends and tabs are left. Marks of direction would show a line as another one, tags and
# other letters without a width hide in it, and half a pair of surrogates cannot be written at all.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def text(value: str) -> str:
    """Lines stay lines. `\\r\\n` ends one too."""
    return _UNPRINTABLE.sub(_MARK, value.replace("\r\n", "\n"))


def line(value: str) -> str:
    """One line, whatever was in it: a name with a newline must not begin a line of its own."""
    return text(value).replace("\n", _MARK).replace("\t", " ")


def in_markdown(value: str) -> str:
    """One line of a page in Markdown, in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", line(value))


def message(value: str) -> str:
    """What stands behind a first word such as `error:`. Further lines are indented: none can pass for a first."""
    first, *more = text(value).split("\n")
    return "\n".join([first, *(each if each.startswith((" ", "\t")) or not each else f"  {each}" for each in more)])
