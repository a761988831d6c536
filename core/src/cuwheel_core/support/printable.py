"""Foreign text made powerless where it is written: names in files and records, what servers and programs say.

A terminal acts on control characters, a mark of direction shows a name as another one, a line feed begins a line that
looks like ours, Markdown and XML have signs of their own, and CI services obey commands that they find in a log. Every
writer has its function here, and nothing else writes foreign text. Nothing but the standard library of Python 3.9:
this also travels in the kit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cuwheel_core.support.patterns import lazy_pattern

MARK = "\N{REPLACEMENT CHARACTER}"
# Of what a terminal acts on, line feeds and tabs are left. Marks of direction would show a line as another one, tags
# and other letters without a width hide in it, half a pair of surrogates cannot be written at all, and XML has not all
# of these. The shims in C have the same list.
UNPRINTABLE = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x061C, 0x061C), (0x180E, 0x180E), (0x200B, 0x200F)),
    *((0x2028, 0x202E), (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xFFFE, 0xFFFF)),
    (0xE0000, 0xE007F),
)
CLASS = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in UNPRINTABLE)  # for patterns of others
_UNPRINTABLE = lazy_pattern(f"[{CLASS}]")
# Commands of CI services. GitHub: `::error::` behind blanks, and `##[error]` anywhere in a line (actions/runner,
# ActionCommand.cs). Azure: `##vso[…]` anywhere. TeamCity: `##teamcity[…]`. Colours of ours may stand before one.
_BEGUN = lazy_pattern(r"^((?:[^\S\n]|\x1b\[[0-9;]*m)*):(?=:[A-Za-z])", re.MULTILINE)
_INSIDE = lazy_pattern(r"##(?=[A-Za-z]*\[)")
_MARKUP = lazy_pattern(r"([\\`*_{}\[\]#|~])")
_SCHEME = lazy_pattern(r"\b(javascript|vbscript|data)\s*:", re.IGNORECASE)


def text(value: str) -> str:
    """Lines stay lines: for what has several of them, such as the output of a program. `\\r\\n` ends one too."""
    return _UNPRINTABLE.sub(MARK, value.replace("\r\n", "\n"))


def line(value: str) -> str:
    """One line, whatever was in it: a name with a line feed must not begin a line of its own."""
    return text(value).replace("\n", MARK).replace("\t", " ")


class Lines(str):
    """Several lines of ours, each made one when they were put together: a text of any other class is one line."""

    __slots__ = ()

    def __new__(cls, parts: Iterable[str] = ()) -> Lines:  # noqa: PYI034 - Python 3.9 has no Self
        return super().__new__(cls, "\n".join(each if isinstance(each, cls) else line(each) for each in parts))


def lines(value: str) -> list[str]:
    return value.split("\n") if isinstance(value, Lines) else [line(value)]


def message(value: str) -> str:
    """What stands behind a first word such as `error:`. Further lines are indented: none can pass for a first."""
    first, *more = lines(value)
    return output("\n".join([first, *(each if each.startswith(" ") or not each else f"  {each}" for each in more)]))


def output(value: str) -> str:
    """Whole lines for a stream, wrapped and coloured as they are: no CI service finds a command of its own in them."""
    value = _BEGUN.sub(r"\1: ", value) if "::" in value else value
    return _INSIDE.sub("## ", value) if "##" in value else value


def markdown(value: str) -> str:
    """Lines in which nothing is markup; in a cell or a point they stay together."""
    return "<br>".join(map(_markdown_line, lines(value)))


def _markdown_line(value: str) -> str:
    return _without_elements(_MARKUP.sub(r"\\\1", value))


def markdown_code(value: str) -> str:
    """A command inside of a line, to be copied."""
    shown = line(value)
    return f"`{shown}`" if set("`<&").isdisjoint(shown) else f"<code>{markdown(value)}</code>"


def markdown_block(values: Iterable[str]) -> str:
    """Lines as they are. A fence could be closed by one of them, and what is indented belongs to a list above it."""
    return "<pre>\n" + "\n".join(_without_elements(line(each)) for each in values) + "\n</pre>"


def _without_elements(value: str) -> str:
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SCHEME.sub(r"\1&#58;", value) if ":" in value else value


def annotation(*values: str, inside: bool = False) -> str:
    """The lines of what one of GitHub's commands says; `inside`: a property of it, which ends at a colon or comma."""
    value = output(Lines(values)).replace("%", "%25").replace("\n", "%0A")
    return value.replace(":", "%3A").replace(",", "%2C") if inside else value


def json(value: str) -> str:
    """JSON with the same values, which stands in logs as it is: characters of strings are written by their numbers."""
    value = _UNPRINTABLE.sub(_by_number, value)
    return value.replace("##", "#\\u0023") if "##" in value else value


def _by_number(match: re.Match[str]) -> str:
    pair = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pair[at : at + 4]}" for at in range(0, len(pair), 4))
