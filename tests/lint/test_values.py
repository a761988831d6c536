"""No code decides by a message, a title, a hint or a fix that cuwheel wrote: such facts travel as values."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HOUSES = ("src", "core/src", "lab/src")
# Attributes that hold sentences of ours, and names that such sentences are bound to.
SENTENCES = {"message", "title", "hint", "summary", "says", "fix", "detail"}
METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"}
# Where a sentence is only laid out, or where the text is another program's.
ALLOWED: dict[str, str] = {
    "report/terminal.py": "layout: lines and their widths",
    "report/markdown.py": "layout: lines of a cell",
    "diagnosis/register.py": "what other programs and people wrote",
}
# Places that are known and not mended yet: none may be added.
KNOWN: dict[str, int] = {}


def holds_sentence(node: ast.AST) -> bool:
    return any(
        (isinstance(each, ast.Attribute) and each.attr in SENTENCES)
        or (isinstance(each, ast.Name) and each.id in {"message", "hint", "fix", "title"})
        for each in ast.walk(node)
    )


def decisions(tree: ast.AST) -> Iterator[int]:
    """The lines on which a text of ours is searched, cut or compared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            literal = isinstance(node.left, (ast.Constant, ast.JoinedStr))
            if literal and holds_sentence(node.comparators[0]):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target, method = node.func.value, node.func.attr
            cut = method in METHODS and isinstance(target, (ast.Attribute, ast.Name)) and holds_sentence(target)
            pattern = isinstance(target, ast.Name) and (target.id == "re" or target.id.isupper())
            if cut or (pattern and method not in {"escape", "compile"} and any(map(holds_sentence, node.args))):
                yield node.lineno


def found() -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            name = path.relative_to(ROOT / house).as_posix().partition("/")[2]
            if name not in ALLOWED and (lines := sorted(decisions(ast.parse(path.read_text(encoding="utf-8"))))):
                places[name] = lines
    return places


def test_nothing_decides_by_a_text_of_ours() -> None:
    places = found()
    more = {name: lines for name, lines in places.items() if len(lines) > KNOWN.get(name, 0)}
    fewer = {name: number for name, number in KNOWN.items() if len(places.get(name, [])) < number}
    assert not more, f"let the fact travel beside its sentence: {more}"
    assert not fewer, f"mended; take it off the list: {fewer}"


def test_the_check_itself_can_fail() -> None:
    wrong = "if error.message.startswith('sent'): pass\nx = 'nothing' in found.fix\nre.sub('[0-9]', '', each.message)"
    assert list(decisions(ast.parse(wrong))) == [1, 2, 3]
    fine = "names = [each.message for each in errors]\nx = 'a' in words\nre.sub('a', '', line)"
    assert not list(decisions(ast.parse(fine)))
