"""Every rule id that the code can put into a finding is registered, once, and has a page; and none that it cannot."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import cuwheel
from tests.lint.test_docs import generator

if TYPE_CHECKING:
    from collections.abc import Iterator

_SRC = Path(cuwheel.__file__).parent
_PAGES = Path(__file__).parents[3] / "docs" / "rules"
# Where a Rule makes findings of what its check yields.
_RULE_ITSELF = "verdicts/rule.py"


class Given(NamedTuple):
    """A value given for something called `rule`; `ids` is empty where it only hands on another one."""

    where: str
    ids: tuple[str, ...]
    severity: str | None
    understood: bool


def given(tree: ast.Module, where: str) -> Iterator[Given]:
    """By keyword anywhere, and by position to what the module itself defines."""
    constants = _constants(tree)
    positions = dict(_positions(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {each.arg: each.value for each in node.keywords}
        value = keywords.get("rule")
        at = positions.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if value is None and at is not None and at < len(node.args):
            value = node.args[at]
        if value is not None:
            severity = keywords.get("severity")
            ids = _ids(value, constants)
            passed_on = (value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")) == "rule"
            yield Given(
                f"{where}:{node.lineno}",
                ids,
                severity.value if isinstance(severity, ast.Constant) and isinstance(severity.value, str) else None,
                bool(ids) or passed_on or where == _RULE_ITSELF,
            )


def _ids(value: ast.expr, constants: dict[str, str]) -> tuple[str, ...]:
    if isinstance(value, ast.Constant):
        return (value.value,) if isinstance(value.value, str) else ()
    if isinstance(value, ast.Name):
        return (constants[value.id],) if value.id in constants else ()
    if isinstance(value, ast.IfExp):
        both = _ids(value.body, constants), _ids(value.orelse, constants)
        return (*both[0], *both[1]) if all(both) else ()
    return ()


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _positions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions and classes with a parameter or field called `rule`, and which one it is."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        elif isinstance(node, ast.ClassDef):
            fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            names = [each.id for each in fields if isinstance(each, ast.Name)]
        else:
            continue
        if "rule" in names:
            yield node.name, names.index("rule")


def _decorated(tree: ast.Module) -> Iterator[str]:
    """The ids of `@rule("id", …)`."""
    for node in ast.walk(tree):
        for each in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            name = ast.unparse(each.func) if isinstance(each, ast.Call) else ""
            if isinstance(each, ast.Call) and name.rpartition(".")[2] == "rule":
                assert isinstance(each.args[0], ast.Constant), ast.unparse(each)
                yield str(each.args[0].value)


@cache
def _trees() -> dict[str, ast.Module]:
    paths = sorted(_SRC.rglob("*.py"))
    return {path.relative_to(_SRC).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def _used() -> tuple[Given, ...]:
    return tuple(each for where, tree in _trees().items() for each in given(tree, where))


@cache
def _registered() -> tuple[str, ...]:
    return tuple(rule.id for _, _, group in generator().GROUPS for rule in group)


def test_rules_are_given_in_ways_that_can_be_read_here() -> None:
    assert len(_used()) > 80
    assert [each.where for each in _used() if not each.understood] == [], "write the id itself, as a string"


def test_every_id_that_is_used_is_registered() -> None:
    unknown = {id_: each.where for each in _used() for id_ in each.ids if id_ not in _registered()}
    assert unknown == {}, "give it a row in src/cuwheel/support/finding_rules.toml, then ./run docs"


def test_every_id_that_is_registered_is_used() -> None:
    decorated = [id_ for tree in _trees().values() for id_ in _decorated(tree)]
    used = {*decorated, *(id_ for each in _used() for id_ in each.ids)}
    assert sorted(set(_registered()) - used) == [], "nothing makes such a finding"
    assert sorted(set(decorated) - set(_registered())) == [], "the rule is in no tuple of rules"


def test_ids_are_registered_once() -> None:
    assert [id_ for id_, count in Counter(_registered()).items() if count > 1] == []


def test_every_id_has_its_page() -> None:
    assert [id_ for id_ in _registered() if not (_PAGES / f"{id_}.md").is_file()] == [], "./run docs"


def test_files_of_ours_that_a_source_names_exist() -> None:
    places = {"docs": _PAGES.parent, "facts/data": _SRC / "facts" / "data"}
    named = {
        (page.stem, folder, name)
        for page in _PAGES.glob("*.md")
        for folder, name in re.findall(
            r"\b(docs|facts/data)/([\w-]+\.(?:md|toml))", page.read_text().partition("## Source")[2]
        )
    }
    assert len(named) > 20
    assert [each for each in sorted(named) if not (places[each[1]] / each[2]).is_file()] == []


def test_the_severity_of_a_row_is_one_that_is_given() -> None:
    rows = {row.id: row.severity for group in generator().ROWS.group for row in group.rule}
    found: dict[str, set[str]] = {}
    for each in _used():
        for id_ in each.ids:
            found.setdefault(id_, set()).update([each.severity] if each.severity else [])
    assert {id_: each for id_, each in rows.items() if (there := found.get(id_)) and each not in there} == {}


@pytest.mark.parametrize(
    ("code", "ids"),
    [
        ('Finding(rule="a-b", severity="note")', ("a-b",)),
        ('replace(found, rule="a-b")', ("a-b",)),
        ('Finding(rule="a" if undo else "b")', ("a", "b")),
        ('RULE = "a-b"\nFinding(rule=RULE)', ("a-b",)),
        ('def f(words, rule): ...\nf("words", "a-b")', ("a-b",)),
        ('class R(NamedTuple):\n    rule: str\nR("a-b")', ("a-b",)),
    ],
)
def test_ids_are_found_however_they_are_given(code: str, ids: tuple[str, ...]) -> None:
    (found,) = given(ast.parse(code), "x.py")
    assert (found.ids, found.understood) == (ids, True)


@pytest.mark.parametrize("code", ['Finding(rule=f"a-{kind}")', "Finding(rule=names[0])", "Finding(rule=made())"])
def test_ids_that_are_put_together_are_refused(code: str) -> None:
    assert not next(given(ast.parse(code), "x.py")).understood
